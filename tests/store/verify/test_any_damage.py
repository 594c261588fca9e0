"""Whatever lies in a file's place: the check ends, and tells of that replica alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.index.block_seals import SEAL_SUFFIX
from store.io.os_filesystem import OsFileSystem
from store.verify import (
    Finding,
    check_range,
    finish_audit,
    plan_audit,
    verify_replicas,
)
from tests.store.replica_directories import (
    NODES,
    REPLACEMENTS,
    UNREADABLE,
    edit_checkpoint,
    edit_machine,
    write_body,
    write_checkpoint,
    write_format,
    write_keys,
    write_manifest,
    write_replicas,
    write_slots,
)
from tests.store.sample_replica import GROUP
from tests.support.search_effort import searching

pytestmark = pytest.mark.minutes

NEWEST = "state/checkpoint-00000000000000000029"
OLDER = "state/checkpoint-00000000000000000014"
# What may be missing, or hold anything, while nothing that matters has changed.
INDIFFERENT = {"lock", OLDER, "state/tails"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    write_replicas(root)
    return root


Scratch: TypeAlias = Callable[[str], Path]


@pytest.fixture(scope="module")
def scratch(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """Gives a group of replicas that are whole, time after time. Only the named node may be
    altered: the others are not copied again."""
    group = tmp_path_factory.mktemp("altered") / GROUP
    shutil.copytree(whole / GROUP, group)
    altered: list[str] = []

    def copied(node: str) -> Path:
        for each in altered:
            shutil.rmtree(group / each)
            shutil.copytree(whole / GROUP / each, group / each)
        altered[:] = [node]
        return group

    return copied


def names(replica: Path) -> list[str]:
    """Files and directories of a replica."""
    return sorted(str(path.relative_to(replica)) for path in replica.rglob("*"))


def check(group: Path, *, exact: bool = True) -> list[Finding]:
    """What `dledger verify` tells, which an audit of small ranges tells too.

    What only hangs on something that is told may be told of other places: ``exact`` is false.
    """
    fs, directories = OsFileSystem(), [str(group / node) for node in NODES]
    found = verify_replicas(fs, directories).findings
    plan = plan_audit(fs, directories, 3000)
    ranged = list(plan.findings)
    for part in plan.groups:
        results = [check_range(fs, part, number) for number in range(len(part.ranges))]
        ranged += finish_audit(fs, part, results)
    # A lock that cannot be taken is told by who locks, in the place of who makes the plan.
    ranged = [each for each in ranged if not each.path.endswith("/lock")]
    told = [each for each in found if not each.path.endswith("/lock")]
    if exact:
        assert summary(ranged) == summary(told)
    assert {each.replica for each in ranged} == {each.replica for each in told}
    for finding in found:
        assert "\n" not in str(finding)
        str(finding).encode()
    return found


def summary(findings: list[Finding]) -> set[tuple[object, ...]]:
    return {(each.kind, each.replica, each.path, each.index_first) for each in findings}


def told_of(group: Path, node: str) -> list[Finding]:
    """The findings, all of which are about one replica."""
    found = check(group)
    mine = {f"{GROUP}/{node}", str(group / node)}
    others = [str(each) for each in found if each.replica not in mine]
    assert others == []
    return found


def test_whole_replicas_have_no_finding(whole: Path) -> None:
    assert check(whole / GROUP) == []


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("node", ["n0", "n1"])
def test_each_file_that_cannot_be_read_is_told_by_its_name(
    what: str, node: str, scratch: Scratch, whole: Path
) -> None:
    for name in names(whole / GROUP / node):
        group = scratch(node)
        path = group / node / name
        if path.is_dir() and what == "a directory":
            continue
        UNREADABLE[what](path)
        found = told_of(group, node)
        if name == "lock":
            assert [each.path for each in found].count(str(path)) == 1
        assert any(each.path in {str(path), f"{path}/"} for each in found) or any(
            each.path.startswith(f"{path}/") for each in found
        ), (what, name, found)


def test_what_is_left_out_is_told_but_for_what_does_not_matter(
    scratch: Scratch, whole: Path
) -> None:
    for node in ("n0", "n1"):
        for name in names(whole / GROUP / node):
            group = scratch(node)
            REPLACEMENTS["nothing"](group / node / name)
            found = told_of(group, node)
            harmless = name in INDIFFERENT or (node, name) == ("n0", NEWEST) or SEAL_SUFFIX in name
            assert bool(found) != harmless or name == "lock", (node, name, found)


def values(*, keys: bool = False) -> st.SearchStrategy[Any]:
    """Whatever MessagePack and JSON can hold, numbers at the edges first."""
    edges = (-1, 0, 1, 29, 30, 255, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from(edges),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
        st.sampled_from(["", "..", "a/b", "\0", "\n", "x" * 5000]),
    )
    if not keys:
        plain = st.one_of(plain, st.binary(max_size=8))
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=12,
    )


def write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\x01"


records = st.one_of(
    values().map(msgpack.packb),
    st.lists(values(), min_size=2, max_size=8).map(msgpack.packb),
    st.lists(st.sampled_from([-1, 0, 29, 2**62, 2**63 - 1]), min_size=6, max_size=6).map(
        msgpack.packb
    ),
    st.binary(max_size=60),
    st.just(nested(400)),
)


@st.composite
def alterations(draw: st.DrawFn) -> tuple[str, Callable[[Path], None]]:
    """A file of a snapshot, and what is done to it."""
    what = draw(st.sampled_from(sorted(NONSENSE)))
    name, strategy, alter = NONSENSE[what]
    value = draw(strategy)
    return f"{what}: {name}: {value!r:.200}", lambda replica: alter(replica / name, value)


numbers = st.one_of(
    st.integers(-(2**63), 2**64),
    st.sampled_from(["x", "", "zz", "-1", "1e3", "9" * 5000, "\u0664"]),
)
NONSENSE: dict[str, tuple[str, st.SearchStrategy[Any], Callable[[Path, Any], None]]] = {
    "vote": ("state/vote", records, write_slots),
    "mark": ("state/mark", records, write_slots),
    "held": ("state/held", records, write_slots),
    "checkpoint": (NEWEST, records, write_checkpoint),
    "checkpoint field": (
        NEWEST,
        st.tuples(st.integers(0, 7), values()),
        lambda path, one: edit_checkpoint(path, *one),
    ),
    "state": (NEWEST, records, lambda path, value: edit_checkpoint(path, 6, value)),
    "state field": (
        NEWEST,
        st.tuples(st.integers(0, 5), values()),
        lambda path, one: edit_machine(path, *one),
    ),
    "queues": (
        NEWEST,
        st.lists(st.lists(values(), min_size=4, max_size=4), min_size=1, max_size=2),
        lambda path, value: edit_machine(path, 2, value),
    ),
    "manifest field": (
        "manifest.json",
        st.tuples(
            st.sampled_from(["term", "first_index", "commit_index", "end_position", "chain_crc",
                             "time_ms", "group", "node", "format_version", "more"]),
            st.one_of(values(keys=True), st.just("\ud800")),
        ),
        lambda path, one: write_manifest(path, **{one[0]: one[1]}),
    ),
    "manifest text": (
        "manifest.json",
        st.sampled_from([b"[" * 60_000, b'{"a":' * 10_000, b"9" * 10_000, b"{}", b"\xff", b"1e9"]),
        write_bytes,
    ),
    "format": (
        "state/format",
        st.one_of(
            numbers.map(lambda value: {"segment_size": str(value)}),
            numbers.map(lambda value: {"incarnation": str(value)}),
        ),
        write_format,
    ),
    "keys": (
        "keyindex/00000000000000000205",
        st.tuples(
            st.binary(max_size=64).map(lambda data: data[: len(data) // 16 * 16]),
            st.tuples(
                st.integers(-(2**63), 2**63 - 1),
                st.integers(-(2**63), 2**63 - 1),
                st.integers(0, 2**32 - 1),
                st.integers(0, 2**32 - 1),
            ),
        ),
        lambda path, one: write_keys(next(path.parent.iterdir()), *one),
    ),
    "first entry": (f"commitlog/{0:020d}", st.binary(max_size=80), write_body),
}  # fmt: skip


@searching(80)
@given(altered=alterations(), node=st.sampled_from(["n1", "n2"]))
def test_nonsense_behind_right_checksums_is_told(
    altered: tuple[str, Callable[[Path], None]], node: str, scratch: Scratch
) -> None:
    group = scratch(node)
    _what, alter = altered
    alter(group / node)
    found = check(group, exact=False)
    mine = {f"{GROUP}/{node}", str(group / node)}
    assert [str(each) for each in found if each.replica not in mine] == []


@searching(60)
@given(
    place=st.integers(0, 10**6),
    what=st.sampled_from(sorted(REPLACEMENTS)),
    node=st.sampled_from(NODES),
)
def test_anything_in_the_place_of_a_file_leaves_the_others_blameless(
    place: int, what: str, node: str, scratch: Scratch, whole: Path
) -> None:
    group = scratch(node)
    files = [name for name in names(group / node) if (group / node / name).is_file()]
    REPLACEMENTS[what](group / node / files[place % len(files)])
    told_of(group, node)
