"""The Python client ``rocketmq`` 0.4.4 (C++ core 1.0), printing one JSON line a message.

Runs in a virtual environment of its own, which has none of this project's packages::

    python rocketmq_cpp.py produce NAMESRV TOPIC COUNT
    python rocketmq_cpp.py consume NAMESRV TOPIC GROUP COUNT
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer
from rocketmq.exceptions import RocketMQException

SECONDS = 60.0
TRIES = 100
RETRY_SECONDS = 0.1


def emit(**fields: object) -> None:
    """Prints one line."""
    print(json.dumps(fields), flush=True)


def produce(namesrv: str, topic: str, count: int) -> None:
    """Sends the numbers below ``count``, each until it is acknowledged."""
    producer = Producer("cpp_producers")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    for n in range(count):
        message = Message(topic)
        message.set_keys(str(n))
        message.set_tags("cpp")
        message.set_body(str(n))
        result = send(producer, message)
        emit(n=n, msg_id=result.msg_id, queue_offset=result.offset)
    producer.shutdown()


def send(producer: Any, message: Any) -> Any:
    """The acknowledgement of one message; the client itself tries it a few times each time."""
    for _ in range(TRIES):
        try:
            return producer.send_sync(message)
        except RocketMQException as error:
            print(error, file=sys.stderr)
            time.sleep(RETRY_SECONDS)
    sys.exit(f"not acknowledged after {TRIES} tries")


def consume(namesrv: str, topic: str, group: str, count: int) -> None:
    """Prints messages until ``count`` different numbers have come."""
    seen: set[int] = set()
    complete = threading.Event()

    # What the package's own subscribe registers raises through C where a callback fails.
    def received(message: Any) -> None:
        n = int(message.body)
        emit(
            n=n,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            msg_id=message.id,
            tags=message.tags.decode(),
        )
        seen.add(n)
        if len(seen) == count:
            complete.set()

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, received)
    consumer.start()
    arrived = complete.wait(SECONDS)
    consumer.shutdown()
    if not arrived:
        sys.exit(f"only {len(seen)} of {count} came within {SECONDS:g} s")


if __name__ == "__main__":
    action, namesrv, topic, *group, last = sys.argv[1:]
    if action == "produce":
        produce(namesrv, topic, int(last))
    else:
        consume(namesrv, topic, group[0], int(last))
