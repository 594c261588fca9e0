"""The findings of a group, from the results of all its ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import accumulate

from store.errors import UnreadableError
from store.io.filesystem import ReadableFileSystem
from store.log.log_reader import HoleReason, read_segment
from store.verify.derived_files import DerivedResults, check_derived
from store.verify.files.audit_files import READABLE, AuditFiles
from store.verify.files.first_difference import first_difference
from store.verify.files.unread_files import mark_unread
from store.verify.findings import RESTORE, UNKNOWN_REPLICA, Finding, FindingKind, FindingLog
from store.verify.index.consume_queue_check import ADVICE, QueueCheck
from store.verify.plan.ranges import GroupPlan, RangeKeys, RangeResult, ReplicaRange
from store.verify.plan.task_runner import run_here
from store.verify.replay.broker_state_check import check_broker
from store.verify.replay.commit_claims import ClaimingReplica, check_claims
from store.verify.replay.state_check import (
    check_beginning,
    check_named_entries,
    check_state,
    check_states,
)
from store.verify.replay.state_proof_check import check_proofs
from store.verify.replica_comparison import ONE_CHAIN
from store.verify.state.state_files import StateFiles
from store.verify.state.state_reader import read_state
from store.verify.state.stray_files import check_segments_behind

PIECE_SIZE = 256 << 10
LOST = frozenset({FindingKind.ENTRY, FindingKind.SEGMENT})
# Damage of these kinds that continues in the next range is one finding.
CONTINUING = LOST | {FindingKind.ENTRY_INDEX, FindingKind.DIVERGENCE}


class FoundEntries:
    """The entries that some findings concern."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        spans = sorted(
            (one.index_first, one.index_last)
            for one in findings
            if one.index_first is not None and one.index_last is not None
        )
        self._firsts = [first for first, _ in spans]
        self._furthest = list(accumulate((last for _, last in spans), max))
        """By span, the last entry of it and of all that begin before it."""
        self.begins = frozenset(self._firsts)

    def overlap(self, first: int, last: int) -> bool:
        """Whether an entry from ``first`` to ``last`` is among them."""
        behind = bisect_right(self._firsts, last)
        return behind > 0 and self._furthest[behind - 1] >= first


NOTHING_FOUND = FoundEntries(())


def finish_audit(
    fs: ReadableFileSystem,
    group: GroupPlan,
    results: Sequence[RangeResult],
    derived: DerivedResults | None = None,
) -> list[Finding]:
    """All findings of a group, except those of the plan.

    ``derived`` is the result of :func:`~store.verify.derived_files.check_derived`, which runs here
    by default.
    """
    if derived is None:
        (derived,) = check_derived(fs, run_here(fs), [group], [results])
    findings = merge_findings(derived.results)
    files = AuditFiles(fs, group.listing)
    planned: list[Finding] = []
    holders: list[ClaimingReplica] = []
    proofs: set[tuple[int, int]] = set()
    for place, replica in enumerate(group.replicas):
        small, log = FindingLog(replica.name), FindingLog(replica.name)
        state = read_state(fs, replica.directory, replica.identity, small)
        planned += small.findings
        last_index, proved = _finish_replica(files, group, place, state, derived, log)
        holders.append(ClaimingReplica(replica.name, state, last_index))
        proofs |= {(place, index) for index in proved}
        parts = derived.parts_of(place)
        last_term = max((part.last_term for part in parts), default=0)
        is_reported = any(finding.kind is FindingKind.VOTE for finding in small.findings)
        if last_term > state.hard_state.term and not is_reported:
            expected = f"at least the log's last term, {last_term}"
            found, last = f"term {state.hard_state.term}", max(part.last_index for part in parts)
            log.add(FindingKind.VOTE, state.vote_path, 0, expected, found, first=last)
        findings += log.findings
    findings += check_claims(holders)
    findings += check_states(group, [*planned, *findings], proofs)
    reported = {finding.path for finding in findings if finding.expected == READABLE}
    names = {replica.directory: replica.name for replica in group.replicas}
    unread = {finding.path: finding for finding in files.findings(names)} | derived.unread
    findings += [unread[path] for path in sorted(unread) if path not in reported]
    some: dict[tuple[str, FindingKind], list[Finding]] = {}
    for finding in findings:
        some.setdefault((finding.replica, finding.kind), []).append(finding)
    by_replica = {key: FoundEntries(of_key) for key, of_key in some.items()}
    with_majority = [_with_majority(finding, group, by_replica) for finding in findings]
    accused = [_accuse_by_chain(finding, group, by_replica) for finding in with_majority]
    placed = [_moved_to_difference(fs, finding, group) for finding in accused]
    return mark_unread(fs, placed, planned)


