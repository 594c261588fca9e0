"""The plan of a check: ranges of the log that can be checked one by one.

It reads the small files, and for each border a few rows of the entry index and headers of the log.
The chain CRCs in those headers already show which replicas have another log than the majority, and
from which border on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from store.errors import DamagedError
from store.io.filesystem import ReadableFileSystem
from store.state.format_file import Identity
from store.verify.files.audit_files import AuditFiles
from store.verify.files.directory_listing import list_replica
from store.verify.files.read_buffers import Buffers
from store.verify.findings import RESTORE, Finding, FindingKind, FindingLog
from store.verify.majority import majority, right_value
from store.verify.plan.range_borders import BLOCK_ROWS, BorderFinder
from store.verify.plan.ranges import AuditPlan, Border, GroupPlan, RangePlan, ReplicaPlan
from store.verify.plan.replica_identities import check_identities, check_shared
from store.verify.plan.task_runner import TaskRunner, run_here
from store.verify.state.state_reader import read_identity, read_state
from store.verify.state.stray_files import check_names

RANGE_BYTES = 256 << 20
BORDERS_TRIED = 16
"""A border moves by at most this many entries, until a replica has an intact header there."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The replicas of one group, and the size of its ranges."""

    group: str
    segment_size: int
    replicas: tuple[tuple[str, Identity], ...]
    """Directory and identity of each."""
    range_bytes: int


def plan_audit(
    fs: ReadableFileSystem,
    directories: Sequence[str],
    range_bytes: int = RANGE_BYTES,
    run: TaskRunner | None = None,
) -> AuditPlan:
    """The ranges over replicas, of about ``range_bytes`` bytes each, group by group.

    ``run`` runs the planning of each group, by default in this process. Raises
    :class:`~store.errors.DataFormatError` if a directory is no replica of a known format.
    """
    findings: list[Finding] = []
    groups: dict[tuple[str, int], list[tuple[str, Identity]]] = {}
    identities: dict[str, Identity] = {}
    for directory in dict.fromkeys(one.rstrip("/") for one in directories):
        try:
            identity = read_identity(fs, directory)
        except DamagedError as error:
            findings += _unidentified_finding(directory, error)
            continue
        identities[directory] = identity
        key = (identity.group, identity.segment_size)
        groups.setdefault(key, []).append((directory, identity))
    members = [GroupMembers(*key, tuple(some), range_bytes) for key, some in groups.items()]
    plans = (run or run_here(fs))(plan_group, [None], [(0, one) for one in members])
    findings += [finding for _, found in plans for finding in found]
    findings += check_identities(identities)
    findings += check_shared(fs, identities)
    return AuditPlan(tuple(plan for plan, _ in plans), tuple(findings))


def plan_group(
    fs: ReadableFileSystem, _shared: object, members: GroupMembers, _buffers: Buffers
) -> tuple[GroupPlan, list[Finding]]:
    """The plan of one group, and findings about its small files."""
    findings: list[Finding] = []
    finders: list[BorderFinder] = []
    listing: dict[str, tuple[str, ...] | None] = {}
    for directory, identity in members.replicas:
        listing |= list_replica(AuditFiles(fs), directory)
        log = FindingLog(f"{identity.group}/{identity.node}")
        state = read_state(fs, directory, identity, log)
        check_names(fs, directory, listing, state, log)
        findings += log.findings
        # The check of the ranges reports what cannot be read.
        finders.append(BorderFinder(AuditFiles(fs, listing), directory, state))
    try:
        contradicting = frozenset(
            place for place, finder in enumerate(finders) if finder.contradicts_itself()
        )
        ranges = tuple(_plan_ranges(finders, members.range_bytes, contradicting))
    finally:
        for finder in finders:
            finder.close()
    replicas = tuple(finder.replica for finder in finders)
    plan = GroupPlan(members.group, members.segment_size, replicas, ranges, contradicting, listing)
    return plan, findings


def _plan_ranges(
    finders: Sequence[BorderFinder], range_bytes: int, contradicting: Collection[int]
) -> list[RangePlan]:
    """Cuts the log at equal distances, and where a replica begins, ends or has a checkpoint."""
    replicas = [finder.replica for finder in finders]
    first = min(replica.first_index for replica in replicas)
    last = max(replica.known_index for replica in replicas)
    forced = {
        index
        for replica in replicas
        for index in (
            replica.first_index,
            replica.known_index + 1,
            *(digest.index + 1 for digest in replica.digests),
        )
        if first <= index <= last + 1
    } | {first, last + 1}
    wanted = sorted(forced | set(_equal_distances(finders, first, last, range_bytes)))
    borders = [(index, [finder.find(index) for finder in finders]) for index in wanted]
    cuts: list[tuple[int, list[Border | None]]] = []
    for index, found in borders:
        if index in forced or any(found):
            cuts.append((index, found))
    ranges: list[RangePlan] = []
    # A log that differs once differs from there on.
    diverged: frozenset[int] = frozenset()
    for (index, found), (end, ending) in pairwise(cuts):
        members = [
            finder.replica.first_index <= index and end - 1 <= finder.replica.known_index
            for finder in finders
        ]
        if not any(members):
            continue  # a file names entries that no replica has
        begins = _agreed_borders(index, found, members, finders)
        size = max(
            (
                after.position - before.position
                for before, after in zip(begins, ending, strict=True)
                if before is not None and after is not None
            ),
            default=range_bytes,
        )
        number = len(ranges)
        diverged |= _diverged(found, diverged, contradicting, replicas)
        ranges.append(RangePlan(number, index, end - 1, size, begins, diverged))
    for place, finder in enumerate(finders):
        ranges += _uncommitted_range(finder, place, len(finders), len(ranges))
    return ranges


