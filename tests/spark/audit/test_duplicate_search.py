"""Messages that came twice are found by the key index and behind the checkpoint, others are not."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from itertools import pairwise

import pytest

from simulator.engine.disk import SimulatedFileSystem
from spark.audit import duplicate_search
from spark.audit.duplicate_search import HASHES, DuplicateSearch
from store.errors import DamagedError
from store.message.batch import QueueRun
from store.message.record import PendingMessage, make_pending_message
from store.verify import Finding, FindingKind, plan_audit
from tests.store.sample_replica import HOST, Replica, message
from tests.store.small_logs import simulated


def sent(topic: str, unique: str, keys: str = "all") -> PendingMessage:
    properties = f"KEYS\x01{keys}\x02UNIQ_KEY\x01{unique}\x02".encode()
    return make_pending_message(topic, b"x", properties, born_timestamp=1, born_host=HOST)


def search(fs: SimulatedFileSystem, replica: Replica, slices: int = 3) -> list[Finding]:
    plan = plan_audit(fs, [replica.directory], 2000)
    find = DuplicateSearch(fs, plan.groups[0], 0).find
    edges = [HASHES * number // slices for number in range(slices + 1)]
    return [one for low, high in pairwise(edges) for one in find(low, high)]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


def written(fs: SimulatedFileSystem, checkpoint_at: int) -> Replica:
    """Entries 3, 12 and 17 have the message ``again``, and entry 9 has it in another topic."""
    replica = Replica(fs)
    for number in range(20):
        topic = "bills" if number == 9 else "orders"
        unique = "again" if number in {3, 9, 12, 17} else f"u{number}"
        # The word "again" among the keys of others has the same hash.
        keys = "again all" if number % 5 == 0 else "all"
        offset = 0 if number == 9 else number - (number > 9)
        replica.send([QueueRun(topic, 0, offset, [sent(topic, unique, keys)])])
        if number == checkpoint_at:
            replica.checkpoint()
    replica.mark(19)
    replica.close()
    return replica


@pytest.mark.parametrize("checkpoint_at", [19, 14, 5, 30])
def test_a_message_that_came_again_is_told_once(
    fs: SimulatedFileSystem, checkpoint_at: int
) -> None:
    replica = written(fs, checkpoint_at)
    (finding,) = search(fs, replica)
    assert (finding.kind, finding.replica) == (FindingKind.DUPLICATE, "broker-a/n0")
    assert finding.found.startswith("3 times, the next as number 11 of queue 0")
    assert "message again of orders once: number 3 of queue 0" in finding.expected
    if checkpoint_at == 19:
        assert (finding.index_first, finding.index_last) == (3, 17)


def test_the_brokers_own_topics_may_have_a_message_again(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    for topic in ("%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC"):
        for offset in range(2):
            replica.send([QueueRun(topic, 0, offset, [sent(topic, "u")])])
    replica.send([QueueRun("orders", 0, 0, [message(1), message(2)])])
    replica.checkpoint()
    replica.mark()
    replica.close()
    assert search(fs, replica) == []


def test_a_key_index_that_misleads_is_damage(fs: SimulatedFileSystem) -> None:
    replica = written(fs, 19)
    directory = f"{replica.directory}/keyindex"
    path = f"{directory}/{fs.list_directory(directory)[0]}"
    fs.cut(path, 200)
    with pytest.raises(DamagedError, match="rows are not"):
        search(fs, replica)


@pytest.mark.parametrize(("rows", "records"), [(1 << 22, 1 << 16), (1 << 22, 3), (10, 3)])
@pytest.mark.parametrize("seed", range(2))
def test_how_much_is_read_at_once_changes_no_finding(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch, seed: int, rows: int, records: int
) -> None:
    monkeypatch.setattr(duplicate_search, "ROWS_AT_ONCE", rows)
    monkeypatch.setattr(duplicate_search, "READ_AT_ONCE", records)
    rng = random.Random(seed)
    replica = Replica(fs)
    sends: Counter[str] = Counter()
    for offset in range(40):
        unique = f"u{rng.randrange(30)}"
        sends[unique] += 1
        # Some have another message's unique key, or their own, among their keys.
        keys = f"all u{rng.randrange(30)} {unique}"
        replica.send([QueueRun("orders", 0, offset, [sent("orders", unique, keys)])])
        if offset == 25:
            replica.checkpoint()
    replica.mark(39)
    replica.close()
    told = {one.expected.split()[1]: int(one.found.split()[0]) for one in search(fs, replica)}
    assert told == {unique: count for unique, count in sends.items() if count > 1}


def test_messages_that_share_a_key_are_not_all_in_memory(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_search, "ROWS_AT_ONCE", 100, raising=False)
    monkeypatch.setattr(duplicate_search, "READ_AT_ONCE", 10, raising=False)
    replica = Replica(fs)
    properties = b"KEYS\x01all\x02UNIQ_KEY\x01same\x02"
    for offset in range(400):
        body = offset.to_bytes(4, "big") * 1000
        one = make_pending_message("orders", body, properties, born_timestamp=1, born_host=HOST)
        replica.send([QueueRun("orders", 0, offset, [one])])
    replica.checkpoint()
    replica.mark(399)
    replica.close()
    plan = plan_audit(fs, [replica.directory], 20_000)
    tracemalloc.start()
    try:
        (finding,) = DuplicateSearch(fs, plan.groups[0], 0).find(0, HASHES)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert finding.found.startswith("400 times")
    assert peak < 400_000
