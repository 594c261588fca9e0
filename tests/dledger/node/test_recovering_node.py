"""A log with a hole that is not applied is filled by peers before a node is made of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dledger.node.recovering_node import open_replica
from dledger.wire.service_messages import FetchRequest, FetchResponse, FetchStatus
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.event_loop import VirtualLoop
from store.errors import DamagedError
from store.io.two_slot_file import TwoSlotFile
from store.log.layout import segment_name
from store.recovery.opening import StoreConfig
from store.state.hard_state import DurableMark
from tests.dledger.node.repaired_replicas import COUNT, Askers, damaged_replica, repair
from tests.store.small_logs import (
    CONFIG,
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
)
from tests.support.fake_executor import FakeExecutor


def test_while_a_node_waits_it_gives_members_what_is_whole_and_committed() -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, 20, commit_index=30)
    requests = [
        FetchRequest(number, first, last, size)
        for number, (first, last, size) in enumerate(
            [(0, 40, 1 << 20), (3, 40, 100), (3, 3, -5), (19, 19, 1000), (20, 39, 1000), (-1, 9, 9)]
        )
    ]
    loop = VirtualLoop()
    askers = Askers(loop, {"n1": writer.entries}, requests)

    async def run() -> None:
        opened = await open_replica(
            fs, DIRECTORY, CONFIG, lambda: askers, loop, ["n1"], executor=FakeExecutor()
        )
        opened.close()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    assert {peer for peer, _ in askers.answers} == {"n1"}
    assert [report.whole for report in askers.reports] == [False]
    given = [[entry.index for entry in answer.entries] for _, answer in askers.answers]
    assert given == [
        list(range(20)),
        [3],
        [3],
        [19],
        [],
        [],
    ]
    for number, (_, answer) in enumerate(askers.answers):
        empty = FetchStatus.EXPIRED if number == len(requests) - 1 else FetchStatus.BUSY
        assert answer.status is (FetchStatus.ENTRIES if answer.entries else empty)
        assert data_of(list(answer.entries)) == [
            bytes(writer.entries[entry.index].data) for entry in answer.entries
        ]


@pytest.mark.parametrize("damaged", [(0,), (7,), (5, 6, 7, 8, 9), (3, 20, 36), (4, 5, 12, 13)])
def test_damaged_entries_are_put_back_and_the_log_is_as_it_was(damaged: tuple[int, ...]) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, *damaged)
    repair(fs, {"n1": writer.entries})
    fs.power_loss()
    store = open_store(fs)
    assert contents(store) == data_of(writer.entries)


def test_a_peer_with_another_log_or_none_is_passed_over() -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, 6)
    other = Writer()
    other.make_many(COUNT, size=29)
    givers = repair(fs, {"n1": other.entries, "n2": [], "n3": writer.entries})
    assert set(givers.asked) == {"n1", "n2", "n3"}
    assert contents(open_store(fs)) == data_of(writer.entries)


def test_what_comes_when_another_peer_has_given_it_already_is_passed_over_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, *range(6, 20))
    late = {
        "n2": FetchResponse(6, FetchStatus.ENTRIES, 0, tuple(writer.entries[6:9])),
        "n3": FetchResponse(6, FetchStatus.EXPIRED, 7),
    }
    givers = repair(fs, {"n1": writer.entries}, late=late)
    assert len(givers.asked) > 1
    assert contents(open_store(fs)) == data_of(writer.entries)
    assert [told for told in caplog.messages if "n1" not in told and "waiting" not in told] == []


def test_the_entry_that_does_not_fit_is_named(caplog: pytest.LogCaptureFixture) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer, other = damaged_replica(fs, 6, 7), Writer()
    other.make_many(COUNT, size=29)
    mixed = [*writer.entries[:7], *other.entries[7:]]
    repair(fs, {"n1": mixed, "n2": writer.entries})
    told = [told for told in caplog.messages if "does not fit" in told]
    assert told[0].startswith("entry 7 of n1 does not fit: chain CRC: expected ")
    assert contents(open_store(fs)) == data_of(writer.entries)


def test_an_entry_that_reaches_beyond_all_that_was_durable_does_not_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A chain CRC that fits is no proof: anybody can compute one."""
    fs, writer, other = SimulatedFileSystem(Random(1)), Writer(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(3))
    store.sync()
    save_mark(store, writer.entries[2], 2)
    store.close()
    fs.flip_bit(f"{DIRECTORY}/commitlog/{segment_name(0)}", writer.entries[2].position + 50)
    other.make_many(2)
    other.make(bytes(300))
    repair(fs, {"n1": other.entries, "n2": writer.entries}, config=ABOVE)
    assert "entry 2 of n1 does not fit: no segment had anything at 400" in caplog.messages
    assert contents(open_store(fs)) == data_of(writer.entries)


def test_an_entry_that_comes_too_early_does_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, 6, 7)
    early = FetchResponse(
        6, FetchStatus.ENTRIES, 0, tuple(writer.entries[index] for index in (6, 8))
    )
    repair(fs, {"n1": [], "n2": writer.entries}, answers={"n1": early})
    assert "entry 7 of n1 does not fit: entry 7 comes first" in caplog.messages
    assert contents(open_store(fs)) == data_of(writer.entries)


