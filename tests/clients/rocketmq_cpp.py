"""The Python client ``rocketmq`` 0.4.4 (C++ core 1.0), printing one JSON line a message.

Runs in a virtual environment of its own, which has none of this project's packages::

    python rocketmq_cpp.py produce NAMESRV TOPIC COUNT
    python rocketmq_cpp.py consume NAMESRV TOPIC GROUP COUNT
    python rocketmq_cpp.py produce-delayed NAMESRV TOPIC LEVEL COUNT
    python rocketmq_cpp.py consume-failing NAMESRV TOPIC GROUP COUNT
    python rocketmq_cpp.py consume-orderly NAMESRV TOPIC GROUP COUNT

With ``ACCESS_KEY`` and ``SECRET_KEY`` in the environment it signs what it sends; ``TRIES`` says how
often it tries to send a message. ``consume-failing`` asks for every message once more when it comes
first; ``consume-orderly`` locks the queues and takes one message of each at a time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage
from rocketmq.exceptions import RocketMQException, ffi_check
from rocketmq.ffi import dll

SECONDS = 180.0
TRIES = int(os.environ.get("TRIES", "100"))
RETRY_SECONDS = 0.1
CONSUMED, RECONSUME_LATER = 0, 1


def emit(**fields: object) -> None:
    """Prints one line."""
    print(json.dumps(fields), flush=True)


def sign(client: Any) -> None:
    """Signs with the keys in the environment, if there are any."""
    if "ACCESS_KEY" in os.environ:
        keys = os.environ["ACCESS_KEY"], os.environ["SECRET_KEY"]
        client.set_session_credentials(*keys, "ALIYUN")


def produce(namesrv: str, topic: str, count: int, delay_level: int = 0) -> None:
    """Sends the numbers below ``count``, each until it is acknowledged."""
    producer = Producer("cpp_producers")
    producer.set_namesrv_addr(namesrv)
    sign(producer)
    producer.start()
    for n in range(count):
        message = Message(topic)
        message.set_keys(str(n))
        message.set_tags("cpp")
        message.set_body(str(n))
        if delay_level:
            message.set_delay_time_level(delay_level)
        sent_ms = time.time_ns() // 1_000_000
        result = send(producer, message)
        emit(n=n, msg_id=result.msg_id, queue_offset=result.offset, sent_ms=sent_ms)
    producer.shutdown()


def send(producer: Any, message: Any) -> Any:
    """Sends one message until it is acknowledged. Each time the client itself tries a few times."""
    for _ in range(TRIES):
        try:
            return producer.send_sync(message)
        except RocketMQException as error:
            print(error, file=sys.stderr)
            time.sleep(RETRY_SECONDS)
    sys.exit(f"not acknowledged after {TRIES} tries")


def consume(namesrv: str, topic: str, group: str, count: int, *, how: str = "") -> None:
    """Prints messages until ``count`` different numbers are consumed."""
    seen: set[int] = set()
    complete = threading.Event()

    # The package's own subscribe registers a callback that raises through C.
    def received(_consumer: Any, pointer: Any) -> int:
        message = RecvMessage(pointer)
        n = int(message.body)
        emit(
            n=n,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            msg_id=message.id,
            tags=message.tags.decode(),
            stored_ms=message.store_timestamp,
            reconsume_times=message.reconsume_times,
        )
        if how == "failing" and not message.reconsume_times:
            return RECONSUME_LATER
        seen.add(n)
        if len(seen) == count:
            complete.set()
        return CONSUMED

    consumer = PushConsumer(group, orderly=how == "orderly")
    consumer.set_namesrv_addr(namesrv)
    sign(consumer)
    ffi_check(dll.Subscribe(consumer._handle, topic.encode(), b"*"))
    consumer._register_callback(received)
    consumer.start()
    arrived = complete.wait(SECONDS)
    consumer.shutdown()
    if not arrived:
        sys.exit(f"only {len(seen)} of {count} came within {SECONDS:g} s")


if __name__ == "__main__":
    action, namesrv, topic, *group, last = sys.argv[1:]
    if action.startswith("produce"):
        produce(namesrv, topic, int(last), int(*group))
    else:
        consume(namesrv, topic, group[0], int(last), how=action.partition("-")[2])
