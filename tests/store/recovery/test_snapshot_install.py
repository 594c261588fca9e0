"""Refilling: another replica's log is gathered beside the own one and takes its place, or not."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from simulator.engine.disk import PowerLossError, SimulatedFileSystem
from store.errors import DamagedError, DiskFullError, StoreError
from store.log.entry import Entry
from store.recovery.snapshot_install import InstallPlan, SnapshotInstall
from store.replica import ReplicaStore
from store.state.checkpoint import decode_checkpoint, encode_checkpoint
from tests.store.small_logs import CONFIG, DIRECTORY, Writer, contents, open_store, simulated

TERM_MAX = 1 << 62
FIRST, LAST = 12, 30
"""The log of the peer begins and ends with these entries, the last of them checkpointed."""


def peer_log() -> Writer:
    writer = Writer()
    writer.make_many(15)
    writer.make_many(20, term=3)
    return writer


def retained(writer: Writer) -> list[Entry]:
    """From the first entry of a segment on, as retention leaves a log."""
    starts = [entry for entry in writer.entries if entry.position % writer.segment_size == 0]
    first = next(entry.index for entry in starts if entry.index >= FIRST)
    return writer.entries[first : LAST + 1]


def behind(fs: SimulatedFileSystem, own: int = 5) -> None:
    """A replica with the first entries of the log, and one checkpoint."""
    store = open_store(fs)
    store.save_hard_state(2, "n2")
    writer = peer_log()
    store.append(writer.entries[:own])
    store.sync()
    store.save_checkpoint(writer.checkpoint(2))
    store.close()


def begin(store: ReplicaStore, writer: Writer) -> SnapshotInstall:
    entries = retained(writer)
    plan = InstallPlan(entries[0].index, entries[0].position, LAST)
    checkpoint = writer.checkpoint(LAST)
    return store.begin_snapshot_install(plan, encode_checkpoint(checkpoint), checkpoint.term)


def gather(fs: SimulatedFileSystem) -> None:
    """Everything that a node does, a piece at a time; goes on where an earlier call was stopped."""
    store = open_store(fs)
    if store.recovered.last_index >= LAST:
        store.close()
        return
    writer = peer_log()
    refill = store.resume_snapshot_install() or begin(store, writer)
    while not refill.ended:
        refill.append(writer.entries[refill.next_index : min(refill.next_index + 3, LAST + 1)])
    refill.complete(store.last_index)
    store.close()


def is_refilled(store: ReplicaStore) -> bool:
    return store.recovered.last_index == LAST


def check_refilled(store: ReplicaStore) -> None:
    entries = retained(peer_log())
    assert contents(store) == [entry.data for entry in entries]
    found = store.recovered
    assert (found.first_index, found.last_index) == (entries[0].index, LAST)
    assert found.checkpoint is not None
    assert (found.checkpoint.index, found.checkpoint.state) == (LAST, b"state %d" % LAST)
    assert found.commit_index == LAST
    assert found.term == 3


def test_a_complete_refill_takes_the_place_of_the_log_when_the_replica_is_opened() -> None:
    fs = simulated()
    behind(fs)
    fs.make_directories(f"{DIRECTORY}/consumequeue/t/0")
    gather(fs)
    store = open_store(fs)
    check_refilled(store)
    assert store.read_vote_floor() == -1
    assert not fs.exists(f"{DIRECTORY}/refill")
    assert not fs.exists(f"{DIRECTORY}/consumequeue")
    assert fs.exists(f"{DIRECTORY}/state/rebuild")
    assert fs.list_directory(f"{DIRECTORY}/index"), "what a checkpoint covers is on disk"
    next_entry = peer_log().entries[LAST + 1]
    store.append([next_entry])
    store.sync()
    store.close()
    reopened = open_store(fs)
    assert reopened.last_index == LAST + 1
    reopened.close()


def test_a_refill_that_is_not_complete_changes_nothing_and_goes_on_after_a_restart() -> None:
    fs = simulated()
    behind(fs)
    store = open_store(fs)
    writer = peer_log()
    refill = begin(store, writer)
    refill.append(writer.entries[refill.next_index : refill.next_index + 4])
    gathered = refill.next_index
    store.close()
    fs.crash()
    store = open_store(fs)
    assert store.last_index == 4
    resumed = store.resume_snapshot_install()
    assert resumed is not None
    assert resumed.next_index == gathered
    with pytest.raises(StoreError, match="is not entry"):
        resumed.append(writer.entries[gathered + 1 : gathered + 2])
    store.close()


@pytest.mark.minutes
def test_a_crash_or_power_loss_at_any_call_leaves_the_old_log_or_the_new_one() -> None:
    calls = 0
    refilled_after_crash = 0
    for power in (False, True):
        call = 0
        while True:
            call += 1
            fs = simulated(call)
            behind(fs)
            fs.lose_power_at(call)
            try:
                gather(fs)
                open_store(fs).close()
            except PowerLossError:
                fs.power_loss() if power else fs.crash()
            else:
                break
            calls += 1
            store = open_store(fs)
            found = store.recovered
            if is_refilled(store):
                check_refilled(store)
                refilled_after_crash += 1
            else:
                assert contents(store) == [entry.data for entry in peer_log().entries[:5]]
                assert (found.term, found.vote) == (2, "n2")
            store.close()
            gather(fs)
            store = open_store(fs)
            check_refilled(store)
            store.close()
    assert calls > 100
    assert refilled_after_crash > 20


def test_power_loss_in_an_installation_after_a_kill_leaves_the_old_log_or_the_new_one() -> None:
    """The name that says that all was gathered was seen, and not on disk."""
    counting = simulated()
    behind(counting)
    begun = counting.calls
    gather(counting)
    last = counting.calls - begun  # the sync of that name
    opened = False
    for call in count(1):
        fs = simulated()
        behind(fs)
        fs.lose_power_at(last)
        with pytest.raises(PowerLossError):
            gather(fs)
        fs.crash()
        fs.lose_power_at(call)
        try:
            open_store(fs).close()
            opened = True
        except PowerLossError:
            fs.power_loss(keep=0.0)
            store = open_store(fs)
            if is_refilled(store):
                check_refilled(store)
            store.close()
        if opened:
            break
    assert call > 20


def test_a_replica_that_held_more_than_the_refill_has_a_floor_until_it_holds_it_again() -> None:
    fs = simulated()
    behind(fs)
    store = open_store(fs)
    writer = peer_log()
    refill = begin(store, writer)
    refill.append(writer.entries[refill.next_index : LAST + 1])
    refill.complete(LAST + 3)
    store.close()
    store = open_store(fs)
    check_refilled(store)
    assert store.read_vote_floor() == LAST + 3
    store.clear_vote_floor()
    store.close()
    store = open_store(fs)
    assert store.read_vote_floor() == -1
    store.close()


def test_entries_that_do_not_lead_to_the_checkpoint_are_refused() -> None:
    fs = simulated()
    behind(fs)
    store = open_store(fs)
    writer = peer_log()
    other = Writer()
    other.make_many(35, term=3)
    entries = retained(writer)
    plan = InstallPlan(entries[0].index, entries[0].position, LAST)
    checkpoint = other.checkpoint(LAST)
    refill = store.begin_snapshot_install(plan, encode_checkpoint(checkpoint), checkpoint.term)
    with pytest.raises(StoreError, match="do not lead to the checkpoint"):
        refill.append(entries)
    with pytest.raises(StoreError, match="ends at"):
        refill.complete(4)
    store.close()


def test_a_damaged_plan_or_checkpoint_is_gathered_anew() -> None:
    for name in ("plan", "checkpoint"):
        fs = simulated()
        behind(fs)
        store = open_store(fs)
        begin(store, peer_log()).close()
        fs.flip_bit(f"{DIRECTORY}/refill/{name}", 21)
        assert store.resume_snapshot_install() is None
        store.close()
        gather(fs)
        store = open_store(fs)
        check_refilled(store)
        store.close()


def test_a_checkpoint_that_is_not_the_planned_one_is_refused() -> None:
    fs = simulated()
    behind(fs)
    store = open_store(fs)
    data = encode_checkpoint(peer_log().checkpoint(LAST))
    with pytest.raises(DamagedError, match="not the checkpoint of the plan"):
        store.begin_snapshot_install(InstallPlan(FIRST, 0, LAST - 1), data, TERM_MAX)
    store.close()


def test_a_checkpoint_of_a_term_that_nobody_leads_yet_is_refused() -> None:
    """It would raise the node's own term, durably, as high as a peer likes."""
    fs = simulated()
    behind(fs)
    store = open_store(fs)
    checkpoint = peer_log().checkpoint(LAST)
    with pytest.raises(DamagedError, match="of term 3, when term 2 is led"):
        store.begin_snapshot_install(InstallPlan(FIRST, 0, LAST), encode_checkpoint(checkpoint), 2)
    store.close()