def _finish_replica(  # noqa: PLR0917 - one replica, as the caller has it
    files: AuditFiles,
    group: GroupPlan,
    place: int,
    state: StateFiles,
    derived: DerivedResults,
    log: FindingLog,
) -> tuple[int, set[int]]:
    """Checks one replica over all ranges.

    Returns its last entry, which may be lost, and the entries of the checkpoints whose state
    follows from the log.
    """
    fs, directory = files.below, group.replicas[place].directory
    parts = derived.parts_of(place)
    log.findings += derived.segments.get(place, ())
    end = max([state.durable_position, *(part.end_position for part in parts)])
    if state.machine is not None or state.checkpoint is None:
        queues = QueueCheck(files, state, directory, log)
        for part in parts:
            queues.absorb(part.queues)
        queues.finish(end, derived.queues.get(place, {}), derived.wrong.get(place, {}))
        _report_missing(directory, [part.keys for part in parts], log)
    there = [
        part.last_index
        for result in derived.results
        for part in result.parts
        if part.place == place and part.last_index >= result.first_index
    ]
    check_named_entries(state, max(there, default=state.mark.first_index - 1), log)
    check_state(state, parts, log)
    check_proofs(files, state, parts, log)
    proved = check_broker(fs, state, parts, log)
    check_beginning(state, parts, log)
    _check_older_checkpoints(files, directory, state, parts, log)
    check_segments_behind(fs, f"{directory}/commitlog", group.listing, state, log, end=end)
    return max(there, default=-1), proved


def _accuse_by_chain(
    finding: Finding,
    group: GroupPlan,
    by_replica: Mapping[tuple[str, FindingKind], FoundEntries],
) -> Finding:
    """Names the replica that is wrong about an entry, if its own next entry does not continue the
    chain: then its log contradicts itself."""
    if finding.kind is not FindingKind.DIVERGENCE or finding.replica != UNKNOWN_REPLICA:
        return finding
    for replica in group.replicas:
        if finding.majority and f"{finding.path}/".startswith(f"{replica.directory}/"):
            behind = (finding.index_first or 0) + 1
            breaks = by_replica.get((replica.name, FindingKind.ENTRY), NOTHING_FOUND)
            if behind in breaks.begins:
                return replace(finding, replica=replica.name, advice=RESTORE)
    return finding


def _with_majority(
    finding: Finding,
    group: GroupPlan,
    by_replica: Mapping[tuple[str, FindingKind], FoundEntries],
) -> Finding:
    """Adds the replicas that agree against the finding, if they are a majority of the group.

    They know these entries, and have no finding of this kind about them.
    """
    first, last = finding.index_first, finding.index_last
    if finding.majority or finding.replica == UNKNOWN_REPLICA or first is None or last is None:
        return finding
    agreeing = (
        replica.name
        for replica in group.replicas
        if replica.name != finding.replica
        and replica.first_index <= first
        and last <= replica.known_index
        and not any(
            by_replica.get((name, kind), NOTHING_FOUND).overlap(first, last)
            for name in (replica.name, UNKNOWN_REPLICA)
            for kind in {finding.kind: None, FindingKind.DIVERGENCE: None}
        )
    )
    agree = tuple(dict.fromkeys(agreeing))
    if 2 * len(agree) <= len({replica.name for replica in group.replicas}):
        return finding
    return replace(finding, majority=agree)


def _moved_to_difference(fs: ReadableFileSystem, finding: Finding, group: GroupPlan) -> Finding:
    """Moves the finding of a damaged entry to the first byte that differs from the majority's file.

    The entry alone says only that its CRC is wrong.
    """
    if finding.kind is not FindingKind.ENTRY or not finding.majority:
        return finding
    directories = {replica.name: replica.directory for replica in group.replicas}
    own = directories[finding.replica]
    path = directories[finding.majority[0]] + finding.path.removeprefix(own)
    with ExitStack() as opened:
        try:
            files = [fs.open(one, writable=False) for one in (finding.path, path)]
            for file in files:
                opened.callback(file.close)
            for at in range(finding.position, group.segment_size, PIECE_SIZE):
                one, other = (read_segment(file, PIECE_SIZE, at) for file in files)
                if HoleReason.EIO in {one.missing, other.missing}:
                    break
                if one.data != other.data:
                    return replace(finding, position=at + first_difference(one.data, other.data))
                if not one.data:
                    break
        except (OSError, UnreadableError):
            pass  # the unreadable bytes are the finding
    return finding


