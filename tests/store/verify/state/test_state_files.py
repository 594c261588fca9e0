"""What lies in ``state/`` is compared with the log, and between replicas after one entry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.state.broker_state import BrokerState
from broker.state.commands import PutGroup
from broker.topics_and_groups import GroupConfig
from simulator.engine.disk import SimulatedFileSystem
from store.index_rebuild import request_rebuild
from store.io.atomic_file import replace_file
from store.io.two_slot_file import encode_slot
from store.message.batch import QueueRun
from store.state.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from store.state.hard_state import DurableMark
from store.state.machine_state import decode_machine_state, encode_machine_state
from store.verify import Finding, FindingKind, Verification, verify_replicas
from tests.store.sample_replica import SEGMENT_SIZE, Replica, message
from tests.store.small_logs import simulated

NODES = ("n0", "n1", "n2")


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


def written(
    fs: SimulatedFileSystem, node: str, *, checkpoints: tuple[int, ...] = (20, 40), end: int = 45
) -> Replica:
    """A replica whose members change at entry 10, and which gives up two segments at entry 30."""
    replica = Replica(fs, node)
    replica.configure(NODES)
    for number in range(1, end):
        if number == 10:
            replica.configure((*NODES, "n3"))
        elif number == 30:
            replica.send([], [["expire", 2 * SEGMENT_SIZE]])
        else:
            offset = replica.queues.get_or_create("orders", 0).end_offset
            messages = [message(number, size=400), message(number + 500, size=400)]
            replica.send([QueueRun("orders", 0, offset, messages)])
        if number in checkpoints:
            replica.checkpoint()
            replica.mark()
    replica.close()
    return replica


def check(fs: SimulatedFileSystem, *replicas: Replica) -> Verification:
    return verify_replicas(fs, [replica.directory for replica in replicas], range_bytes=4000)


def path_of(replica: Replica, index: int) -> str:
    return f"{replica.directory}/state/checkpoint-{index:020d}"


def loaded(fs: SimulatedFileSystem, replica: Replica, index: int) -> Checkpoint:
    return decode_checkpoint(fs.visible_bytes(path_of(replica, index)), "")


def save(fs: SimulatedFileSystem, replica: Replica, index: int, checkpoint: Checkpoint) -> None:
    directory, _slash, name = path_of(replica, index).rpartition("/")
    replace_file(fs, directory, name, encode_checkpoint(checkpoint))


def edit_machine(fs: SimulatedFileSystem, replica: Replica, index: int, **fields: object) -> None:
    checkpoint = loaded(fs, replica, index)
    machine = decode_machine_state(checkpoint.state)._replace(**fields)  # type: ignore[arg-type]  # fields by name
    save(fs, replica, index, replace(checkpoint, state=encode_machine_state(machine)))


def told(found: Verification) -> list[tuple[FindingKind, str, str, int | None]]:
    return [(each.kind, each.replica, each.path, each.index_first) for each in found.findings]


def test_whole_replicas_have_one_state(fs: SimulatedFileSystem) -> None:
    found = check(fs, *(written(fs, node) for node in NODES))
    assert found.findings == []
    assert [report.state for report in found.replicas] == ["same"] * 3


def test_states_after_different_entries_are_unknown_and_no_finding(
    fs: SimulatedFileSystem,
) -> None:
    found = check(fs, written(fs, "n0"), written(fs, "n1", checkpoints=(15, 35)))
    assert found.findings == []
    assert [report.state for report in found.replicas] == ["unknown"] * 2
    assert found.to_json()["replicas"][0]["state"] == "unknown"  # type: ignore[index]  # JSON


@pytest.mark.parametrize("index", [20, 40])
@pytest.mark.parametrize(
    "fields",
    [
        {"queues": []},
        {"segment_times": {}},
        {"segment_times": {0: 1}},
        {"expired_position": 100},
    ],
)
def test_what_the_log_makes_otherwise_is_told(
    fs: SimulatedFileSystem, fields: dict[str, object], index: int
) -> None:
    replicas = [written(fs, node) for node in NODES]
    edit_machine(fs, replicas[1], index, **fields)
    found = check(fs, *replicas).findings
    assert {(each.kind, each.replica, each.path) for each in found} == {
        (FindingKind.CHECKPOINT, "broker-a/n1", path_of(replicas[1], index))
    }


@pytest.mark.parametrize("index", [20, 40])
@pytest.mark.parametrize("members", [b"", b"{}", b'{"version":1,"voters":["n0","n1","n2"]}'])
def test_members_are_those_of_the_last_entry_that_says_so(
    fs: SimulatedFileSystem, members: bytes, index: int
) -> None:
    replicas = [written(fs, node) for node in NODES]
    wrong = replace(loaded(fs, replicas[2], index), configuration=members)
    save(fs, replicas[2], index, wrong)
    found = check(fs, *replicas).findings
    assert [(each.kind, each.replica, each.index_first) for each in found] == [
        (FindingKind.CHECKPOINT, "broker-a/n2", index)
    ]
    assert '"n3"' in found[0].expected


def test_members_may_be_written_with_what_is_empty_or_without(fs: SimulatedFileSystem) -> None:
    replica = written(fs, "n0")
    short = b'{"version":1,"voters":["n0","n1","n2","n3"]}'
    save(fs, replica, 40, replace(loaded(fs, replica, 40), configuration=short))
    assert check(fs, replica).findings == []


def test_the_broker_state_of_the_minority_is_told(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, node) for node in NODES]
    edit_machine(fs, replicas[1], 40, broker=b"offsets that nobody committed")
    found = check(fs, *replicas)
    assert told(found) == [(FindingKind.CHECKPOINT, "broker-a/n1", path_of(replicas[1], 40), 40)]
    assert found.findings[0].majority == ("broker-a/n0", "broker-a/n2")
    assert [report.state for report in found.replicas] == ["differs"] * 3


def other_state(fs: SimulatedFileSystem, replica: Replica, index: int) -> bytes:
    """A state of the broker that is one, with a group that nobody made."""
    state = BrokerState.from_bytes(decode_machine_state(loaded(fs, replica, index).state).broker)
    state.apply(PutGroup.of(GroupConfig("strangers"), 7))
    return state.to_bytes()


@pytest.mark.parametrize("index", [20, 40])
@pytest.mark.parametrize("forged", [(1,), (0, 1), (0, 1, 2)])
def test_a_state_that_the_log_does_not_make_is_told_whoever_agrees(
    fs: SimulatedFileSystem, forged: tuple[int, ...], index: int
) -> None:
    replicas = [written(fs, node) for node in NODES]
    for number in forged:
        edit_machine(fs, replicas[number], index, broker=other_state(fs, replicas[number], index))
    found = check(fs, *replicas).findings
    assert [(each.kind, each.path) for each in found] == [
        (FindingKind.CHECKPOINT, path_of(replicas[number], index)) for number in forged
    ]
    assert all("strangers" in each.found for each in found)
    assert all("as groups of the broker" in each.expected for each in found)


@pytest.mark.parametrize("index", [20, 44])
def test_the_state_of_a_checkpoint_at_the_end_of_the_log_is_compared_too(
    fs: SimulatedFileSystem, index: int
) -> None:
    replica = written(fs, "n0", checkpoints=(20, 44))
    edit_machine(fs, replica, index, broker=other_state(fs, replica, index))
    assert told(check(fs, replica)) == [
        (FindingKind.CHECKPOINT, "broker-a/n0", path_of(replica, index), index)
    ]


def expired(fs: SimulatedFileSystem, node: str) -> Replica:
    """A replica whose log begins behind what one checkpoint covers: nothing tells its state."""
    replica = written(fs, node, checkpoints=(40,))
    again = Replica(fs, node)
    again.store.expire(2 * SEGMENT_SIZE)
    again.close()
    return replica


@pytest.mark.parametrize("forged", [(1,), (0, 1)])
def test_where_nothing_tells_which_state_is_right_nobody_is_accused(
    fs: SimulatedFileSystem, forged: tuple[int, ...]
) -> None:
    replicas = [expired(fs, node) for node in NODES]
    assert check(fs, *replicas).findings == []
    for number in forged:
        edit_machine(fs, replicas[number], 40, broker=other_state(fs, replicas[number], 40))
    (finding,) = check(fs, *replicas).findings
    assert (finding.kind, finding.replica) == (FindingKind.DIVERGENCE, "unknown")
    assert len(finding.majority) == 2


def test_a_state_that_follows_from_a_whole_log_proves_others_wrong(
    fs: SimulatedFileSystem,
) -> None:
    replicas = [expired(fs, "n0"), expired(fs, "n1"), written(fs, "n2", checkpoints=(40,))]
    for replica in replicas[:2]:
        edit_machine(fs, replica, 40, broker=other_state(fs, replica, 40))
    assert {each.replica for each in check(fs, *replicas).findings} == {
        "broker-a/n0",
        "broker-a/n1",
    }


def test_behind_an_expired_beginning_a_state_follows_from_the_one_before(
    fs: SimulatedFileSystem,
) -> None:
    replica = written(fs, "n0", checkpoints=(32, 40))
    again = Replica(fs, "n0")
    again.store.expire(2 * SEGMENT_SIZE)
    again.close()
    edit_machine(fs, replica, 40, broker=other_state(fs, replica, 40))
    assert told(check(fs, replica)) == [
        (FindingKind.CHECKPOINT, "broker-a/n0", path_of(replica, 40), 40)
    ]


def test_who_is_known_to_be_wrong_has_no_say_about_the_state(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, node) for node in NODES]
    for replica in replicas[:2]:
        edit_machine(fs, replica, 40, queues=[])
    assert {each.replica for each in check(fs, *replicas).findings} == {
        "broker-a/n0",
        "broker-a/n1",
    }


def test_a_log_that_begins_where_nothing_was_given_up_is_told(fs: SimulatedFileSystem) -> None:
    replica = written(fs, "n0", checkpoints=(20, 25), end=28)
    again = Replica(fs, "n0")
    again.entries = replica.entries
    again.store.expire(2 * SEGMENT_SIZE)
    assert again.store.recovered is not None
    again.close()
    found: list[Finding] = check(fs, replica).findings
    marks = [each for each in found if each.kind is FindingKind.MARK]
    assert [each.path for each in marks] == [f"{replica.directory}/state/mark"]
    assert "no more has expired" in marks[0].expected


def test_a_log_that_begins_where_the_group_gave_up_is_none(fs: SimulatedFileSystem) -> None:
    replica = written(fs, "n0", checkpoints=(32, 40))
    again = Replica(fs, "n0")
    again.store.expire(2 * SEGMENT_SIZE)
    again.close()
    found = check(fs, replica)
    assert found.findings == []
    assert found.replicas[0].first_index > 0


def test_what_is_to_be_made_again_need_not_be_there(fs: SimulatedFileSystem) -> None:
    replicas = [written(fs, node) for node in NODES]
    for name in ("consumequeue", "keyindex"):
        fs.remove_tree(f"{replicas[1].directory}/{name}")
    assert {each.replica for each in check(fs, *replicas).findings} == {"broker-a/n1"}
    request_rebuild(fs, replicas[1].directory)
    assert check(fs, *replicas).findings == []


@pytest.mark.parametrize("floor", [b"", b"\xc1", b"\x91\xc0", b"\x92\x01\x02", b"\x91\xff"])
def test_a_floor_of_nonsense_is_told(fs: SimulatedFileSystem, floor: bytes) -> None:
    replica = written(fs, "n0")
    state = f"{replica.directory}/state"
    replace_file(fs, state, "floor", encode_slot(1, b"\x91\x07"))
    assert check(fs, replica).findings == []
    replace_file(fs, state, "floor", encode_slot(1, floor))
    assert told(check(fs, replica)) == [(FindingKind.FORMAT, "broker-a/n0", f"{state}/floor", None)]


def test_a_log_that_begins_behind_its_newest_checkpoint_is_told(fs: SimulatedFileSystem) -> None:
    replica = written(fs, "n0")
    path = f"{replica.directory}/state/mark"
    entry = replica.entries[43]
    mark = DurableMark(
        44, replica.entries[44].end, replica.entries[44].chain_crc, 44, 43, entry.position
    )
    replace_file(fs, f"{replica.directory}/state", "mark", encode_slot(9, mark.pack()) * 2)
    assert told(check(fs, replica)) == [(FindingKind.MARK, "broker-a/n0", path, None)]