def _equal_distances(
    finders: Sequence[BorderFinder], first: int, last: int, range_bytes: int
) -> list[int]:
    """Indexes about ``range_bytes`` apart, by the longest entry index."""
    ordered = sorted(
        finders, key=lambda one: (-one.replica.checkpoint_index, one.replica.first_index)
    )

    def position_of(index: int) -> int:
        """The position of an entry; -1 if no replica has its row."""
        found = (finder.position_of(index) for finder in ordered)
        return next((position for position in found if position >= 0), -1)

    last = min(last, ordered[0].replica.checkpoint_index)
    found: list[int] = []
    here = max(position_of(first), 0)
    end = position_of(last)
    while first < last:
        wanted = here + range_bytes
        low = _first_at_or_after(position_of, (first, here), (last, end), wanted)
        if low > last or position_of(low) < 0:
            break  # the size of the rest is unknown, so it is one range
        for index in range(low, min(low + BORDERS_TRIED, last + 1)):
            if any(one.find(index) for one in finders):
                low = index
                break
        found.append(low)
        here = max(position_of(low), wanted)
        first = low
    return found


def _first_at_or_after(
    position_of: Callable[[int], int], before: tuple[int, int], after: tuple[int, int], wanted: int
) -> int:
    """The first index behind ``before`` whose entry lies at position ``wanted`` or later.

    ``before`` and ``after`` are pairs of index and position. The result is at most one more than
    the index of ``after``. Every other guess assumes entries of equal sizes, so few blocks of rows
    are read. The other guesses halve the rest, in case the sizes differ.
    """
    low, high = before[0] + 1, after[0] + 1
    (left, left_position), (right, right_position) = before, after
    guesses = 0
    while low < high:
        middle = (low + high) // 2
        if guesses % 2 == 0 and high - low > BLOCK_ROWS and left_position < right_position:
            share = (wanted - left_position) / (right_position - left_position)
            middle = min(max(left + int(share * (right - left)), low), high - 1)
        guesses += 1
        position = position_of(middle)
        if 0 <= position < wanted:
            low = middle + 1
            left, left_position = middle, position
        else:
            high = middle
            if position >= 0:
                right, right_position = middle, position
    return low


def _agreed_borders(
    index: int,
    found: Sequence[Border | None],
    members: Sequence[bool],
    finders: Sequence[BorderFinder],
) -> tuple[Border | None, ...]:
    """The border in each replica. A replica without a border there gets that of the majority."""
    known = [
        (border, finder.replica.name)
        for border, finder in zip(found, finders, strict=True)
        if border is not None
    ]
    agreed = majority(known, at_least=1)
    if agreed is None:
        agreed = next((border for border in found if border is not None), None)
    return tuple(
        (border or agreed or finder.assume(index)) if member else None
        for border, member, finder in zip(found, members, finders, strict=True)
    )


def _diverged(
    found: Sequence[Border | None],
    known: Collection[int],
    contradicting: Collection[int],
    replicas: Sequence[ReplicaPlan],
) -> frozenset[int]:
    """The replicas whose log differs from that of the others before this border, without those
    ``known``; see :mod:`store.verify.majority`."""
    said = [
        (border.chain, place, replicas[place].name)
        for place, border in enumerate(found)
        if border is not None and border.chain is not None and place not in known
    ]
    right = right_value(said, contradicting)
    if right is None:
        return frozenset()
    return frozenset(
        place
        for place, border in enumerate(found)
        if border is not None and border.chain not in (None, right)
    )


def _uncommitted_range(
    finder: BorderFinder, place: int, count: int, number: int
) -> list[RangePlan]:
    """The range of a stopped replica behind the entries that it knows to be committed."""
    replica = finder.replica
    if replica.state.manifest is not None:  # a snapshot
        return []
    index = max(replica.known_index + 1, replica.first_index)
    borders: list[Border | None] = [None] * count
    borders[place] = finder.find(index) or finder.assume(index)
    return [RangePlan(number, index, None, 0, tuple(borders))]


def _unidentified_finding(directory: str, error: DamagedError) -> list[Finding]:
    log = FindingLog(directory)
    advice = f"nothing else of this replica was checked; {RESTORE}"
    log.add_damage(FindingKind.FORMAT, error, "the format file of a replica", advice)
    return log.findings
