"""Compares replicas of one group over the entries that each knows to be committed."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from typing import TypeVar

from store.io.filesystem import ReadableFileSystem
from store.log.layout import segment_name, segment_start
from store.verify.byte_comparison import differing_entries, read_position
from store.verify.files.first_difference import first_difference
from store.verify.findings import RESTORE, UNKNOWN_REPLICA, Finding, FindingKind
from store.verify.majority import majority, proved
from store.verify.replica_report import ReplicaReport

BYTES_SHOWN = 8
ONE_CHAIN = "one chain CRC in all replicas"
NO_MAJORITY = "no majority says which replica is right: stop the group, keep all copies, report it"
NOT_PROVED = (
    "each is whole by itself, so nothing proves which is right: keep all copies, report it; "
    "if nobody can have changed the ones that agree, replace the other"
)
Said = TypeVar("Said", bound=Hashable)


def compare_replicas(
    fs: ReadableFileSystem,
    reports: Sequence[ReplicaReport],
    diverged: Sequence[ReplicaReport] = (),
    contradicting: Sequence[ReplicaReport] = (),
) -> list[Finding]:
    """Where committed entries differ: first by chain CRC, and where those agree byte by byte.

    A replica that lags, or does not know yet that an entry is committed, has no say about it, and
    nor have those ``diverged`` before. Only those ``contradicting`` themselves are accused.
    """
    by_chain: list[ReplicaReport] = [
        report for report in reports if all(report is not other for other in diverged)
    ]
    guilty = frozenset(map(id, contradicting))
    findings = [_still_diverged(report, by_chain, guilty) for report in diverged]
    while len(by_chain) > 1:
        index = _first_divergence(by_chain)
        if index is None:
            break
        said = [
            (report, chain) for report in by_chain if (chain := report.chain(index)) is not None
        ]
        right = _right([(chain, report) for report, chain in said], guilty)
        wrong = [report for report, chain in said if chain != right]
        if right is None:
            findings.append(_undecided(fs, index, said))
        else:
            agreeing = [report for report, chain in said if chain == right]
            findings += [_divergence(fs, report, index, agreeing, guilty) for report in wrong]
        by_chain = [report for report in by_chain if report not in wrong]
    return findings + _compare_bytes(fs, by_chain)


def _right(said: Sequence[tuple[Said, ReplicaReport]], guilty: Container[int]) -> Said | None:
    """What is proved to be right, else what the majority says; see :mod:`store.verify.majority`."""
    right = proved([(value, id(report)) for value, report in said], guilty)
    if right is None:
        right = majority(
            [(value, report.name) for value, report in said if id(report) not in guilty]
        )
    return right


def _accused(report: ReplicaReport, guilty: Container[int]) -> tuple[str, str]:
    """The replica of a finding, and what to do about it."""
    return (report.name, RESTORE) if id(report) in guilty else (UNKNOWN_REPLICA, NOT_PROVED)


def _compare_bytes(fs: ReadableFileSystem, reports: Sequence[ReplicaReport]) -> list[Finding]:
    """Entries with equal chains and different bytes."""
    differing: set[int] = set()
    for place, left in enumerate(reports):
        # All are compared with the first, and with the others only what the first does not have.
        for other in reports[place + 1 :]:
            if place == 0 or other.first_index < reports[0].first_index:
                differing.update(differing_entries(fs, left, other))
    findings: list[Finding] = []
    for index in sorted(differing):
        said = [
            (report, _bytes_of(fs, report, index))
            for report in reports
            if report.chain(index) is not None
        ]
        guilty = frozenset(id(report) for report in reports if _contradicts(report, index))
        wanted = _right([(data, report) for report, data in said], guilty)
        if wanted is None:
            findings.append(_other_bytes(said[0], said[1], index, (), guilty))
            continue
        agreeing = [report for report, data in said if data == wanted]
        right = (agreeing[0], wanted)
        names = tuple(report.name for report in agreeing)
        findings += [
            _other_bytes(one, right, index, names, guilty) for one in said if one[1] != wanted
        ]
    return findings


def _contradicts(report: ReplicaReport, index: int) -> bool:
    """Whether the records of an entry do not have their own CRCs."""
    return any(
        finding.kind is FindingKind.BATCH and finding.index_first == index
        for finding in report.findings
    )


def _bytes_of(fs: ReadableFileSystem, report: ReplicaReport, index: int) -> bytes:
    place = index - report.first_index
    position = report.positions[place]
    return read_position(fs, report, position, report.ends[place] - position)


def _place(report: ReplicaReport, index: int, one: bytes, other: bytes) -> tuple[str, int]:
    """File and byte at which an entry of a replica differs from another one."""
    position = report.positions[index - report.first_index] + first_difference(one, other)
    start = segment_start(position, report.segment_size)
    return f"{report.directory}/commitlog/{segment_name(start)}", position - start


def _other_bytes(
    one: tuple[ReplicaReport, bytes],
    right: tuple[ReplicaReport, bytes],
    index: int,
    agreeing: tuple[str, ...],
    guilty: Container[int],
) -> Finding:
    report, data = one
    other, wanted = right
    path, byte = _place(report, index, data, wanted)
    at = first_difference(data, wanted)
    replica, advice = _accused(report, guilty)
    return Finding(
        FindingKind.DIVERGENCE,
        replica,
        index,
        index,
        path,
        byte,
        f"the same bytes in all replicas, as their CRCs say: {_hex(wanted, at)} as in {other.name}",
        f"{_hex(data, at)} in {report.name}",
        advice if agreeing else NO_MAJORITY,
        agreeing,
    )


def _hex(data: bytes, at: int) -> str:
    return data[at : at + BYTES_SHOWN].hex() or "the end"


def _first_divergence(reports: Sequence[ReplicaReport]) -> int | None:
    """The first committed entry about which two replicas disagree.

    Chain CRCs cover all that came before, so equal ones at the end settle the whole range.
    """
    first = None
    for place, left in enumerate(reports):
        for right in reports[place + 1 :]:
            low = max(left.first_index, right.first_index)
            high = min(left.known_index, right.known_index)
            differing = _first_in(left, right, low, high)
            if differing is not None and (first is None or differing < first):
                first = differing
    return first


def _first_in(left: ReplicaReport, right: ReplicaReport, low: int, high: int) -> int | None:
    if low > high:
        return None
    left_chains = left.chains[low - left.first_index : high + 1 - left.first_index]
    right_chains = right.chains[low - right.first_index : high + 1 - right.first_index]
    if left_chains == right_chains:
        return None
    for index, (one, other) in enumerate(zip(left_chains, right_chains, strict=False), low):
        if one != other and one >= 0 and other >= 0:
            return index
    return None


def _still_diverged(
    report: ReplicaReport, others: Sequence[ReplicaReport], guilty: Container[int]
) -> Finding:
    agreeing = tuple(other.name for other in others)
    replica, advice = _accused(report, guilty)
    return Finding(
        FindingKind.DIVERGENCE,
        replica,
        report.first_index,
        report.known_index,
        report.directory,
        0,
        f"the log of {', '.join(agreeing)}" if agreeing else "the log that the majority had before",
        f"another log since an earlier entry in {report.name}",
        advice,
        agreeing,
    )


def _divergence(
    fs: ReadableFileSystem,
    report: ReplicaReport,
    index: int,
    agreeing: Sequence[ReplicaReport],
    guilty: Container[int],
) -> Finding:
    right = agreeing[0]
    replica, advice = _accused(report, guilty)
    path, byte = _place(report, index, _bytes_of(fs, report, index), _bytes_of(fs, right, index))
    names = tuple(other.name for other in agreeing)
    return Finding(
        FindingKind.DIVERGENCE,
        replica,
        index,
        report.known_index,
        path,
        byte,
        f"chain {right.chain(index):08x} as in {', '.join(names)}",
        f"chain {report.chain(index):08x} in {report.name}",
        advice,
        names,
    )


def _undecided(
    fs: ReadableFileSystem, index: int, said: Sequence[tuple[ReplicaReport, int]]
) -> Finding:
    """The file named is that of the first replica, which need not be the wrong one."""
    first, chain = said[0]
    other = next(report for report, another in said if another != chain)
    path, byte = _place(first, index, _bytes_of(fs, first, index), _bytes_of(fs, other, index))
    return Finding(
        FindingKind.DIVERGENCE,
        UNKNOWN_REPLICA,
        index,
        min(report.known_index for report, _ in said),
        path,
        byte,
        ONE_CHAIN,
        ", ".join(f"{chain:08x} in {report.name}" for report, chain in said),
        NO_MAJORITY,
    )
