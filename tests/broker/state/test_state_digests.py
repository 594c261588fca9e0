"""The digests of the state: kept as it changes, they are those of the whole state at any time."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.state import state_digests
from broker.state.commands import (
    CheckTransaction,
    Command,
    CommitOffset,
    DeleteGroup,
    DeleteTopic,
    EndTransaction,
    Expire,
    PopAck,
    PopChange,
    PopForget,
    PopReceive,
    PopWait,
    PutAccess,
    PutGroup,
    PutSetting,
    PutTopic,
    PutTopicRetention,
    Recall,
    Schedule,
    StoreRequests,
    Timer,
    Trim,
    encode_commands,
)
from broker.state.pop_queues import pack_runs
from broker.state.state_digests import StateDigests
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import HALF_TOPIC, GroupConfig, TopicConfig, system_topics
from simulator.engine.disk import SimulatedFileSystem
from store.errors import DataFormatError
from store.index.consume_queues import ConsumeQueues
from store.log.entry import HEADER_SIZE, EntryKind, build_entry
from store.message.batch import QUEUE_ROW, QueueRun, encode_batch
from store.message.record import make_pending_message
from store.message.scheduled_topics import TIMER_TOPIC
from store.state.machine_state import decode_machine_state
from store.state.state_digests import (
    DIGESTS_BYTES,
    TABLES,
    by_table,
    digests_of,
    judge,
    pack_reports,
    unpack_reports,
)
from tests.store.small_logs import simulated
from tests.support.search_effort import searching

SEGMENT = 4096
HOST = bytes(8)
SYSTEM = system_topics("DefaultCluster", "broker-a")
NAMES = st.sampled_from(("orders", "bills", "DefaultCluster"))
NUMBERS = st.integers(0, 3)
RUNS = st.lists(st.integers(0, 9), max_size=4, unique=True).map(
    lambda some: pack_runs(sorted(some))
)

COMMANDS = st.one_of(
    st.builds(lambda name, n: PutTopic.of(TopicConfig(name, n, n), n), NAMES, NUMBERS),
    st.builds(DeleteTopic, NAMES, NUMBERS),
    st.builds(PutTopicRetention, NAMES, NUMBERS, NUMBERS),
    st.builds(Trim, NAMES, NUMBERS, NUMBERS),
    st.builds(lambda name, n: PutGroup.of(GroupConfig(name, retry_queues=n), n), NAMES, NUMBERS),
    st.builds(DeleteGroup, NAMES, st.booleans(), NUMBERS),
    st.builds(CommitOffset, NAMES, NAMES, NUMBERS, NUMBERS),
    st.builds(lambda n: Expire(n * SEGMENT // 2), st.integers(0, 9)),
    st.builds(Schedule, NUMBERS, NUMBERS),
    st.builds(Timer, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Recall, NUMBERS, NUMBERS),
    st.builds(EndTransaction, NUMBERS, st.integers(0, 5000)),
    st.builds(CheckTransaction, NUMBERS, st.integers(0, 5000), NUMBERS),
    st.builds(PutSetting, NAMES, NAMES),
    st.builds(PutAccess, NAMES, st.binary(max_size=2)),
    st.builds(PopReceive, NAMES, NAMES, NUMBERS, NUMBERS, RUNS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(PopWait, NAMES, NAMES, NUMBERS, NUMBERS, RUNS),
    st.builds(PopAck, NAMES, NAMES, NUMBERS, RUNS),
    st.builds(PopChange, NAMES, NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(PopForget, NAMES, NAMES, NUMBERS),
    st.builds(lambda keys: StoreRequests(bytes(4) + keys), st.binary(min_size=4, max_size=4)),
)
MESSAGES = st.tuples(
    st.sampled_from(("orders", "bills", HALF_TOPIC, TIMER_TOPIC)), NUMBERS, st.integers(1, 3)
)
ENTRIES = st.lists(
    st.tuples(st.lists(MESSAGES, max_size=2), st.lists(COMMANDS, max_size=3)), max_size=25
)


class Log:
    """A machine, and entries for it one after the other."""

    def __init__(self) -> None:
        self._fs = SimulatedFileSystem(Random(1))
        self.machine = BrokerStateMachine.open(self._fs, "/data", SEGMENT)
        self.machine.add_system_topics(SYSTEM)
        self.machine.restore(None)
        self._index = count()
        self._ends: dict[tuple[str, int], int] = {}
        self._position = 0

    def add(self, messages: list[tuple[str, int, int]], commands: list[Command]) -> None:
        runs = []
        for topic, queue_id, number in {each[:2]: each for each in messages}.values():
            first = self._ends.get((topic, queue_id), 0)
            self._ends[topic, queue_id] = first + number
            staged = make_pending_message(topic, b"b", b"", born_timestamp=1, born_host=HOST)
            runs.append(QueueRun(topic, queue_id, first, [staged] * number))
        index = next(self._index)
        if self._position % SEGMENT > SEGMENT // 2:
            self._position += SEGMENT - self._position % SEGMENT
        body = encode_batch(self._position, 1000 + index, HOST, runs, encode_commands(commands))
        entry = build_entry(EntryKind.DATA, index, 1, self._position, 0, body)
        self._position += HEADER_SIZE + len(entry.body)
        self.machine.apply(entry)

    def save(self) -> None:
        """As a checkpoint does it."""
        work = self.machine.begin_checkpoint()
        work.flush()
        work.finish(saved=True)
        self.saved = work.state

    def opened_again(self) -> BrokerStateMachine:
        """With what was saved."""
        machine = BrokerStateMachine.open(self._fs, "/data", SEGMENT)
        machine.add_system_topics(SYSTEM)
        machine.restore(self.saved)
        return machine


@searching(40)
@given(ENTRIES)
def test_digests_kept_as_the_state_changes_are_those_of_its_checkpoint(
    entries: list[tuple[list[tuple[str, int, int]], list[Command]]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_digests, "RECHECKED_ITEMS", 0)  # what nobody touched is not looked at
        log = Log()
        for place, (messages, commands) in enumerate(entries):
            log.add(messages, commands)
            if place % 4 == 0:
                log.machine.digests.packed()
        log.save()
        expected = by_table(digests_of(decode_machine_state(log.saved)))
        assert by_table(log.machine.digests.packed()) == expected
        assert by_table(log.opened_again().digests.packed()) == expected


def filled() -> Log:
    log = Log()
    topics = [PutTopic.of(TopicConfig(f"t{place}"), 1) for place in range(5)]
    offsets = [CommitOffset(f"g{place}", "t1", 0, 1) for place in range(200)]
    log.add([("t1", 0, 3), (HALF_TOPIC, 0, 2)], [*topics, *offsets])
    return log


def changed(log: Log, before: bytes) -> list[str]:
    now, was = by_table(log.machine.digests.packed()), by_table(before)
    return [name for name in TABLES if now[name] != was[name]]


def test_each_command_changes_the_digest_of_its_own_table_alone() -> None:
    log = filled()
    for command, table in (
        (CommitOffset("g1", "t1", 0, 2), "offsets"),
        (PutTopic.of(TopicConfig("t1", 9), 2), "topics"),
        (PutTopicRetention("t1", 1000, 3), "topics"),
        (Trim("t1", 0, 2), "queues"),
        (PutGroup.of(GroupConfig("g"), 2), "groups"),
        (PutSetting("a", "b"), "settings"),
        (PutAccess("a", b"b"), "settings"),
        (PopReceive("g1", "t1", 0, 2, pack_runs([0, 1]), 7, 9, 8), "offsets"),
        (PopChange("g1", "t1", 0, 1, 8, 10, 9), "offsets"),
        (PopAck("g1", "t1", 0, pack_runs([1])), "offsets"),
        (StoreRequests(bytes(4)), "requests"),
        (Schedule(1, 1), "waiting"),
        (Timer(1, 1, 0), "waiting"),
        (Recall(9, 3), "waiting"),
        (Recall(8, 4), "waiting"),
        (Timer(8, 4, 1), "waiting"),
    ):
        before = log.machine.digests.packed()
        log.add([], [command])
        assert {*changed(log, before)} - {"log"} == {table}
    before = log.machine.digests.packed()
    log.add([("t1", 0, 1)], [])
    assert changed(log, before) == ["queues", "log"]


def test_what_changed_without_a_command_is_found_a_few_items_with_each_proof() -> None:
    log = filled()
    before = log.machine.digests.packed()
    log.machine.state.offsets["g7", "t1"][0] = 5
    log.machine.state.topics.pop("t3")
    seen = [changed(log, before) for _ in range(2 * (200 // state_digests.RECHECKED_ITEMS) + 3)]
    assert "topics" in seen[1]
    assert seen[-1] == ["topics", "offsets"]


def report(**tables: int) -> bytes:
    return b"".join(tables.get(name, 0).to_bytes(8, "big") for name in TABLES)


def test_more_than_half_of_the_voters_are_right_table_by_table() -> None:
    verdict = judge({"a": report(offsets=1), "b": report(topics=2), "c": report()})
    assert verdict.decided
    assert verdict.wrong == {"a": ("offsets",), "b": ("topics",)}
    assert verdict.contested == ()
    assert verdict.differences(report()) == ()
    assert verdict.differences(report(queues=1)) == ("queues",)


def test_who_said_nothing_counts_as_a_voter_and_is_not_accused() -> None:
    verdict = judge({"a": report(), "b": report(), "c": b""})
    assert verdict.decided
    assert verdict.wrong == {}
    verdict = judge({"a": report(), "b": b"", "c": b""})
    assert not verdict.decided
    assert verdict.contested == ()


def test_half_of_the_voters_are_no_majority() -> None:
    verdict = judge({"a": report(offsets=1), "b": report()})
    assert verdict.contested == ("offsets",)
    assert verdict.wrong == {}
    assert not verdict.decided
    four = judge({name: report(offsets=name in "ab") for name in "abcd"})
    assert four.contested == ("offsets",)


def test_digests_of_another_length_say_nothing() -> None:
    verdict = judge({"a": report(), "b": report(), "c": bytes(DIGESTS_BYTES + 8)})
    assert verdict.decided
    assert verdict.wrong == {}
    assert verdict.differences(b"") == TABLES


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01", b"\x91\x01", b"\x91\x92\x01\x02"])
def test_reports_that_cannot_be_read_are_told(data: bytes) -> None:
    with pytest.raises(DataFormatError):
        unpack_reports(data)


def test_reports_are_read_as_they_were_packed() -> None:
    reports = {"b": report(), "a": b""}
    assert unpack_reports(pack_reports(reports)) == reports


def test_a_queue_that_the_table_has_lost_is_not_in_the_digest() -> None:
    """A checkpoint would not have it either. Another object with its content is the same state."""
    queues = ConsumeQueues(simulated(1), "/data/consumequeue")
    table = StateDigests(BrokerStateMachine.open(simulated(1), "/data", SEGMENT), queues).queues
    for queue_id in range(3):
        queues.get_or_create("orders", queue_id).append(0, QUEUE_ROW.pack(0, 200, 0))
    table.begin()
    whole = table.total()
    of_topic = queues.of_topic("orders")
    assert isinstance(of_topic, dict)
    del of_topic[1]
    assert [table.total() for _ in range(3)][-1] != whole
    again = queues.get_or_create("orders", 1)
    again.append(0, QUEUE_ROW.pack(0, 200, 0))
    table.dirty[again] = None
    assert [table.total() for _ in range(3)][-1] == whole
