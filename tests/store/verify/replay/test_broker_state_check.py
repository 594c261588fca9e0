"""The broker's state that the check makes of a log is the one that the broker makes of it."""

from __future__ import annotations

import pickle
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from broker.state.broker_state import BrokerState
from broker.state.commands import StoreRequests, decode_commands
from broker.state.open_transactions import open_transaction_of
from broker.state.pop_queues import pack_runs
from broker.topics_and_groups import HALF_TOPIC
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.record import PendingMessage, decode_record, make_pending_message
from store.message.scheduled_topics import TIMER_TOPIC
from store.verify.state.broker_state import (
    REQUESTS_BYTES_MAX,
    BrokerEffects,
    BrokerTables,
    decode_fields,
    first_difference,
    same,
)
from tests.support.search_effort import searching

STORED_MS = 1_700_000_000_000
HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
small = st.integers(0, 3)
names = st.sampled_from(["a", "b", "TBW102"])
runs = st.lists(st.integers(0, 9), max_size=4, unique=True).map(
    lambda all_: pack_runs(sorted(all_))
)
commands = st.one_of(
    st.tuples(st.just("topic"), names, small, small, small, small, st.booleans(), small),
    st.tuples(st.just("delete-topic"), names, small),
    st.tuples(
        st.just("group"), names, st.booleans(), st.booleans(), st.booleans(), small, small, small,
        small, st.booleans(), small,
    ),
    st.tuples(st.just("delete-group"), names, st.booleans(), small),
    st.tuples(st.just("offset"), names, names, small, small),
    st.tuples(st.just("expire"), st.integers(0, 5000)),
    st.tuples(st.just("schedule"), small, small),
    st.tuples(st.just("timer"), small, small, small),
    st.tuples(st.just("recall"), small, small),
    st.tuples(st.just("end-transaction"), small, st.sampled_from([48, 200, 1000])),
    st.tuples(st.just("check-transaction"), small, st.sampled_from([48, 200, 1000]), small),
    st.tuples(st.just("setting"), names, names),
    st.tuples(st.just("access"), names, st.binary(max_size=2)),
    st.tuples(st.just("pop-receive"), names, names, small, small, runs, small, small, small),
    st.tuples(st.just("pop-wait"), names, names, small, small, runs),
    st.tuples(st.just("pop-ack"), names, names, small, runs),
    st.tuples(st.just("pop-change"), names, names, small, small, small, small, small),
    st.tuples(st.just("pop-forget"), names, names, small),
    st.tuples(st.just("requests"), st.binary(max_size=12).map(lambda data: data[: len(data) & ~3])),
)  # fmt: skip
topics = st.sampled_from(["orders", HALF_TOPIC, TIMER_TOPIC])
entries = st.lists(
    st.tuples(st.lists(topics, max_size=2, unique=True), st.lists(commands, max_size=4)),
    max_size=14,
)


def half(topic: str, number: int) -> PendingMessage:
    properties = f"PGROUP\x01g{number}\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01{number}\x02"
    return make_pending_message(
        topic, b"body", properties.encode(), born_timestamp=STORED_MS, born_host=HOST
    )


def apply_by_broker(state: BrokerState, body: bytes, position: int) -> None:
    """As :class:`broker.state.state_machine.BrokerStateMachine` does it."""
    batch = decode_batch(body)
    for run in batch.runs:
        if run.topic == TIMER_TOPIC:
            state.timer = state.timer.stored(run.row_count)
        elif run.topic == HALF_TOPIC:
            at = int.from_bytes(batch.rows[20 * run.first_row :][:8], "big")
            start = int.from_bytes(batch.rows[:8], "big")
            record = decode_record(batch.records, at - start)
            state.transactions[run.first_offset] = open_transaction_of(record)
    if batch.runs:
        state.store_timestamp_ms = STORED_MS + position
    for command in decode_commands(batch.commands):
        if isinstance(command, StoreRequests):
            state.requests.add(position, command.keys)
        state.apply(command)


@searching(150)
@given(log=entries, cut=st.integers(0, 14))
def test_all_commands_make_the_state_that_the_broker_makes(
    log: list[tuple[list[str], list[list[object]]]], cut: int
) -> None:
    state, tables = BrokerState(), BrokerTables()
    offsets: dict[str, int] = {}
    effects, last_ms = BrokerEffects(), None
    for number, (sent, told) in enumerate(log):
        position = 1000 * number
        runs = []
        for topic in sent:
            runs.append(QueueRun(topic, 0, offsets.get(topic, 0), [half(topic, number)]))
            offsets[topic] = offsets.get(topic, 0) + 1
        packed = msgpack.packb(told) if told else b""
        body = b"".join(encode_batch(position, STORED_MS + position, HOST, runs, packed))
        apply_by_broker(state, body, position)
        effects.take(decode_batch(body), msgpack.unpackb(packed) if told else [], position)
        last_ms = STORED_MS + position if runs else last_ms
        if number == cut:
            tables.apply(pickle.loads(pickle.dumps(effects)), last_ms)
            tables = BrokerTables.decode(msgpack.packb(tables.fields()))
            effects, last_ms = BrokerEffects(), None
    tables.apply(effects, last_ms)
    found = decode_fields(state.to_bytes())
    assert same(tables.fields(), found), first_difference(tables.fields(), found)


@searching(20)
@given(sizes=st.lists(st.integers(0, 60_000), max_size=12), cut=st.integers(0, 12))
def test_as_many_requests_are_known_as_the_broker_knows(sizes: list[int], cut: int) -> None:
    state, tables, effects = BrokerState(), BrokerTables(), BrokerEffects()
    batch = decode_batch(b"".join(encode_batch(0, STORED_MS, HOST, [], b"")))
    for number, size in enumerate(sizes):
        keys = bytes((number,)) * (4 * size)
        state.requests.add(number, keys)
        effects.take(batch, [["requests", keys]], number)
        if number == cut:
            tables.apply(effects, None)
            effects = BrokerEffects()
    tables.apply(effects, None)
    assert tables.requests == state.requests.data
    assert len(tables.requests) <= REQUESTS_BYTES_MAX


def test_a_command_that_is_not_known_leaves_the_state_unknown() -> None:
    effects = BrokerEffects()
    batch = decode_batch(b"".join(encode_batch(0, STORED_MS, HOST, [], b"")))
    effects.take(batch, [["of-tomorrow", 1]], 0)
    assert "of-tomorrow" in effects.unknown


def test_expiry_looks_at_each_open_transaction_once() -> None:
    """As the broker: each look at the first item of a dictionary passes over those that were
    removed before it."""

    class Counted(dict[int, list[Any]]):
        looks = 0

        def items(self) -> Any:
            self.looks += 1
            return super().items()

    tables, effects = BrokerTables(), BrokerEffects()
    opened = Counted({offset: [100 * offset, "payers", 0, -1, 0, 0] for offset in range(9)})
    tables.transactions = opened
    effects.take(None, [["expire", 500]], 1000)
    tables.apply(effects, None)
    assert [*opened] == [5, 6, 7, 8]
    assert opened.looks == 1
