"""Ways of sending of the Python client ``rocketmq`` 0.4.4 (C++ core 1.0).

Runs in a virtual environment of its own, which has none of this project's packages::

    python rocketmq_cpp_sends.py oneway|batch|by_key|large NAMESRV TOPIC

Sends the numbers from 0 to 11: one way, in one batch, each to the queue of its key (the number
modulo 3), or with a body of 100,000 characters, which the client deflates. It runs until its input
ends, because the client does not say when a one-way message has left. The first of these has an
answer: the client drops one-way messages while it is still connecting.
"""

from __future__ import annotations

import sys

from rocketmq.client import Message, Producer

NUMBERS = range(12)
KEYS = 3
LARGE = 100_000


def main(way: str, namesrv: str, topic: str) -> None:
    producer = Producer("cpp_senders")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    if way == "batch":
        producer.send_batch([message_of(topic, str(n)) for n in NUMBERS])
    for n in NUMBERS:
        if way == "oneway" and n == 0:
            producer.send_sync(message_of(topic, str(n)))
        elif way == "oneway":
            producer.send_oneway(message_of(topic, str(n)))
        elif way == "by_key":
            producer.send_orderly(message_of(topic, str(n)), n % KEYS)
        elif way == "large":
            producer.send_sync(message_of(topic, f"{n} ".ljust(LARGE, "x")))
    sys.stdin.read()
    producer.shutdown()


def message_of(topic: str, body: str) -> Message:
    message = Message(topic)
    message.set_body(body)
    return message


if __name__ == "__main__":
    main(*sys.argv[1:])