def test_a_peer_that_has_expired_the_entry_is_told(caplog: pytest.LogCaptureFixture) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, 6)
    answers = {"n1": FetchResponse(6, FetchStatus.EXPIRED, 7)}
    repair(fs, {"n1": [], "n2": writer.entries}, answers=answers)
    assert "n1 has expired entry 6" in caplog.messages


def test_while_no_peer_has_the_entry_the_replica_is_not_opened_and_nothing_is_cut() -> None:
    fs = SimulatedFileSystem(Random(1))
    damaged_replica(fs, 6)
    before = {path: fs.visible_bytes(path) for path in fs.files() if "/commitlog/" in path}
    with pytest.raises(TimeoutError):
        repair(fs, {"n1": []})
    assert {path: fs.visible_bytes(path) for path in before} == before


def test_a_log_that_is_not_the_one_of_its_mark_is_refused_once_its_holes_are_filled() -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, 6)
    slots = TwoSlotFile.open(fs, f"{DIRECTORY}/state/mark")
    mark = DurableMark.unpack(slots.payload, slots.path)
    slots.save(replace(mark, chain_crc=mark.chain_crc ^ 1).pack())
    slots.close()
    with pytest.raises(DamagedError, match="not the entry that the durable mark names"):
        repair(fs, {"n1": writer.entries})


def test_a_full_disk_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs)
    fs.remove(f"{DIRECTORY}/commitlog/{segment_name(0)}")
    fs.capacity = fs.used_bytes() + 10

    def make_room() -> None:
        fs.capacity = None

    givers = repair(fs, {"n1": writer.entries}, after_5_s=make_room)
    assert len(givers.asked) > 5
    assert (
        len([line for line in caplog.messages if line.startswith("no room to repair entry")]) == 1
    )
    fs.power_loss()
    assert contents(open_store(fs)) == data_of(writer.entries)


def damaged_above_the_commit_index() -> tuple[SimulatedFileSystem, Writer]:
    fs = SimulatedFileSystem(Random(1))
    store = open_store(fs)
    store.save_hard_state(1, "n0")
    writer = Writer()
    store.append(writer.make_many(COUNT))
    store.sync()
    save_mark(store, writer.entries[-3], 10)
    store.close()
    fs.flip_bit(f"{DIRECTORY}/commitlog/{1200:020d}", 60)
    return fs, writer


ABOVE = replace(CONFIG, incarnation=5)


@pytest.mark.parametrize(("size", "term"), [(30, 1), (10, 3), (50, 3), (130, 3)])
def test_damage_above_what_is_known_to_be_committed_gives_way_to_what_a_leader_sends(
    size: int, term: int
) -> None:
    """It may have been confirmed: the log ends before it, on another disk. What comes instead may
    be what was there, or what a later leader has committed in its place."""
    fs, writer = damaged_above_the_commit_index()
    kept = [entry for entry in writer.entries if entry.end <= 1200]
    givers = repair(fs, {"n1": writer.entries}, config=ABOVE)
    assert givers.asked == []
    fs.power_loss()
    writer.cut(len(kept))
    writer.make_many(COUNT, size=size, term=term)
    store = open_store(fs, replace(ABOVE, incarnation=6))
    assert contents(store) == data_of(kept)
    assert store.recovered.incarnation == ABOVE.incarnation
    assert store.recovered.commit_index == 10
    store.save_hard_state(term, "")
    store.append(writer.entries[len(kept) :])
    store.sync()
    assert contents(store) == data_of(writer.entries)


@pytest.mark.parametrize("config", [CONFIG, replace(ABOVE, alone=True)], ids=["no disk", "alone"])
def test_damage_above_what_is_known_to_be_committed_is_refused_where_nobody_would_notice(
    config: StoreConfig,
) -> None:
    fs, writer = damaged_above_the_commit_index()
    before = {path: fs.visible_bytes(path) for path in fs.files()}
    with pytest.raises(DamagedError, match="is not whole"):
        repair(fs, {"n1": writer.entries}, config=config)
    assert {path: fs.visible_bytes(path) for path in fs.files()} == before


def test_the_log_names_what_is_lost_beside_entries(caplog: pytest.LogCaptureFixture) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs)
    segment = f"{DIRECTORY}/commitlog/{1200:020d}"
    checkpoint = f"{DIRECTORY}/state/checkpoint-{9:020d}"
    fs.remove(segment)
    file = fs.open(checkpoint, create=True)
    file.pwrite(b"no checkpoint", 0)
    file.close()
    repair(fs, {"n1": writer.entries}, config=ABOVE)
    assert [told for told in caplog.messages if told.startswith("found at the start: ")] == [
        f"found at the start: {checkpoint}, byte 13: the file is cut short",
        f"found at the start: {segment}, byte 0: the segment file is missing",
    ]


def test_the_log_says_why_it_lost_its_end(caplog: pytest.LogCaptureFixture) -> None:
    fs, writer = damaged_above_the_commit_index()
    repair(fs, {"n1": writer.entries}, config=ABOVE)
    (told,) = caplog.messages
    assert told.startswith(f"found at the start: {DIRECTORY}/commitlog/{1200:020d}, byte ")
    assert told.endswith("is not whole")
