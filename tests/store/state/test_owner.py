"""Files of a replica that are another node's: refused with a word on whose they are."""

from __future__ import annotations

from random import Random

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import DataFormatError
from store.io.two_slot_file import (
    PAYLOAD_SIZE_MAX,
    SLOT_SIZE,
    TwoSlotFile,
    decode_slot,
    encode_slot,
    slot_owner,
)
from store.replica import ReplicaStore, StoreConfig
from store.state.format_file import Identity
from store.state.replication_evidence_file import SavedEvidence
from store.verify.findings import FindingLog
from store.verify.state.state_reader import read_state

CONFIGS = {
    "n0": StoreConfig("g", "n0", 1 << 12, min_free_bytes=0, incarnation=5),
    "n1": StoreConfig("g", "n1", 1 << 12, min_free_bytes=0, incarnation=6),
    "other": StoreConfig("other", "n0", 1 << 12, min_free_bytes=0, incarnation=7),
}
NAMES = ("vote", "mark", "held")


@pytest.fixture
def fs() -> SimulatedFileSystem:
    """Three replicas in one file system, all of them stopped."""
    fs = SimulatedFileSystem(Random(1))
    for name, config in CONFIGS.items():
        store = ReplicaStore.open(fs, f"/{name}", config)
        store.save_hard_state(3, "n1")
        store.save_evidence([SavedEvidence("n1", 6, 0)])
        store.close()
    return fs


def read(fs: SimulatedFileSystem, path: str) -> bytes:
    file = fs.open(path)
    try:
        return file.pread(2 * SLOT_SIZE, 0)
    finally:
        file.close()


def write(fs: SimulatedFileSystem, path: str, data: bytes) -> None:
    file = fs.open(path)
    file.pwrite(data, 0)
    file.datasync()
    file.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", ["n1", "other"])
def test_a_file_of_another_node_is_refused_and_nothing_is_changed(
    fs: SimulatedFileSystem, name: str, source: str
) -> None:
    path = f"/n0/state/{name}"
    own, strange = read(fs, path), read(fs, f"/{source}/state/{name}")
    write(fs, path, strange)
    owner = CONFIGS[source].group + "/" + CONFIGS[source].node
    for _ in range(2):
        with pytest.raises(DataFormatError) as refused:
            ReplicaStore.open(fs, "/n0", CONFIGS["n0"])
        assert str(refused.value).startswith(f"{path}: the file belongs to {owner}, and this node")
        assert read(fs, path) == strange
        assert ("remove state/held" in str(refused.value)) == (name == "held")
    write(fs, path, own)
    ReplicaStore.open(fs, "/n0", CONFIGS["n0"]).close()


@pytest.mark.parametrize("name", NAMES)
def test_a_check_of_the_replica_finds_it(fs: SimulatedFileSystem, name: str) -> None:
    identity = Identity("g", "n0", 1 << 12, 5)
    path = f"/n0/state/{name}"
    before = FindingLog("/n0")
    read_state(fs, "/n0", identity, before)
    assert before.findings == []
    write(fs, path, read(fs, f"/n1/state/{name}"))
    log = FindingLog("/n0")
    read_state(fs, "/n0", identity, log)
    [found] = [each for each in log.findings if "the file of" in each.expected]
    assert (found.path, found.expected, found.found) == (path, "the file of g/n0", "that of g/n1")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_does_not_say_whose_it_is_is_taken_and_says_so_from_then_on(
    fs: SimulatedFileSystem, name: str
) -> None:
    """As those that an earlier version made."""
    path = f"/n0/state/{name}"
    slot = read(fs, path)[:SLOT_SIZE]
    decoded = decode_slot(slot)
    assert decoded is not None
    assert slot_owner(slot) == "g/n0"
    write(fs, path, encode_slot(*decoded) * 2)
    store = ReplicaStore.open(fs, "/n0", CONFIGS["n0"])
    assert (store.recovered.term, store.recovered.vote) == (3, "n1")
    assert store.recovered.held == (SavedEvidence("n1", 6, 0),)
    store.close()
    found = read(fs, path)
    assert [slot_owner(found[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)] == ["g/n0"] * 2


def test_a_save_keeps_the_owner() -> None:
    fs = SimulatedFileSystem(Random(1))
    slots = TwoSlotFile.create(fs, "/", "vote", b"first", "g/n0")
    slots.save(b"second")
    slots.close()
    slots = TwoSlotFile.open(fs, "/vote")
    assert (slots.owner, slots.payload) == ("g/n0", b"second")


@pytest.mark.parametrize("size", [0, 100, PAYLOAD_SIZE_MAX - 20, PAYLOAD_SIZE_MAX])
def test_a_payload_that_leaves_no_room_goes_before_the_owner(size: int) -> None:
    payload = b"x" * size
    slot = encode_slot(7, payload, "a-group/n12")
    assert decode_slot(slot) == (7, payload)
    assert slot_owner(slot) == ("a-group/n12" if size + 16 <= PAYLOAD_SIZE_MAX else "")


@pytest.mark.parametrize("byte", range(SLOT_SIZE - 16, SLOT_SIZE))
def test_an_owner_that_rotted_accuses_nobody(byte: int) -> None:
    slot = bytearray(encode_slot(7, b"x", "a-group/n12"))
    slot[byte] ^= 0x10
    assert slot_owner(bytes(slot)) == ""
    assert decode_slot(bytes(slot)) == (7, b"x")
