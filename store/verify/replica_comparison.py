"""Compares replicas of one group over the entries that each knows to be committed.

It compares chain CRCs first, then entries with equal chain CRCs byte by byte: different bytes have
equal CRCs with a chance of 2^-32.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from contextlib import closing

from store.io.filesystem import ReadableFileSystem
from store.log.layout import segment_start
from store.log.log_reader import LogReader, SegmentFiles
from store.verify.files.first_difference import first_difference
from store.verify.findings import RESTORE, UNKNOWN_REPLICA, Finding, FindingKind, FindingLog
from store.verify.majority import right_value
from store.verify.replica_report import ReplicaReport

READ_SIZE = 4 << 20
BYTES_SHOWN = 8
ONE_CHAIN = "one chain CRC in all replicas"
NO_MAJORITY = "no majority says which replica is right: stop the group, keep all copies, report it"
NOT_PROVED = (
    "each is whole by itself, so nothing proves which is right: keep all copies, report it; "
    "if nobody can have changed the ones that agree, replace the other"
)


def compare_replicas(
    fs: ReadableFileSystem,
    reports: Sequence[ReplicaReport],
    diverged: Sequence[ReplicaReport] = (),
    contradicting: Sequence[ReplicaReport] = (),
) -> list[Finding]:
    """Findings where committed entries differ.

    A replica does not count for an entry that it lacks or does not know to be committed. Replicas
    that ``diverged`` in an earlier range do not count at all. Only replicas ``contradicting``
    themselves are named as wrong.
    """
    comparison = _Comparison(fs)
    others = [report for report in reports if all(report is not other for other in diverged)]
    guilty = frozenset(map(id, contradicting))
    for report in diverged:
        comparison.report_still_diverged(report, others, guilty)
    while (index := _first_divergence(others)) is not None:
        said = [(report, chain) for report in others if (chain := report.chain(index)) is not None]
        right = right_value([(chain, id(one), one.name) for one, chain in said], guilty)
        wrong = [report for report, chain in said if chain != right]
        agreeing = [report for report, chain in said if chain == right]
        if agreeing:
            for report in wrong:
                comparison.report_chain(report, index, agreeing, guilty)
        else:
            comparison.report_undecided(index, said)
        others = [report for report in others if report not in wrong]
    comparison.compare_bytes(others)
    return comparison.findings


class _Comparison:
    """Collects the findings."""

    def __init__(self, fs: ReadableFileSystem) -> None:
        self._fs = fs
        self.findings: list[Finding] = []

    def compare_bytes(self, reports: Sequence[ReplicaReport]) -> None:
        """Entries with equal chain CRCs and different bytes."""
        differing: set[int] = set()
        for place, left in enumerate(reports):
            # All are compared with the first. If the first lacks entries, also with each other.
            for other in reports[place + 1 :]:
                if place == 0 or other.first_index < reports[0].first_index:
                    differing.update(self._differing(left, other))
        for index in sorted(differing):
            said = [
                (one, self._bytes_of(one, index)) for one in reports if one.chain(index) is not None
            ]
            guilty = frozenset(id(one) for one in reports if _contradicts(one, index))
            right = right_value([(data, id(one), one.name) for one, data in said], guilty)
            if right is None:
                self._report_bytes(said[0], said[1], index, (), guilty)
                continue
            agreeing = [one for one, data in said if data == right]
            names = tuple(one.name for one in agreeing)
            for one, data in said:
                if data != right:
                    self._report_bytes((one, data), (agreeing[0], right), index, names, guilty)

    def _differing(self, left: ReplicaReport, right: ReplicaReport) -> Iterator[int]:
        """Entries that both know, with different bytes. A long entry may be repeated."""
        low = max(left.first_index, right.first_index)
        high = min(left.known_index, right.known_index, left.first_index + len(left.ends) - 1)
        if low > high:
            return
        begin, end = left.positions[low - left.first_index], left.ends[high - left.first_index]
        while begin < end:
            stop = segment_start(begin, left.segment_size) + left.segment_size
            stop = min(stop, end, begin + READ_SIZE)
            ours, theirs = (self._read(one, begin, stop - begin) for one in (left, right))
            if ours != theirs:
                for index, first, last in _entries_between(left, begin, stop, (low, high)):
                    place = slice(first - begin, last - begin)
                    if ours[place] != theirs[place] and right.chain(index) is not None:
                        yield index
            begin = stop

    def _read(self, report: ReplicaReport, position: int, size: int) -> bytes:
        """Bytes of a replica's log: fewer if its file ends, none if the file is missing."""
        with closing(SegmentFiles(self._fs, report.directory, report.segment_size)) as files:
            return bytes(LogReader(files).read(position, size).data)

    def _bytes_of(self, report: ReplicaReport, index: int) -> bytes:
        place = index - report.first_index
        position = report.positions[place]
        return self._read(report, position, report.ends[place] - position)

    def _report(
        self,
        accused: ReplicaReport | None,
        place: tuple[str, int],
        texts: tuple[str, str, str],
        indexes: tuple[int, int],
        agreeing: tuple[str, ...],
    ) -> None:
        """``texts``: expected, found, and the advice if ``accused`` is ``None``."""
        log = FindingLog(UNKNOWN_REPLICA if accused is None else accused.name)
        expected, found, advice = texts
        log.add(
            FindingKind.DIVERGENCE,
            *place,
            expected,
            found,
            advice if accused is None or advice == NO_MAJORITY else RESTORE,
            first=indexes[0],
            last=indexes[1],
            majority=agreeing,
        )
        self.findings += log.findings

    def _place(self, report: ReplicaReport, other: ReplicaReport, index: int) -> tuple[str, int]:
        """File and byte at which an entry of a replica differs from that of another one."""
        at = first_difference(self._bytes_of(report, index), self._bytes_of(other, index))
        position = report.positions[index - report.first_index] + at
        return SegmentFiles(self._fs, report.directory, report.segment_size).locate(position)

    def report_still_diverged(
        self, report: ReplicaReport, others: Sequence[ReplicaReport], guilty: Container[int]
    ) -> None:
        agreeing = tuple(other.name for other in others)
        expected = f"the log of {', '.join(agreeing)}"
        if not agreeing:
            expected = "the log that the majority had before"
        found = f"another log since an earlier entry in {report.name}"
        indexes = (report.first_index, report.known_index)
        accused = report if id(report) in guilty else None
        self._report(
            accused, (report.directory, 0), (expected, found, NOT_PROVED), indexes, agreeing
        )

    def report_chain(
        self,
        report: ReplicaReport,
        index: int,
        agreeing: Sequence[ReplicaReport],
        guilty: Container[int],
    ) -> None:
        names = tuple(other.name for other in agreeing)
        expected = f"chain {agreeing[0].chain(index):08x} as in {', '.join(names)}"
        found = f"chain {report.chain(index):08x} in {report.name}"
        accused = report if id(report) in guilty else None
        place = self._place(report, agreeing[0], index)
        texts = (expected, found, NOT_PROVED)
        self._report(accused, place, texts, (index, report.known_index), names)

    def report_undecided(self, index: int, said: Sequence[tuple[ReplicaReport, int]]) -> None:
        """The path is that of the first replica, which may be right."""
        first, chain = said[0]
        other = next(report for report, another in said if another != chain)
        found = ", ".join(f"{chain:08x} in {report.name}" for report, chain in said)
        last = min(report.known_index for report, _ in said)
        place = self._place(first, other, index)
        self._report(None, place, (ONE_CHAIN, found, NO_MAJORITY), (index, last), ())

    def _report_bytes(
        self,
        one: tuple[ReplicaReport, bytes],
        right: tuple[ReplicaReport, bytes],
        index: int,
        agreeing: tuple[str, ...],
        guilty: Container[int],
    ) -> None:
        (report, data), (other, wanted) = one, right
        at = first_difference(data, wanted)
        shown, wrong = (each[at : at + BYTES_SHOWN].hex() or "the end" for each in (wanted, data))
        expected = f"the same bytes in all replicas, as their CRCs say: {shown} as in {other.name}"
        texts = (expected, f"{wrong} in {report.name}", NOT_PROVED if agreeing else NO_MAJORITY)
        accused = report if id(report) in guilty else None
        self._report(accused, self._place(report, other, index), texts, (index, index), agreeing)