@pytest.mark.parametrize(
    "wrong", [{"index": "5"}, {"term": 1.5}, {"term_starts": ((1, b"0"),)}, {"state": "text"}]
)
def test_a_checkpoint_with_fields_of_other_types_is_damaged(wrong: dict[str, object]) -> None:
    data = encode_checkpoint(replace(peer_log().checkpoint(LAST), **wrong))  # type: ignore[arg-type]  # fields by name
    with pytest.raises(DamagedError, match=r"payload of the checkpoint: .* is no (number|binary)"):
        decode_checkpoint(data, "checkpoint")


def test_a_refill_whose_last_entry_is_of_another_term_than_its_checkpoint_is_refused() -> None:
    fs = simulated()
    behind(fs)
    store = open_store(fs)
    writer = peer_log()
    entries = retained(writer)
    plan = InstallPlan(entries[0].index, entries[0].position, LAST)
    other = replace(writer.checkpoint(LAST), term=2)
    refill = store.begin_snapshot_install(plan, encode_checkpoint(other), 3)
    with pytest.raises(StoreError, match=f"do not lead to the checkpoint of {LAST}"):
        refill.append(entries)
    store.close()


def test_a_refill_knows_whether_there_is_room_for_its_end() -> None:
    fs = simulated()
    behind(fs)
    refill = begin(open_store(fs), peer_log())
    assert refill.may_complete
    fs.capacity = fs.used_bytes() + 100
    assert not refill.may_complete
    fs.capacity += 1 << 20
    assert refill.may_complete


