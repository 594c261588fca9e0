"""Checks that the directories of a check are different replicas of one group.

A copy of a disk, or one directory under two names, would only agree with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from store.io.filesystem import ReadableFileSystem
from store.state.format_file import FORMAT_NAME, Identity
from store.verify.findings import UNKNOWN_REPLICA, Finding, FindingKind, FindingLog
from store.verify.majority import majority

ONE_EACH = "give each replica once: what is copied from one node says nothing about another"
ONE_GROUP = "give the replicas of one group"
ONE_SIZE = "a replica of another group, or made with another configuration: give the right one"
PARTS = ("state", "commitlog", "index", "consumequeue", "keyindex")
"""Directories that belong to one replica alone."""


def distinct_directories(
    fs: ReadableFileSystem, directories: Sequence[str]
) -> tuple[list[str], list[Finding]]:
    """The directories, each once, and findings about second paths to the same directory.

    The same path twice is no finding.
    """
    found: dict[str, str] = {}
    findings = []
    for directory in dict.fromkeys(one.rstrip("/") or "/" for one in directories):
        first = found.setdefault(fs.identify(directory), directory)
        if first != directory:
            what = f"{directory} is the same directory"
            findings += _finding(first, first, "a directory of its own", what, ONE_EACH)
    return list(found.values()), findings


def check_shared(fs: ReadableFileSystem, directories: Iterable[str]) -> list[Finding]:
    """Findings about directories that two replicas share by a link. Either may have the link."""
    log = FindingLog(UNKNOWN_REPLICA)
    seen: dict[str, tuple[str, str]] = {}
    for directory in directories:
        for part in PARTS:
            path = f"{directory}/{part}"
            owner, first = seen.setdefault(fs.identify(path), (directory, path))
            if owner != directory:
                found = f"the same directory as {first}"
                log.add(FindingKind.DIVERGENCE, path, 0, "a directory of its own", found, ONE_EACH)
    return log.findings


def check_identities(identities: Mapping[str, Identity]) -> list[Finding]:
    """Findings unless the replicas, by directory, are different ones of one group."""
    findings: list[Finding] = []
    seen: dict[tuple[str, object], str] = {}
    for directory, identity in identities.items():
        keys: list[tuple[str, object]] = [(identity.group, identity.node)]
        if identity.incarnation:
            keys.append((identity.group, identity.incarnation))
        first = next((seen[key] for key in keys if key in seen), None)
        for key in keys:
            seen.setdefault(key, directory)
        if first is not None:
            what = f"the disk of {_name(identities[first])} a second time, as in {first}"
            expected = "another replica of the group"
            findings += _finding(directory, _name(identity), expected, what, ONE_EACH)
    return findings + _check_sizes(identities) + _check_groups(identities)


def _check_sizes(identities: Mapping[str, Identity]) -> list[Finding]:
    """Findings unless all replicas of a group have segments of one size."""
    findings = []
    for group in dict.fromkeys(identity.group for identity in identities.values()):
        members = {where: one for where, one in identities.items() if one.group == group}
        sizes = sorted({one.segment_size for one in members.values()})
        if len(sizes) < 2:
            continue
        right = majority([(one.segment_size, _name(one)) for one in members.values()])
        if right is None:
            expected = "segments of one size in all replicas"
            found = f"segments of {' and '.join(map(str, sizes))} bytes"
            findings += _finding(next(iter(members)), UNKNOWN_REPLICA, expected, found, ONE_SIZE)
            continue
        expected = f"segments of {right} bytes, as in the others"
        for where, one in members.items():
            if one.segment_size != right:
                found = f"segments of {one.segment_size} bytes"
                findings += _finding(where, _name(one), expected, found, ONE_SIZE)
    return findings


def _check_groups(identities: Mapping[str, Identity]) -> list[Finding]:
    """Findings about single replicas of a group: several groups are checked, so it is a mistake."""
    groups: dict[str, list[str]] = {}
    for directory, identity in identities.items():
        groups.setdefault(identity.group, []).append(directory)
    findings = []
    for first, *others in groups.values():
        if len(groups) > 1 and not others:
            expected, found = "another replica of its group beside it", ", ".join(sorted(groups))
            name = _name(identities[first])
            findings += _finding(first, name, expected, f"the groups {found}", ONE_GROUP)
    return findings


def _name(identity: Identity) -> str:
    return f"{identity.group}/{identity.node}"


def _finding(directory: str, replica: str, expected: str, found: str, advice: str) -> list[Finding]:
    log = FindingLog(replica)
    kind = FindingKind.DIVERGENCE if replica == UNKNOWN_REPLICA else FindingKind.FORMAT
    log.add(kind, f"{directory}/state/{FORMAT_NAME}", 0, expected, found, advice)
    return log.findings
