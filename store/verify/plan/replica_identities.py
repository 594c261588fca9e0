"""Whether the directories of a check are different replicas of one group.

Only replicas that are kept apart say something about each other: a copy of a disk, or one directory
under two names, agrees with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from store.io.filesystem import ReadableFileSystem
from store.state.format_file import FORMAT_NAME, Identity
from store.verify.findings import UNKNOWN_REPLICA, Finding, FindingKind
from store.verify.majority import majority

ONE_EACH = "give each replica once: what is copied from one node says nothing about another"
ONE_GROUP = "give the replicas of one group"
ONE_SIZE = "a replica of another group, or made with another configuration: give the right one"


def distinct_directories(
    fs: ReadableFileSystem, directories: Sequence[str]
) -> tuple[list[str], list[Finding]]:
    """The directories without those that another one leads to as well, and what to tell of these.

    Who names one twice by the same path has it checked once, and is told nothing.
    """
    found: dict[str, str] = {}
    findings = []
    for directory in dict.fromkeys(one.rstrip("/") or "/" for one in directories):
        first = found.setdefault(fs.identify(directory), directory)
        if first != directory:
            what = f"{directory} is the same directory"
            findings.append(_finding(first, first, "a directory of its own", what, ONE_EACH))
    return list(found.values()), findings


PARTS = ("state", "commitlog", "index", "consumequeue", "keyindex")
"""Directories that a replica has for itself."""


def check_shared(fs: ReadableFileSystem, directories: Iterable[str]) -> list[Finding]:
    """Tells of directories that two replicas have in common, by a link: they agree with themselves.

    Which of the two has the link is not told.
    """
    findings = []
    seen: dict[str, tuple[str, str]] = {}
    for directory in directories:
        for part in PARTS:
            path = f"{directory}/{part}"
            owner, first = seen.setdefault(fs.identify(path), (directory, path))
            if owner != directory:
                findings.append(
                    Finding(
                        FindingKind.DIVERGENCE,
                        UNKNOWN_REPLICA,
                        None,
                        None,
                        path,
                        0,
                        "a directory of its own",
                        f"the same directory as {first}",
                        ONE_EACH,
                    )
                )
    return findings


def check_identities(identities: Mapping[str, Identity]) -> list[Finding]:
    """What is wrong with the replicas, by their directories, as a group of replicas."""
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
            findings.append(_finding(directory, _name(identity), expected, what, ONE_EACH))
    return findings + _check_sizes(identities) + _check_groups(identities)


def _check_sizes(identities: Mapping[str, Identity]) -> list[Finding]:
    """Segments are of one size in all replicas of a group."""
    findings = []
    for group in dict.fromkeys(identity.group for identity in identities.values()):
        members = {where: one for where, one in identities.items() if one.group == group}
        sizes = sorted({one.segment_size for one in members.values()})
        if len(sizes) < 2:
            continue
        right = majority([(one.segment_size, _name(one)) for one in members.values()])
        told = "segments of {} bytes".format(" and ".join(map(str, sizes)))
        if right is None:
            where = next(iter(members))
            expected = "segments of one size in all replicas"
            findings.append(_finding(where, UNKNOWN_REPLICA, expected, told, ONE_SIZE))
        findings += [
            _finding(
                where,
                _name(one),
                f"segments of {right} bytes, as in the others",
                f"segments of {one.segment_size} bytes",
                ONE_SIZE,
            )
            for where, one in members.items()
            if right is not None and one.segment_size != right
        ]
    return findings


def _check_groups(identities: Mapping[str, Identity]) -> list[Finding]:
    """Replicas of different groups cannot agree; one alone was given by mistake."""
    groups: dict[str, list[str]] = {}
    for directory, identity in identities.items():
        groups.setdefault(identity.group, []).append(directory)
    if len(groups) < 2:
        return []
    return [
        _finding(
            directories[0],
            _name(identities[directories[0]]),
            "another replica of its group beside it",
            f"the groups {', '.join(sorted(groups))}",
            ONE_GROUP,
        )
        for directories in groups.values()
        if len(directories) == 1
    ]


def _name(identity: Identity) -> str:
    return f"{identity.group}/{identity.node}"


def _finding(directory: str, replica: str, expected: str, found: str, advice: str) -> Finding:
    return Finding(
        FindingKind.DIVERGENCE if replica == UNKNOWN_REPLICA else FindingKind.FORMAT,
        replica,
        None,
        None,
        f"{directory}/state/{FORMAT_NAME}",
        0,
        expected,
        found,
        advice,
    )
