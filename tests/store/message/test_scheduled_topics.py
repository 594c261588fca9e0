"""Rows of messages that wait hold the time of their delivery, and checks know that they must."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from store.message.batch import QueueRun
from store.message.record import make_pending_message
from store.message.scheduled_topics import SCHEDULE_TOPIC, TIMER_TOPIC, row_code, with_deliver_times
from store.verify import Finding, FindingKind, verify_replica
from tests.store.sample_replica import HOST, STORED_MS, Replica, message
from tests.store.small_logs import simulated

DUE_MS = STORED_MS + 86_400_000


def scheduled(level: int, count: int) -> QueueRun:
    messages = [message(number, SCHEDULE_TOPIC) for number in range(count)]
    return QueueRun(
        SCHEDULE_TOPIC, level - 1, 0, with_deliver_times(messages, level - 1, STORED_MS)
    )


def timed(queue_id: int, count: int) -> QueueRun:
    properties = f"TAGS\x01a\x02TIMER_OUT_MS\x01{DUE_MS}\x02".encode()
    staged = make_pending_message(TIMER_TOPIC, b"m", properties, born_timestamp=1, born_host=HOST)
    return QueueRun(TIMER_TOPIC, queue_id, 0, [staged._replace(tags_code=DUE_MS)] * count)


def findings(runs: list[QueueRun]) -> list[Finding]:
    fs = simulated()
    replica = Replica(fs)
    replica.send(runs)
    replica.mark()
    replica.close()
    return verify_replica(fs, replica.directory).findings


def test_messages_that_wait_are_no_finding() -> None:
    plain = QueueRun("orders", 0, 0, [message(number) for number in range(5)])
    assert findings([scheduled(2, 6), plain, timed(7, 16), timed(8, 3)]) == []


@pytest.mark.parametrize("count", [1, 16])
@pytest.mark.parametrize("make", [scheduled, timed])
def test_a_wrong_deliver_time_is_found(make: Callable[[int, int], QueueRun], count: int) -> None:
    run = make(3, count)
    last = run.messages[-1]
    messages = [*run.messages[:-1], last._replace(tags_code=last.tags_code + 1)]
    assert [each.kind for each in findings([run._replace(messages=messages)])] == [
        FindingKind.BATCH
    ]


@pytest.mark.parametrize(
    ("topic", "queue_id", "properties", "code"),
    [
        (SCHEDULE_TOPIC, 0, b"", 5_000 + 1_000),
        (SCHEDULE_TOPIC, 17, b"", 5_000 + 7_200_000),
        (SCHEDULE_TOPIC, 18, b"", 77),
        (TIMER_TOPIC, 0, b"TIMER_OUT_MS\x01123\x02", 123),
        (TIMER_TOPIC, 0, b"TIMER_OUT_MS\x01-5\x02", 77),
        (TIMER_TOPIC, 0, b"TIMER_OUT_MS\x01" + b"9" * 30 + b"\x02", 77),
        (TIMER_TOPIC, 0, b"", 77),
    ],
)
def test_what_no_leader_has_put_there_has_the_code_of_its_tag(
    topic: str, queue_id: int, properties: bytes, code: int
) -> None:
    assert row_code(topic, queue_id, properties, 5_000, 77) == code