RESERVE = 1000
"""Bytes that the log leaves free for other files."""


def test_a_refill_begins_only_if_the_disk_has_room_for_all_of_it() -> None:
    fs = simulated()
    behind(fs)
    store = open_store(fs, replace(CONFIG, min_free_bytes=RESERVE))
    writer = peer_log()
    checkpoint = len(encode_checkpoint(writer.checkpoint(LAST)))
    needed = writer.entries[LAST].end - retained(writer)[0].position + checkpoint
    fs.capacity = fs.used_bytes() + needed + RESERVE - 1
    with pytest.raises(DiskFullError, match=f"needs {needed} bytes more; .* must stay free"):
        begin(store, writer)
    assert not fs.exists(f"{DIRECTORY}/refill")
    fs.capacity += 1
    begin(store, writer).close()
    store.close()


def test_a_refill_leaves_the_reserve_to_the_checkpoints_of_the_replica() -> None:
    """The disk fills up while the refill is under way."""
    fs = simulated()
    behind(fs)
    store = open_store(fs, replace(CONFIG, min_free_bytes=RESERVE))
    writer = peer_log()
    refill = begin(store, writer)
    entries = writer.entries[refill.next_index : refill.next_index + 2]
    size = sum(entry.size for entry in entries)
    fs.capacity = fs.used_bytes() + size + RESERVE - 1
    first = refill.next_index
    with pytest.raises(DiskFullError, match="must stay free"):
        refill.append(entries)
    assert refill.next_index == first
    store.save_checkpoint(writer.checkpoint(3))
    fs.capacity += 1 << 20
    refill.append(entries)
    assert refill.next_index == first + 2
    store.close()
