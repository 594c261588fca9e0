"""Gathering: what becomes one entry, when it is proposed, and how everybody hears of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.group_commit.batcher import ENTRY_BYTES, PIPELINE_ENTRIES
from broker.group_commit.pending_batch import NewMessages, QueueMessages
from broker.limits import PRODUCE
from broker.state.commands import (
    Command,
    CommitOffset,
    DeleteGroup,
    DeleteTopic,
    PutTopic,
    Schedule,
    decode_commands,
)
from broker.topics_and_groups import GroupConfig, TopicConfig
from dledger.errors import (
    BusyError,
    NoRoomError,
    NotLeaderError,
    OutcomeUnknownError,
    ProposeError,
)
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from store.errors import EntryTooLargeError
from store.message.batch import QUEUE_ROW
from store.message.record import iter_records, make_pending_message
from store.message.scheduled_topics import SCHEDULE_TOPIC
from tests.broker.group_commit.room import HOST, Heard, Room, message

FOLLOWS = Leadership(Role.FOLLOWER, 4, "n1", False)


@pytest.fixture
def small_room() -> Iterator[Room]:
    """Whose segments hold 8 KiB."""
    opened = Room(segment_size=8192)
    yield opened
    opened.loop.close()


def test_what_is_staged_in_one_turn_is_one_entry(room: Room) -> None:
    heard = [room.add(b"%d" % i, queue_id=i % 2) for i in range(5)]
    room.batcher.add_command(CommitOffset("g", "t", 0, 1))
    assert room.node.batches == []
    room.turn()
    assert len(room.node.batches) == 1
    assert room.node.bodies(0) == [b"0", b"2", b"4", b"1", b"3"]
    room.node.commit()
    assert [each.first_offset for each in heard] == [0, 0, 1, 1, 2]


def test_everybody_hears_where_the_record_lies(room: Room) -> None:
    heard = [room.add(b"x" * i, queue_id=i % 2) for i in range(5)]
    room.turn()
    room.node.commit()
    records = list(iter_records(room.node.batches[0].records))
    told = {each.positions[0]: len(b"x" * i) for i, each in enumerate(heard)}
    assert told == {record.position: len(record.body) for record in records}


def test_messages_of_one_request_are_never_parted(room: Room) -> None:
    room.add(b"before")
    heard = Heard()
    room.batcher.add_messages(NewMessages("t", 0, [message(b"a"), message(b"b")]), heard)
    room.turn()
    room.node.commit()
    assert (heard.first_offset, len(heard.positions)) == (1, 2)


def test_messages_and_commands_together_are_one_entry_however_full_the_last_one_is(
    room: Room,
) -> None:
    room.add(b"x" * (ENTRY_BYTES - 400))
    heard, ended = Heard(), list[ProposeError | None]()
    room.batcher.add_in_one_entry(
        [QueueMessages("t", 0, [message(b"a")], heard), QueueMessages("u", 3, [message(b"b")])],
        [Schedule(2, 7), PutTopic.of(TopicConfig("u"), 5)],
        ended.append,
    )
    assert room.batcher.topic("u") == TopicConfig("u")
    room.turn()
    assert [len(room.node.bodies(i)) for i in range(2)] == [1, 2]
    assert decode_commands(room.node.batches[1].commands) == [
        Schedule(2, 7),
        PutTopic.of(TopicConfig("u"), 5),
    ]
    room.node.commit()
    room.node.commit()
    assert (heard.first_offset, len(heard.positions), ended) == (1, 1, [None])


def test_an_entry_that_deletes_a_topic_has_no_messages(room: Room) -> None:
    """Its messages are applied before its commands, whichever came first."""
    deletion: list[Command] = [DeleteGroup("g", True, 1), DeleteTopic("t", 1)]
    creation = PutTopic.of(TopicConfig("t"), 2)
    room.add(b"before")
    room.batcher.add_in_one_entry((), deletion)
    room.batcher.add_command(creation)
    behind = room.add(b"behind")
    room.turn()
    while room.node.dones:
        room.node.commit()
        room.turn()
    entries = range(len(room.node.batches))
    commands = [list(decode_commands(batch.commands)) for batch in room.node.batches]
    assert [room.node.bodies(entry) for entry in entries] == [[b"before"], [], [b"behind"]]
    assert commands == [[], deletion, [creation]]
    assert behind.first_offset == 1


def test_what_is_too_much_together_is_not_staged_in_part(small_room: Room) -> None:
    large = [QueueMessages("t", queue, [message(b"x" * 5000)]) for queue in range(2)]
    with pytest.raises(EntryTooLargeError):
        small_room.batcher.add_in_one_entry(large, [Schedule(1, 1)])
    small_room.turn()
    assert small_room.node.batches == []


def test_a_scheduled_message_is_due_its_delay_after_it_is_stored(room: Room) -> None:
    for level in (1, 18):
        staged = make_pending_message(SCHEDULE_TOPIC, b"m", b"", born_timestamp=1, born_host=HOST)
        room.batcher.add_message(SCHEDULE_TOPIC, level - 1, staged, Heard())
    room.now_ms = 2_000_000
    room.turn()
    codes = [row[2] for row in QUEUE_ROW.iter_unpack(room.node.batches[0].rows)]
    assert codes == [2_001_000, 2_000_000 + 7_200_000]


def test_time_goes_on_slowly_where_the_wall_clock_is_behind(room: Room) -> None:
    room.applied.state.store_timestamp_ms = 5_000_000  # an earlier leader's clock was ahead
    assert room.batcher.now_ms() == 5_000_000
    room.turn(10)
    assert room.batcher.now_ms() == 5_005_000
    room.now_ms = 5_006_000
    assert room.batcher.now_ms() == 5_006_000
    room.now_ms -= 3_000
    assert room.batcher.now_ms() == 5_006_000
    room.turn(1)
    assert room.batcher.now_ms() == 5_006_500


def test_a_full_pipeline_makes_the_next_entry_grow(room: Room) -> None:
    for i in range(PIPELINE_ENTRIES):
        room.add(b"%d" % i)
        room.turn()
    room.add(b"late")
    room.turn()
    room.add(b"later")
    room.turn()
    assert len(room.node.batches) == PIPELINE_ENTRIES
    room.node.commit()
    room.turn()
    assert room.node.bodies(PIPELINE_ENTRIES) == [b"late", b"later"]


def test_an_entry_is_bounded_and_the_rest_goes_into_the_next(room: Room) -> None:
    third = b"x" * (ENTRY_BYTES // 3)
    for _ in range(4):
        room.add(third)
    room.turn()
    assert [len(room.node.bodies(i)) for i in range(2)] == [2, 2]
    assert [batch.runs[0].first_offset for batch in room.node.batches] == [0, 2]


def test_one_message_above_the_bound_is_an_entry_of_its_own(room: Room) -> None:
    room.add(b"small")
    room.add(b"x" * (ENTRY_BYTES + 1))
    room.turn()
    assert [len(room.node.bodies(i)) for i in range(2)] == [1, 1]


def test_what_no_segment_can_hold_is_refused_and_nothing_else_is(small_room: Room) -> None:
    kept = small_room.add(b"kept")
    with pytest.raises(EntryTooLargeError, match="exceeds the"):
        small_room.add(b"x" * 8192)
    small_room.turn()
    small_room.node.commit()
    assert kept.first_offset == 0


def test_too_much_that_waits_is_refused_as_busy(room: Room) -> None:
    for _ in range(PIPELINE_ENTRIES):
        room.add(b"in flight")
        room.turn()
    part = b"x" * (PRODUCE.pending_bytes_max // 8)
    for _ in range(7):
        room.add(part)
    with pytest.raises(BusyError, match="wait for a majority"):
        room.add(part)


def test_offsets_go_on_from_the_applied_state(room: Room) -> None:
    room.applied.ends["t", 0] = 41
    room.add(b"a")
    room.turn()
    room.add(b"b")
    room.turn()
    assert [batch.runs[0].first_offset for batch in room.node.batches] == [41, 42]


def test_a_new_term_begins_with_the_applied_state(room: Room) -> None:
    room.add(b"lost")
    room.turn()
    room.batcher.leadership_changed(FOLLOWS)
    room.applied.ends["t", 0] = 7
    room.batcher.leadership_changed(Leadership(Role.LEADER, 5, "n0", True))
    room.add(b"new")
    room.turn()
    assert room.node.batches[1].runs[0].first_offset == 7


def test_a_refused_proposal_gives_its_offsets_back(room: Room) -> None:
    room.node.refusal = NoRoomError(99)
    refused = room.add(b"a")
    room.turn()
    assert isinstance(refused.error, NoRoomError)
    room.node.refusal = None
    kept = room.add(b"b")
    room.turn()
    room.node.commit()
    assert kept.first_offset == 0


def test_with_a_refused_proposal_goes_what_was_staged_behind_it(room: Room) -> None:
    room.batcher.add_command(PutTopic.of(TopicConfig("new"), 1))
    room.add(b"x" * ENTRY_BYTES, topic="new")
    behind = room.add(b"behind", topic="new")
    room.node.refusal = BusyError(9, 8)
    room.turn()
    assert isinstance(behind.error, BusyError)
    assert room.batcher.topic("new") is None
    assert room.node.batches == []


def test_what_is_on_its_way_is_foreseen_although_a_later_entry_is_refused(room: Room) -> None:
    config = TopicConfig("made", 4, 4)
    room.applied.state.groups["gone"] = GroupConfig("gone")
    room.batcher.add_command(PutTopic.of(config, 1))
    room.batcher.add_command(DeleteGroup("gone", True, 1))
    room.turn()
    room.node.refusal = NoRoomError(5)
    assert room.batcher.topic("made") == config
    refused = room.add(b"x")
    room.batcher.add_command(DeleteTopic("made", 2))
    room.turn()
    assert isinstance(refused.error, NoRoomError)
    assert (room.batcher.topic("made"), room.batcher.group("gone")) == (config, None)


def test_with_the_leadership_everything_staged_is_refused(room: Room) -> None:
    asked: list[ProposeError | None] = []
    staged = room.add(b"a")
    room.batcher.add_command(CommitOffset("g", "t", 0, 1), asked.append)
    room.batcher.leadership_changed(FOLLOWS)
    assert isinstance(staged.error, NotLeaderError)
    assert str(asked[0]) == "not the leader; the leader is n1"
    with pytest.raises(NotLeaderError):
        room.add(b"b")
    room.turn()
    assert room.node.batches == []


def test_what_was_proposed_before_ends_as_the_node_says(room: Room) -> None:
    waiting = room.add(b"a")
    room.turn()
    room.batcher.leadership_changed(FOLLOWS)
    assert waiting.error is None
    room.node.dones.pop()(OutcomeUnknownError(1, 3))
    assert isinstance(waiting.error, OutcomeUnknownError)


def test_store_times_never_go_back(room: Room) -> None:
    for clock in (5_000_000, 4_000_000, 6_000_000):
        room.now_ms = clock
        room.add(b"x")
        room.turn()
        room.node.commit()
    times = [next(iter_records(b.records)).store_timestamp for b in room.node.batches]
    assert times == [5_000_000, 5_000_000, 6_000_000]


def test_a_topic_is_known_from_when_it_is_staged(room: Room) -> None:
    room.batcher.add_command(PutTopic.of(TopicConfig("new"), 1))
    assert room.batcher.topic("new") == TopicConfig("new")
    room.batcher.add_command(DeleteTopic("new", 2))
    assert room.batcher.topic("new") is None
    room.turn()
    room.applied.state.apply(PutTopic.of(TopicConfig("new"), 3))
    for _ in range(2):  # the deletion is an entry of its own
        room.node.commit()
    assert room.batcher.topic("new") == TopicConfig("new")
