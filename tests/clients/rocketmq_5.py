"""Apache's Python client of RocketMQ 5, in a process of its own; one JSON object a line.

    rocketmq_5.py produce KIND ENDPOINTS TOPIC COUNT     {"n", "id", "at"} for each message
    rocketmq_5.py simple ENDPOINTS TOPIC GROUP COUNT     {"n", "attempt", ...} for each, and its ack
    rocketmq_5.py push ENDPOINTS TOPIC GROUP COUNT       likewise; odd numbers fail at first
    rocketmq_5.py transactions ENDPOINTS TOPIC COUNT     every third stays open until it is asked
    rocketmq_5.py recall ENDPOINTS TOPIC COUNT           delayed messages; odd numbers are recalled

KIND is normal, fifo or delay. It ends when its numbers have come, and its input has ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

AWAIT_SECONDS = 2
INVISIBLE_SECONDS = 20
RECALL_SECONDS = 15
PAUSE_SECONDS = 0.03
"""Between two messages. A running consumer gets the next one within this time."""

TRIES = int(os.environ.get("TRIES", "60"))
TLS = bool(os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"))
"""The file of the authorities that the client trusts."""

lock = threading.Lock()


def tell(**told: Any) -> None:
    with lock:
        print(json.dumps(told), flush=True)


def configuration(endpoints: str) -> ClientConfiguration:
    keys = os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET_KEY", "")
    return ClientConfiguration(endpoints, Credentials(*keys))


def message(topic: str, number: int, kind: str = "normal") -> Message:
    made = Message()
    made.topic, made.body = topic, b"%d" % number
    made.tag, made.keys = f"tag-{number % 3}", f"key-{number}"
    made.add_property("number", str(number))
    if kind == "fifo":
        made.message_group = f"group-{number % 3}"
    elif kind == "delay":
        made.delivery_timestamp = int(time.time()) + 1
    return made


def sent(send: Any) -> Any:
    """Sends until it succeeds, as an application does that must not lose its message."""
    for _ in range(TRIES):
        try:
            return send()
        except Exception as error:  # noqa: BLE001 - an application goes on
            print(f"again: {error!r}", file=sys.stderr, flush=True)
            time.sleep(0.1)
    raise SystemExit("not acknowledged")


def produce(kind: str, endpoints: str, topic: str, count: str) -> None:
    producer = Producer(configuration(endpoints), (topic,), tls_enable=TLS)
    producer.startup()
    for number in range(int(count)):
        began = time.monotonic()
        receipt = sent(lambda n=number: producer.send(message(topic, n, kind)))
        now = time.monotonic()
        tell(n=number, id=receipt.message_id, at=now)
        time.sleep(max(began + PAUSE_SECONDS - now, 0))
    producer.shutdown()


def recall(endpoints: str, topic: str, count: str) -> None:
    producer = Producer(configuration(endpoints), (topic,))
    producer.startup()
    handles = []
    for number in range(int(count)):
        made = message(topic, number)
        made.delivery_timestamp = int(time.time()) + RECALL_SECONDS
        receipt = sent(lambda m=made: producer.send(m))
        handles.append(receipt.recall_handle)
        tell(n=number, id=receipt.message_id)
    for number in range(1, int(count), 2):
        tell(recalled=number, id=sent(lambda n=number: producer.recall_message(topic, handles[n])))
    time.sleep(RECALL_SECONDS)
    try:
        producer.recall_message(topic, handles[0])
    except Exception as error:  # noqa: BLE001 - it is told
        tell(refused=str(error))
    producer.shutdown()


class Checker(TransactionChecker):  # type: ignore[misc]  # the client has no types
    def check(self, asked: Message) -> Any:
        number = int(asked.body)
        tell(asked=number)
        return TransactionResolution.COMMIT if number % 2 == 0 else TransactionResolution.ROLLBACK


def transactions(endpoints: str, topic: str, count: str) -> None:
    """Commits even numbers and rolls back odd ones. Of every third, the checker says it later."""
    producer = Producer(configuration(endpoints), (topic,), checker=Checker())
    producer.startup()
    for number in range(int(count)):
        transaction = producer.begin_transaction()
        sent(lambda n=number, t=transaction: send_half(producer, topic, n, t))
        if number % 3:
            end = transaction.commit if number % 2 == 0 else transaction.rollback
            try:
                end()
            except Exception as error:  # noqa: BLE001 - an application goes on
                print(f"asked later: {error!r}", file=sys.stderr, flush=True)
        tell(n=number)
    sys.stdin.read()
    producer.shutdown()


def send_half(producer: Producer, topic: str, number: int, transaction: Any) -> Any:
    transaction.__dict__["_Transaction__message"] = None  # a failed try has left its message
    return producer.send(message(topic, number), transaction)


def described(got: Message) -> dict[str, Any]:
    return {
        "n": int(got.body),
        "at": time.monotonic(),
        "id": got.message_id,
        "attempt": got.delivery_attempt,
        "tag": got.tag,
        "keys": sorted(got.keys),
        "properties": got.properties,
        "group": got.message_group,
        "born_host": got.born_host,
        "born": got.born_timestamp,
    }


def expression() -> FilterExpression:
    kind, text = os.environ.get("FILTER", "TAG:*").split(":", 1)
    return FilterExpression(text, 2 if kind == "SQL" else 1)


def simple(endpoints: str, topic: str, group: str, count: str) -> None:
    consumer = SimpleConsumer(
        configuration(endpoints),
        group,
        {topic: expression()},
        await_duration=AWAIT_SECONDS,
        tls_enable=TLS,
    )
    consumer.startup()
    tell(ready=True)
    seen: set[int] = set()
    unknown: set[int] = set()  # an ack that was lost may have been stored, then nothing comes again
    ends = time.monotonic() + 120
    while len(seen | unknown) < int(count) and time.monotonic() < ends:
        try:
            received = consumer.receive(16, INVISIBLE_SECONDS)
        except Exception as error:  # noqa: BLE001 - an application goes on
            print(f"again: {error!r}", file=sys.stderr, flush=True)
            continue
        for got in received:
            try:
                consumer.ack(got)
            except Exception as error:  # noqa: BLE001 - an application goes on
                print(f"no ack: {error!r}", file=sys.stderr, flush=True)
                unknown.add(int(got.body))
                tell(**described(got), acked=False)
            else:
                seen.add(int(got.body))
                tell(**described(got), acked=True)
    if os.environ.get("STAY"):  # what comes again, would come now
        linger = time.monotonic() + float(os.environ["STAY"])
        while time.monotonic() < linger:
            for got in consumer.receive(16, INVISIBLE_SECONDS) or ():
                tell(**described(got), acked=False, late=True)
    consumer.shutdown()


class Listener(MessageListener):  # type: ignore[misc]  # the client has no types
    def __init__(self, count: int) -> None:
        self.wanted = count
        self.done = threading.Event()
        self.seen: set[int] = set()

    def consume(self, got: Message) -> Any:
        number = int(got.body)
        fails = os.environ.get("FAIL") and number % 2 == 1 and got.delivery_attempt == 1
        tell(**described(got), acked=not fails)
        if fails:
            return ConsumeResult.FAILURE
        self.seen.add(number)
        if len(self.seen) >= self.wanted:
            self.done.set()
        return ConsumeResult.SUCCESS


def push(endpoints: str, topic: str, group: str, count: str) -> None:
    listener = Listener(int(count))
    consumer = PushConsumer(configuration(endpoints), group, listener, {topic: expression()})
    consumer.startup()
    tell(ready=True)
    if not listener.done.wait(120):
        raise SystemExit(f"not all has come: {sorted(set(range(int(count))) - listener.seen)}")
    time.sleep(float(os.environ.get("STAY", "1")))
    consumer.shutdown()


if __name__ == "__main__":
    modes: dict[str, Any] = {
        "produce": produce,
        "simple": simple,
        "push": push,
        "transactions": transactions,
        "recall": recall,
    }
    modes[sys.argv[1]](*sys.argv[2:])
    os._exit(0)  # the client leaves threads behind
