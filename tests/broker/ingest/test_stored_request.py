"""A request in the entry of an earlier one: found where all its messages stand, in linear time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ingest import stored_request as module
from broker.ingest.stored_request import stored_request
from store.io.filesystem import Bytes
from store.log.entry import HEADER_SIZE
from store.message.batch import QueueRun, encode_batch
from store.message.record import (
    MessageRecord,
    PendingMessage,
    decode_record,
    make_pending_message,
)

STORED_MS = 1_000
KEYS = {b"a": b"one", b"b": b"one", b"c": b"two"}
"""The unique key of each body; those of one hash are possible beginnings."""

bodies = st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=12)


def sent(body: bytes, topic: str = "orders") -> PendingMessage:
    properties = b"UNIQ_KEY\x01%b\x02" % KEYS[body]
    return make_pending_message(topic, body, properties, born_timestamp=1, born_host=bytes(8))


def found_in(
    runs: list[QueueRun], request: Sequence[bytes], since_ms: int = 0
) -> MessageRecord | None:
    parts = encode_batch(0, STORED_MS, bytes(8), runs, b"")
    wanted = [sent(body) for body in request]
    return stored_request(b"".join(map(bytes, parts)), HEADER_SIZE, "orders", wanted, since_ms)


def run(stored: Sequence[bytes], topic: str = "orders") -> QueueRun:
    return QueueRun(topic, 0, 0, [sent(body, topic) for body in stored])


@given(bodies, bodies)
def test_it_is_where_all_its_messages_stand(stored: list[bytes], request: list[bytes]) -> None:
    found = found_in([run(stored)], request)
    at = b"".join(stored).find(b"".join(request))
    assert (-1 if found is None else found.queue_offset) == at


@given(bodies, bodies, bodies)
def test_a_message_of_another_topic_is_none_of_its(
    before: list[bytes], other: list[bytes], behind: list[bytes]
) -> None:
    runs = [run(before), run(other, "bills"), run(behind)]
    assert found_in(runs, [*before, *behind]) is None


def test_records_that_are_too_old_do_not_count() -> None:
    assert found_in([run([b"a"])], [b"a"], STORED_MS) is not None
    assert found_in([run([b"a"])], [b"a"], STORED_MS + 1) is None


def test_each_record_is_read_once_though_all_messages_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def counting(records: Bytes, place: int) -> MessageRecord:
        read.append(place)
        return decode_record(records, place)

    monkeypatch.setattr(module, "decode_record", counting)
    assert found_in([run([b"a"] * 300)], [b"a"] * 150 + [b"b"]) is None
    assert len(read) == len(set(read)) == 300
