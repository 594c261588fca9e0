"""The messages of the benchmark: all of one kind, or mixed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum

from store.message.batch import QueueRun
from store.message.record import PendingMessage, make_pending_message

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
BORN_MS = 1_700_000_000_000
BATCH = 64
BATCH_BYTES = 4 << 20
SEED = 16

TOPICS = (
    "orders",
    "payments",
    "invoices",
    "stock",
    "shipping.events",
    "mail",
    "audit",
    "clicks-eu",
)
QUEUES = 4
TAGS = ("", "created", "paid", "cancelled", "Rücksendung", "v2")
BODY_SIZES = (100, 2_000)
KEYS_MAX = 2


class Messages(StrEnum):
    """The kind of messages in the data of the benchmark."""

    UNIFORM = "uniform"
    MIXED = "mixed"


def batches(messages: Messages, body_size: int) -> Iterator[list[QueueRun]]:
    """The runs of one entry after the other, without end. They are the same each time."""
    return uniform_batches(body_size) if messages is Messages.UNIFORM else mixed_batches()


def uniform_batches(body_size: int) -> Iterator[list[QueueRun]]:
    """One topic, one queue, one property, bodies of one size."""
    body = bytes(range(256)) * (body_size // 256 + 1)
    count = max(1, min(BATCH, BATCH_BYTES // body_size))
    first = 0
    while True:
        messages = [
            make_pending_message(
                "bench",
                body[number : number + body_size],
                f"UNIQ_KEY\x01{first + number:032X}\x02".encode(),
                born_timestamp=BORN_MS,
                born_host=HOST,
            )
            for number in range(count)
        ]
        yield [QueueRun("bench", 0, first, messages)]
        first += count


def mixed_batches() -> Iterator[list[QueueRun]]:
    """Messages of random topics, queues, tags and sizes, with 0 to 2 keys."""
    drawn = random.Random(SEED)
    pool = drawn.randbytes(1 << 16)
    ends = {(topic, queue): 0 for topic in TOPICS for queue in range(QUEUES)}
    number = 0
    while True:
        gathered: dict[tuple[str, int], list[PendingMessage]] = {}
        for _ in range(BATCH):
            queue = (drawn.choice(TOPICS), drawn.randrange(QUEUES))
            gathered.setdefault(queue, []).append(mixed_message(drawn, pool, queue[0], number))
            number += 1
        runs = []
        for queue, messages in gathered.items():
            runs.append(QueueRun(*queue, ends[queue], messages))
            ends[queue] += len(messages)
        yield runs


def mixed_message(drawn: random.Random, pool: bytes, topic: str, number: int) -> PendingMessage:
    size = drawn.randint(*BODY_SIZES)
    at = drawn.randrange(len(pool) - size)
    properties = f"UNIQ_KEY\x01{number:032X}\x02"
    tag = drawn.choice(TAGS)
    if tag:
        properties += f"TAGS\x01{tag}\x02"
    keys = [f"{topic}-{drawn.randrange(10**6)}" for _ in range(drawn.randint(0, KEYS_MAX))]
    if keys:
        properties += f"KEYS\x01{' '.join(keys)}\x02"
    if drawn.random() < 0.5:
        properties += f"region\x01{drawn.choice(('eu', 'us-east', 'ap'))}\x02"
    return make_pending_message(
        topic,
        pool[at : at + size],
        f"{properties}WAIT\x01true\x02".encode(),
        born_timestamp=BORN_MS + number,
        born_host=HOST,
    )