def _report_missing(directory: str, ranges: Sequence[RangeKeys], log: FindingLog) -> None:
    """Reports key rows that no file has, unless their records have expired."""
    missing = [keys.missing for keys in ranges if keys.missing is not None]
    expired = max((keys.expired_position for keys in ranges), default=0)
    if missing and missing[-1].position >= expired:
        log.add(
            FindingKind.KEY_INDEX,
            f"{directory}/keyindex",
            0,
            f"a file with the keys of the record at position {missing[-1].position}",
            "none",
            ADVICE,
            first=missing[0].index_first,
            last=missing[-1].index_last,
        )


def _check_older_checkpoints(
    fs: ReadableFileSystem,
    directory: str,
    state: StateFiles,
    parts: Sequence[ReplicaRange],
    log: FindingLog,
) -> None:
    """Checks where queues end in older checkpoints, and where they begin if nothing has expired
    since."""
    for place, older in enumerate(state.older, 1):
        if older.machine is None or state.machine is None:
            continue
        at_once = replace(state, checkpoints=state.checkpoints[:place])
        queues = QueueCheck(fs, at_once, directory, log)
        for part in parts:
            if part.last_index <= older.index:
                queues.absorb(part.queues, reported=True)
        queues.check_lengths(
            begins=older.machine.expired_position == state.machine.expired_position
        )


def merge_findings(ordered: Sequence[RangeResult]) -> list[Finding]:
    """The findings of all ranges. Damage over several ranges is one finding."""
    merged = MergedFindings()
    for result in ordered:
        for finding in result.findings:
            merged.add(finding, result.first_index)
    return merged.findings


class MergedFindings:
    """Findings, of which only those that a new one may continue are compared with it."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._by_place: dict[tuple[str, FindingKind, str, int], list[int]] = {}
        """By replica, kind, file and byte: the numbers of findings that the same there continue."""
        self._by_end: dict[tuple[str, int | None], list[int]] = {}
        """By replica and last entry: the numbers of findings that the next entry may continue."""

    def add(self, finding: Finding, first_index: int) -> None:
        """Takes a finding of a range that begins with ``first_index``."""
        at = finding.replica, finding.kind, finding.path, finding.position
        earlier = (
            *self._by_place.get(at, ()),
            *self._by_end.get((finding.replica, first_index - 1), ()),
        )
        continued = (
            number for number in earlier if _continues(self.findings[number], finding, first_index)
        )
        number = max(continued, default=None)
        if number is None:
            number = len(self.findings)
            self.findings.append(finding)
            if finding.expected == READABLE or finding.kind not in CONTINUING:
                self._by_place.setdefault(at, []).append(number)
                return
        else:
            before = self.findings[number]
            last = before.index_last
            if finding.index_last is not None and last is not None:
                last = max(last, finding.index_last)
            self.findings[number] = finding = replace(before, index_last=last)
            if finding.kind not in CONTINUING or last == before.index_last:
                return
        self._by_end.setdefault((finding.replica, finding.index_last), []).append(number)


def _continues(before: Finding, finding: Finding, first_index: int) -> bool:
    """Whether ``finding``, of a range that begins with ``first_index``, continues ``before``."""
    if before.replica != finding.replica:
        return False
    if READABLE in {before.expected, finding.expected}:
        return before == finding
    if finding.kind is FindingKind.PADDING:
        # The rest of a segment behind a lost entry is not read.
        return before.kind in LOST and before.index_last == first_index - 1
    same_file = before.path == finding.path
    if before.kind is finding.kind and finding.kind not in CONTINUING:
        return same_file and before.position == finding.position
    follows = before.index_last == first_index - 1 and finding.index_first == first_index
    if before.kind in LOST and finding.kind in LOST:
        return follows
    if before.kind is not finding.kind or not follows:
        return False
    # Different bytes with equal chain CRCs give a finding for each entry; its path is a file. A
    # replica with another log gives one for each later range; its path is the directory. Without a
    # majority, the path is that of any of the replicas.
    still = before.path.startswith(f"{finding.path}/") or (
        before.expected == finding.expected == ONE_CHAIN
    )
    return same_file or still or finding.kind is FindingKind.ENTRY_INDEX