def _contradicts(report: ReplicaReport, index: int) -> bool:
    """Whether an entry contradicts itself: its records do not have their own CRCs."""
    return any(
        finding.kind is FindingKind.BATCH and finding.index_first == index
        for finding in report.findings
    )


def _entries_between(
    report: ReplicaReport, begin: int, stop: int, indexes: tuple[int, int]
) -> Iterator[tuple[int, int, int]]:
    """Readable entries that overlap a range of positions: index, begin and end of the overlap."""
    low, high = indexes
    place = bisect_right(report.ends, begin, low - report.first_index)
    last = bisect_left(report.positions, stop, place, high + 1 - report.first_index)
    for number in range(place, last):
        index = number + report.first_index
        if report.chain(index) is not None:
            yield index, max(report.positions[number], begin), min(report.ends[number], stop)


def _first_divergence(reports: Sequence[ReplicaReport]) -> int | None:
    """The first committed entry with different chain CRCs in two replicas.

    A chain CRC covers all entries before it.
    """
    found = []
    for place, left in enumerate(reports):
        for right in reports[place + 1 :]:
            low = max(left.first_index, right.first_index)
            high = min(left.known_index, right.known_index)
            ours, theirs = (
                one.chains[low - one.first_index : max(high, low - 1) + 1 - one.first_index]
                for one in (left, right)
            )
            if ours != theirs:
                pairs = enumerate(zip(ours, theirs, strict=False), low)
                differ = (index for index, (one, other) in pairs if one != other)
                readable = (index for index in differ if _both_known(left, right, index))
                found += [index for index in (next(readable, None),) if index is not None]
    return min(found, default=None)


def _both_known(left: ReplicaReport, right: ReplicaReport, index: int) -> bool:
    return left.chain(index) is not None and right.chain(index) is not None
