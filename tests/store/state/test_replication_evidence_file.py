"""What members are known to hold survives a restart, and is never half written."""

from __future__ import annotations

import random

import pytest

from simulator.engine.disk import PowerLossError, SimulatedFileSystem
from store.errors import DamagedError
from store.io.two_slot_file import TwoSlotFile
from store.replica import ReplicaStore, StoreConfig
from store.state.replication_evidence_file import (
    ReplicationEvidenceFile,
    SavedEvidence,
    pack_evidence,
    unpack_evidence,
)

STATE = "/data/state"
FIRST = (SavedEvidence("n0", 5, 10), SavedEvidence("n1", 6, 9))
SECOND = (SavedEvidence("n0", 5, 20), SavedEvidence("n1", 1 << 61, 19))


def disk(seed: int = 1) -> SimulatedFileSystem:
    fs = SimulatedFileSystem(random.Random(seed))
    fs.make_directories(STATE)
    return fs


def test_nothing_is_known_before_the_first_save() -> None:
    fs = disk()
    assert ReplicationEvidenceFile(fs, STATE).held == ()
    assert fs.files() == []


def test_what_was_saved_survives_a_power_failure_in_any_call() -> None:
    """Each run loses power in another call; found is what was saved before, or what was to be."""
    for calls in range(1, 12):
        fs = disk(calls)
        ReplicationEvidenceFile(fs, STATE).save(FIRST)
        fs.lose_power_at(calls)
        try:
            ReplicationEvidenceFile(fs, STATE).save(SECOND)
        except PowerLossError:
            fs.power_loss()
            assert ReplicationEvidenceFile(fs, STATE).held in (FIRST, SECOND)
            continue
        fs.power_loss()
        assert ReplicationEvidenceFile(fs, STATE).held == SECOND
        return
    pytest.fail("a save never came to its end")


def test_the_same_is_not_written_again() -> None:
    fs = disk()
    file = ReplicationEvidenceFile(fs, STATE)
    file.save(FIRST)
    calls = fs.calls
    file.save(list(FIRST))
    assert fs.calls == calls


def test_a_file_of_which_nothing_is_whole_stops_a_node_until_it_is_removed() -> None:
    fs = SimulatedFileSystem(random.Random(1))
    config = StoreConfig("group", "n0", 4096, min_free_bytes=0)
    store = ReplicaStore.open(fs, "/data", config)
    store.save_evidence(FIRST)
    store.close()
    for byte in (30, 542):
        fs.flip_bit(f"{STATE}/held", byte)
    fs.crash()
    told = r"^/data/state/held, byte 0: neither .* is whole; remove state/held of the stopped node"
    with pytest.raises(DamagedError, match=told):
        ReplicaStore.open(fs, "/data", config)
    fs.crash()
    fs.remove(f"{STATE}/held")
    store = ReplicaStore.open(fs, "/data", config)
    assert store.recovered.held == ()
    store.close()


def test_a_whole_record_that_says_something_else_names_the_same_way_out() -> None:
    fs = disk()
    TwoSlotFile.create(fs, STATE, "held", b"\xc1").close()
    with pytest.raises(DamagedError, match=r"not what members hold.*; remove state/held"):
        ReplicationEvidenceFile(fs, STATE)


@pytest.mark.parametrize(
    "payload", [b"\xc1", b"\x01", b"\x91\x92\xa2n0\x05", b"\x91\x93\x01\xa1x\x05"]
)
def test_other_bytes_are_damage(payload: bytes) -> None:
    with pytest.raises(DamagedError, match="held"):
        unpack_evidence(payload, "held")


def test_of_too_many_members_the_first_are_kept() -> None:
    many = [SavedEvidence(f"n{number}", 1 << 61, 1 << 31) for number in range(100)]
    kept = unpack_evidence(pack_evidence(many), "held")
    assert len(kept) >= 18
    assert list(kept) == many[: len(kept)]


def test_a_store_tells_what_it_saved_when_it_is_opened_again() -> None:
    fs = SimulatedFileSystem(random.Random(1))
    config = StoreConfig("group", "n0", 4096, min_free_bytes=0)
    store = ReplicaStore.open(fs, "/data", config)
    assert store.recovered.held == ()
    store.save_evidence(FIRST)
    store.close()
    fs.crash()
    store = ReplicaStore.open(fs, "/data", config)
    assert store.recovered.held == FIRST
    store.close()
