"""Which folder of the consensus may know which: ``raft`` lies below ``wire``, ``node`` on top."""

from __future__ import annotations

import pytest

from tests.support.imports import circles, imports_of, room_of

FACE = {"store/replica.py", "store/snapshot.py"}
"""What of the store's upper half the node knows: the face of a replica."""

KNOWN = {
    "dledger": set(),
    "dledger/raft": {"dledger", "store", "store/io", "store/log"},
    "dledger/wire": {"dledger", "dledger/raft", "store", "store/io", "store/log"},
    "dledger/node": {
        "dledger",
        "dledger/raft",
        "dledger/wire",
        "store",
        "store/io",
        "store/log",
        "store/state",
        "store/recovery",
    },
}
"""What each folder knows beside itself."""


@pytest.mark.parametrize("room", KNOWN)
def test_a_folder_of_the_consensus_knows_only_what_lies_below_it(room: str) -> None:
    for file, imported in imports_of("dledger").items():
        if room_of(file) == room:
            strange = {other for other in imported if room_of(other) not in {room, *KNOWN[room]}}
            assert not strange, file


@pytest.mark.parametrize("room", ["dledger/raft", "dledger/wire"])
def test_below_the_node_nothing_knows_what_opens_a_replica(room: str) -> None:
    for file, imported in imports_of("dledger").items():
        if room_of(file) == room:
            assert not imported & FACE, file


def test_every_folder_of_the_consensus_has_its_place() -> None:
    assert {room_of(file) for file in imports_of("dledger")} == KNOWN.keys()


def test_no_files_of_the_consensus_import_each_other_in_a_circle() -> None:
    assert circles(imports_of("dledger")) == []


def test_no_part_of_a_node_knows_the_node_or_what_drives_its_core() -> None:
    whole = {"dledger/node/node.py", "dledger/node/core_driver.py"}
    assert {file for file, imported in imports_of("dledger").items() if imported & whole} <= whole
