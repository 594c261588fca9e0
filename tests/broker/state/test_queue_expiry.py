"""Where a queue begins is part of the state: no row that rotted decides it."""

from __future__ import annotations

from random import Random

import pytest

from broker.state.queue_expiry import LogSearch, first_offsets
from dledger.node.state_machine import LongReadError
from simulator.engine.disk import SimulatedFileSystem
from store.errors import DerivedDamageError
from tests.store import sample_replica

ROW = 20


def _replica() -> tuple[SimulatedFileSystem, sample_replica.Replica]:
    """Some rows of each queue are on the disk, and some in memory alone."""
    fs = SimulatedFileSystem(Random(1))
    replica = sample_replica.Replica(fs)
    replica.no_op()
    for number in range(20):
        replica.put("orders", 0, 3, first=10 * number)
        replica.put("bills", number % 2, 2, first=10 * number)
    replica.checkpoint()
    for number in range(20, 24):
        replica.put("orders", 0, 3, first=10 * number)
        replica.put("bills", 0, 1, first=10 * number)
    return fs, replica


def _firsts(replica: sample_replica.Replica, position: int) -> list[int]:
    queues = replica.queues.all()
    searches: dict[int, LogSearch] = {}
    while True:
        try:
            found = dict(first_offsets(queues, position, replica.store, searches))
        except LongReadError as needed:
            while not needed.read():
                pass
        else:
            return [found[queue] for queue in queues]


def _positions(replica: sample_replica.Replica) -> list[int]:
    """At the start of entries, and within them; before the first, and behind the last."""
    entries = replica.entries[1::5]
    return [0, *[entry.position for entry in entries], entries[3].position + 400, replica.end]


@pytest.mark.parametrize("way", ["zeroed", "flipped", "another's", "unreadable", "lost"])
def test_queues_begin_where_the_log_says_whatever_has_become_of_their_rows(way: str) -> None:
    fs, replica = _replica()
    positions = _positions(replica)
    expected = [_firsts(replica, position) for position in positions]
    assert len({tuple(each) for each in expected}) > 10
    files = [path for path in fs.files() if "/consumequeue/orders/0/" in path]
    other = fs.visible_bytes(next(path for path in fs.files() if "/consumequeue/bills/0/" in path))
    for path in files:
        if way == "zeroed":
            fs.overwrite(path, bytes(len(fs.visible_bytes(path))), 0)
        elif way == "flipped":
            for at in range(0, len(fs.visible_bytes(path)), ROW):
                fs.flip_bit(path, at + 6, 4)
        elif way == "another's":
            fs.overwrite(path, other[: len(fs.visible_bytes(path))], 0)
        elif way == "unreadable":
            fs.lose_sector(path, 0)
        else:
            fs.vanish(path)
    assert [_firsts(replica, position) for position in positions] == expected


def test_without_damage_the_log_itself_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    _fs, replica = _replica()
    monkeypatch.setattr(type(replica.store), "read_entries", None)
    for position in _positions(replica):
        _firsts(replica, position)


def test_a_search_of_the_log_is_left_to_another_thread_and_reads_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its queue is quiet: without its rows, the whole log must be read."""

    def quiet() -> tuple[SimulatedFileSystem, sample_replica.Replica, int]:
        fs, replica = _replica()
        replica.put("quiet", 0, 1, first=1000)
        replica.checkpoint()
        position = replica.end
        for number in range(30):
            replica.put("orders", 0, 3, first=10 * number)
        return fs, replica, position

    _fs, whole, position = quiet()
    expected = _firsts(whole, position)
    fs, replica, _position = quiet()
    fs.vanish(next(path for path in fs.files() if "/consumequeue/quiet/0/" in path))
    monkeypatch.setattr("broker.state.queue_expiry.READ_BYTES", 1000)
    searches: dict[int, LogSearch] = {}
    with monkeypatch.context() as patch:
        patch.setattr(type(replica.store), "read_entries", None)
        with pytest.raises(LongReadError) as needed:
            first_offsets(replica.queues.all(), position, replica.store, searches)
    pieces = 1
    while not needed.value.read():
        pieces += 1
    assert pieces > 5
    monkeypatch.setattr(type(replica.store), "read_entries", None)
    found = dict(first_offsets(replica.queues.all(), position, replica.store, searches))
    assert [found[queue] for queue in replica.queues.all()] == expected


def test_damage_in_the_log_itself_is_told_as_damage_that_will_be_repaired() -> None:
    fs, replica = _replica()
    for path in [path for path in fs.files() if "/consumequeue/orders/0/" in path]:
        fs.vanish(path)
    damaged = replica.entries[5]
    log = next(path for path in fs.files() if "/commitlog/" in path)
    fs.flip_bit(log, damaged.position + 60, 1)
    position = replica.entries[5].position
    with pytest.raises(DerivedDamageError) as caught:
        _firsts(replica, position)
    assert caught.value.log_position == position
    fs.flip_bit(log, damaged.position + 60, 1)
    assert _firsts(replica, position)
