"""The Python client ``rocketmq`` 0.4.4 (C++ core 1.0), sending one message at a time until told.

Runs in a virtual environment of its own, which has none of this project's packages::

    python cpp_load.py NAMESRV TOPIC NAME

Sends NAME-0, NAME-1 and so on until its input ends. Prints a JSON line for each message that is
acknowledged or refused. The client itself may try again, but this program does not. There is one
sending thread: two threads that need the client's table of connections at the same moment do not
wait for each other, but give up after six tries within a millisecond, and report that there is no
route. For the same reason the first message is tried until the client's timer has got the route.

NAME distinguishes the messages of several such processes. The client's UNIQ_KEY does not, because
it has zeros in the place of the process id.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time

from rocketmq.client import Message, Producer
from rocketmq.exceptions import RocketMQException

ROUTE_WAIT_SECONDS = 60


def send(producer: Producer, topic: str, body: str) -> dict[str, object]:
    message = Message(topic)
    message.set_body(body)
    return {"body": body, "queue_offset": producer.send_sync(message).offset}


def send_first(producer: Producer, topic: str, body: str) -> dict[str, object]:
    until = time.monotonic() + ROUTE_WAIT_SECONDS
    while True:
        try:
            return send(producer, topic, body)
        except RocketMQException as error:
            if "No route info" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(0.1)


def main(namesrv: str, topic: str, name: str) -> None:
    producer = Producer("cpp_load")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    ended = threading.Event()

    def read() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read).start()
    print(json.dumps(send_first(producer, topic, f"{name}-0")), flush=True)
    for n in itertools.count(1):
        if ended.is_set():
            break
        body = f"{name}-{n}"
        try:
            told = send(producer, topic, body)
        except RocketMQException as error:
            told = {"body": body, "refused": str(error)}
        print(json.dumps(told), flush=True)
    # Not `producer.shutdown()`: the client interrupts its own threads, and sometimes one of them
    # does not expect that and ends the process with SIGABRT (boost::thread_interrupted).
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
