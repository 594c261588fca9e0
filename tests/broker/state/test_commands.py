"""The replicated commands: their bytes, and what they do to the state."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.state.broker_state import BrokerState, DataVersion, TimerProgress
from broker.state.commands import (
    Command,
    CommitOffset,
    DeleteGroup,
    DeleteTopic,
    Expire,
    PopAck,
    PopChange,
    PopForget,
    PopReceive,
    PopWait,
    Proof,
    PutAccess,
    PutGroup,
    PutSetting,
    PutTopic,
    PutTopicRetention,
    Recall,
    Schedule,
    Timer,
    Trim,
    decode_commands,
    encode_commands,
)
from broker.state.open_transactions import OpenTransaction
from broker.state.pop_queues import pack_runs
from broker.topics_and_groups import AUTO_CREATE_TOPIC, GroupConfig, TopicConfig, system_topics
from dledger.errors import InvariantError

names = st.text(alphabet="abcdef%_-", min_size=1, max_size=8)
numbers = st.integers(0, 2**31 - 1)
runs = st.lists(st.integers(0, 99), unique=True).map(lambda some: pack_runs(sorted(some)))
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(PutTopic, names, numbers, numbers, numbers, numbers, st.booleans(), numbers),
    st.builds(DeleteTopic, names, numbers),
    st.builds(PutTopicRetention, names, numbers, numbers),
    st.builds(Trim, names, numbers, numbers),
    st.builds(
        PutGroup,
        names,
        st.booleans(),
        st.booleans(),
        st.booleans(),
        numbers,
        numbers,
        numbers,
        numbers,
        st.booleans(),
        numbers,
    ),
    st.builds(DeleteGroup, names, st.booleans(), numbers),
    st.builds(CommitOffset, names, names, numbers, numbers),
    st.builds(Expire, numbers),
    st.builds(Schedule, numbers, numbers),
    st.builds(Timer, numbers, numbers, numbers),
    st.builds(Recall, numbers, numbers),
    st.builds(PutSetting, names, names),
    st.builds(PutAccess, names, st.binary()),
    st.builds(PopReceive, names, names, numbers, numbers, runs, numbers, numbers, numbers),
    st.builds(PopWait, names, names, numbers, numbers, runs),
    st.builds(PopAck, names, names, numbers, runs),
    st.builds(PopChange, names, names, numbers, numbers, numbers, numbers, numbers),
    st.builds(PopForget, names, names, numbers),
    st.builds(Proof, numbers, st.binary()),
)


@given(st.lists(commands))
def test_commands_come_back_as_they_were(given_commands: list[Command]) -> None:
    assert list(decode_commands(encode_commands(given_commands))) == given_commands


def test_no_command_costs_no_byte() -> None:
    assert encode_commands([]) == b""


@pytest.mark.parametrize(
    "array",
    [
        7,
        [7],
        [[]],
        [[7]],
        [["no-such-command"]],
        [["offset", "g", "t", 0]],
        [["offset", "g", "t", "0", 1]],
        [["offset", "g", "t", True, 1]],
    ],
)
def test_a_command_that_is_not_known_stops_the_node(array: object) -> None:
    with pytest.raises(InvariantError, match="committed command"):
        decode_commands(msgpack.packb(array))


@given(st.binary(max_size=64))
def test_any_other_bytes_are_refused_in_the_same_way(data: bytes) -> None:
    try:
        decode_commands(data)
    except InvariantError:
        return
    assert data == b"" or type(msgpack.unpackb(data)) is list


SYSTEM = system_topics("DefaultCluster", "broker-a")


@given(st.lists(commands, max_size=30))
def test_a_state_comes_back_from_its_bytes(given_commands: list[Command]) -> None:
    state = BrokerState()
    for command in given_commands:
        state.apply(command)
    again = BrokerState.from_bytes(state.to_bytes())
    assert again == state
    assert again.to_bytes() == state.to_bytes()


_NAMES = st.sampled_from(["DefaultCluster", "broker-a", "BenchmarkTest", "orders"])
_TOPIC_COMMANDS = st.one_of(
    st.builds(lambda name, queues: PutTopic.of(TopicConfig(name, queues), 5), _NAMES, st.just(1)),
    st.builds(lambda topic: PutTopic.of(topic, 6), st.sampled_from([*SYSTEM.values()])),
    st.builds(lambda name: DeleteTopic(name, 7), _NAMES),
    st.builds(lambda name: PutTopicRetention(name, 1000, 8), _NAMES),
)


@given(st.lists(_TOPIC_COMMANDS, max_size=12), st.integers(0, 12))
def test_topics_of_the_system_change_nothing_that_the_log_says(
    given_commands: list[Command], restored_after: int
) -> None:
    """A log of a time when their names were free gives the same bytes, restored or replayed."""
    before, now = BrokerState(), BrokerState()
    now.add_system_topics(SYSTEM)
    for number, command in enumerate(given_commands):
        if number == restored_after:
            now = BrokerState.from_bytes(before.to_bytes())
            now.add_system_topics(SYSTEM)
        before.apply(command)
        now.apply(command)
        assert now.to_bytes() == before.to_bytes()
        assert now.topics == {**SYSTEM, **before.topics}


def test_bytes_of_another_version_are_refused() -> None:
    with pytest.raises(InvariantError, match="has version 3, not 2"):
        BrokerState.from_bytes(msgpack.packb([3, [], [], [], [0, 0], [0, 0], 0, {}]))


def test_a_part_of_the_state_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvariantError, match=r"parts unknown to this version: \['dreams'\]"):
        BrokerState.from_bytes(msgpack.packb([2, [], [], [], [0, 0], [0, 0], 0, {"dreams": 1}]))


def test_a_state_from_before_there_were_parts_is_read() -> None:
    data = msgpack.packb(
        [1, [], [["g", True, True, True, 1, 16, 0, 1, True]], [], [1, 2], [3, 4], 5]
    )
    state = BrokerState.from_bytes(data)
    assert (state.groups, state.topics_version) == ({"g": GroupConfig("g")}, DataVersion(1, 2))
    assert (state.store_timestamp_ms, state.schedule) == (5, {})


def test_timed_messages_wait_until_they_are_delivered() -> None:
    state = BrokerState(timer=TimerProgress(500, 3).stored(2))
    state.apply(Timer(900, 4, 1))
    assert state.timer == TimerProgress(900, 4, 1)


def test_a_recall_counts_until_the_time_of_its_message_has_passed() -> None:
    state = BrokerState(timer=TimerProgress(500, 3))
    for deliver_ms, offset in ((900, 4), (500, 3), (499, 9), (900, 2), (900, 4), (500, 4)):
        state.apply(Recall(deliver_ms, offset))
    assert [*state.recalled] == [(500, 4), (900, 2), (900, 4)]
    assert BrokerState.from_bytes(state.to_bytes()) == state
    state.apply(Timer(900, 2, 0))
    assert [*state.recalled] == [(900, 4)]
    assert ((900, 4) in state.recalled, (900, 3) in state.recalled) == (True, False)
    state.apply(Timer(901, -1, 0))
    assert not state.recalled
    assert b"recalled" not in state.to_bytes()


def test_the_template_of_automatic_topics_is_there_from_the_beginning() -> None:
    assert BrokerState().topics == {AUTO_CREATE_TOPIC: TopicConfig(AUTO_CREATE_TOPIC, 8, 8, perm=7)}


def test_every_change_of_a_topic_counts_as_a_version() -> None:
    state = BrokerState()
    state.apply(PutTopic.of(TopicConfig("a"), 5))
    state.apply(PutTopic.of(TopicConfig("a", 8, 8), 6))
    state.apply(DeleteTopic("a", 7))
    state.apply(DeleteTopic("a", 8))
    assert state.topics_version == DataVersion(3, 7)


def test_a_topic_keeps_its_retention_when_it_is_changed_and_loses_it_when_it_is_deleted() -> None:
    state = BrokerState()
    state.apply(PutTopicRetention("a", 1000, 1))
    assert state.topics_version == DataVersion()
    state.apply(PutTopic.of(TopicConfig("a"), 5))
    state.apply(PutTopicRetention("a", 1000, 6))
    state.apply(PutTopic.of(TopicConfig("a", 8, 8), 7))
    assert state.topics["a"] == TopicConfig("a", 8, 8, retention_ms=1000)
    assert state.topics["a"].as_json()["attributes"] == {"retention.ms": "1000"}
    state.apply(DeleteTopic("a", 8))
    state.apply(PutTopic.of(TopicConfig("a"), 9))
    assert state.topics["a"] == TopicConfig("a")


def test_a_group_is_removed_with_its_offsets_only_where_that_is_said() -> None:
    state = BrokerState()
    state.apply(PutGroup.of(GroupConfig("g"), 1))
    state.apply(CommitOffset("g", "t", 0, 9))
    state.apply(CommitOffset("other", "t", 0, 3))
    state.apply(DeleteGroup("g", False, 2))
    assert state.groups == {}
    assert state.offset("g", "t", 0) == 9
    state.apply(DeleteGroup("g", True, 3))
    assert state.offset("g", "t", 0) is None
    assert state.offset("other", "t", 0) == 3


def test_expiry_looks_at_each_open_transaction_once() -> None:
    """Each look at the first item of a dictionary passes over those that were removed before it:
    65,536 transactions would take half a minute."""

    class Counted(dict[int, OpenTransaction]):
        looks = 0

        def items(self) -> Any:
            self.looks += 1
            return super().items()

    opened = Counted({offset: OpenTransaction(100 * offset, "payers", 0) for offset in range(9)})
    state = BrokerState(transactions=opened)
    state.apply(Expire(500))
    assert [*opened] == [5, 6, 7, 8]
    assert opened.looks == 1
