"""Which folder of the store may know which: arrows point down only."""

from __future__ import annotations

import pytest

from tests.support.imports import circles, imports_of, room_of

BOTTOM = {"store/errors.py", "store/quoting.py", "store/field_checks.py"}
"""What every folder may know."""

KNOWN = {
    "store/io": set(),
    "store/log": {"store/io"},
    "store/message": {"store/io", "store/log"},
    "store/index": {"store/io", "store/log", "store/message"},
    "store/state": {"store/io", "store/log"},
    "store/recovery": {"store/io", "store/log", "store/state"},
    "store": {
        "store/io",
        "store/log",
        "store/message",
        "store/index",
        "store/state",
        "store/recovery",
    },
}
"""What each folder knows beside itself and :data:`BOTTOM`. The face of a replica is on top."""

VERIFY = (
    "store/verify/files",
    "store/verify/state",
    "store/verify/plan",
    "store/verify/log",
    "store/verify/index",
    "store/verify/replay",
    "store/verify",
)
"""The folders of the check, each of which may know those before it."""

VERIFY_BOTTOM = {"store/verify/findings.py", "store/verify/majority.py"}
"""What every folder of the check may know."""

CHECKED = {"store/io", "store/log", "store/message", "store/index", "store/state"}
"""What the check knows of the store: the layout of what it reads."""

CHECKED_FILES = {"store/recovery/snapshot_install.py"}
"""Beside that, the names of what an install leaves behind."""


@pytest.mark.parametrize("room", KNOWN)
def test_a_folder_of_the_store_knows_only_what_lies_below_it(room: str) -> None:
    for file, imported in imports_of("store").items():
        if room_of(file) == room:
            strange = {
                other
                for other in imported - BOTTOM
                if room_of(other) not in {room, *KNOWN[room]} or file in BOTTOM
            }
            assert not strange, file


@pytest.mark.parametrize("room", VERIFY)
def test_a_folder_of_the_check_knows_those_before_it_and_nothing_that_opens_a_replica(
    room: str,
) -> None:
    known = {*CHECKED, *VERIFY[: VERIFY.index(room) + 1]}
    for file, imported in imports_of("store").items():
        if room_of(file) == room:
            rest = imported - BOTTOM - VERIFY_BOTTOM - CHECKED_FILES
            strange = {other for other in rest if room_of(other) not in known}
            assert not strange or file in VERIFY_BOTTOM, file
            assert not (file in VERIFY_BOTTOM and rest), file


def test_every_folder_of_the_store_has_its_place() -> None:
    assert {room_of(file) for file in imports_of("store")} == {*KNOWN, *VERIFY}


def test_no_files_of_the_store_import_each_other_in_a_circle() -> None:
    assert circles(imports_of("store")) == []


def test_the_store_knows_no_consensus_and_no_broker() -> None:
    others = {file for imported in imports_of("store").values() for file in imported}
    assert {file.partition("/")[0] for file in others} == {"store"}
