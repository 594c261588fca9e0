"""The Python client ``rocketmq`` 0.4.4 (C++ core 1.0), sending from several threads until told.

Runs in a virtual environment of its own, which has none of this project's packages::

    python cpp_load.py NAMESRV TOPIC THREADS

Sends numbers, one JSON line for each that is acknowledged or refused, until its input ends. Nothing
is tried again here; what the client tries again by itself is its own.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading

from rocketmq.client import Message, Producer
from rocketmq.exceptions import RocketMQException


def main(namesrv: str, topic: str, threads: str) -> None:
    producer = Producer("cpp_load")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    numbers, ended, printing = itertools.count(), threading.Event(), threading.Lock()

    def send() -> None:
        while not ended.is_set():
            with printing:
                n = next(numbers)
            message = Message(topic)
            message.set_body(str(n))
            try:
                result = producer.send_sync(message)
                told = {"n": n, "queue_offset": result.offset}
            except RocketMQException as error:
                told = {"n": n, "refused": str(error)}
            with printing:
                print(json.dumps(told), flush=True)

    senders = [threading.Thread(target=send) for _ in range(int(threads))]
    for sender in senders:
        sender.start()
    sys.stdin.read()
    ended.set()
    for sender in senders:
        sender.join()
    producer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
