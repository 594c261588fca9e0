"""Cutting a group of replicas into ranges that can be checked one by one.

The plan costs little: the small files, and for each border a few rows of the entry index and
headers of the log. Chain CRCs stand in those headers, so the borders alone already tell which
replicas have another log than the majority, and from about where on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from crc32c import crc32c

from store.entry import CHAINED, HEADER, HEADER_SIZE
from store.entryindex import ROW, ROW_SIZE, Row
from store.errors import DamagedError, UnreadableError
from store.filesystem import Readable, ReadableFile
from store.formatfile import Identity
from store.layout import segment_name, segment_start
from store.verify.files import AuditFiles
from store.verify.findings import RESTORE, Finding, FindingKind, FindingLog
from store.verify.identities import check_identities, check_shared
from store.verify.majority import majority, proved
from store.verify.ranges import AuditPlan, Border, GroupPlan, RangePlan, ReplicaPlan
from store.verify.rowfiles import RowFiles
from store.verify.state import read_identity, read_state
from store.verify.statefiles import StateFiles
from store.verify.strays import check_names

RANGE_BYTES = 256 << 20
# A border is moved on by so many entries where no replica can show a whole header.
BORDERS_TRIED = 16
# What a replica may have behind its entry index, and is found by following the headers.
HEADERS_WALKED = 1 << 20


def plan_audit(
    fs: Readable, directories: Sequence[str], range_bytes: int = RANGE_BYTES
) -> AuditPlan:
    """The ranges over replicas, of about ``range_bytes`` each, group by group.

    Raises :class:`~store.errors.DataFormatError` where a directory is no replica of a format that
    this program knows.
    """
    findings: list[Finding] = []
    groups: dict[tuple[str, int], list[BorderFinder]] = {}
    identities: dict[str, Identity] = {}
    files = AuditFiles(fs)  # what cannot be read is told by the ranges
    for directory in dict.fromkeys(one.rstrip("/") for one in directories):
        try:
            identity = read_identity(fs, directory)
        except DamagedError as error:
            findings.append(_unidentified(directory, error))
            continue
        identities[directory] = identity
        log = FindingLog(f"{identity.group}/{identity.node}")
        state = read_state(fs, directory, identity, log)
        check_names(fs, directory, state, log)
        findings += log.findings
        key = (identity.group, identity.segment_size)
        groups.setdefault(key, []).append(BorderFinder(files, directory, state))
    findings += check_identities(identities)
    findings += check_shared(fs, identities)
    plans: list[GroupPlan] = []
    for (group, segment_size), finders in groups.items():
        try:
            contradicting = frozenset(
                place for place, finder in enumerate(finders) if finder.contradicts_itself()
            )
            ranges = tuple(_plan_ranges(finders, range_bytes, contradicting))
        finally:
            for finder in finders:
                finder.close()
        replicas = tuple(finder.replica for finder in finders)
        plans.append(GroupPlan(group, segment_size, replicas, ranges, contradicting))
    return AuditPlan(tuple(plans), tuple(findings))


class BorderFinder:
    """Finds where entries begin in one replica, without reading what lies between."""

    def __init__(self, fs: Readable, directory: str, state: StateFiles) -> None:
        self._fs = fs
        self._state = state
        self._rows = RowFiles(fs, f"{directory}/index", ROW_SIZE)
        self._directory = directory
        mark, checkpoint = state.mark, state.checkpoint
        self.replica = ReplicaPlan(
            directory,
            state.identity,
            mark.first_index,
            state.commit_index,
            state.durable_position if state.durable_index == state.commit_index else None,
            -1 if checkpoint is None else checkpoint.index,
            state.manifest is not None,
            tuple(state.digests),
        )
        # What came before an expired log's first entry is not known.
        chain = 0 if mark.first_index == 0 else None
        self.start = Border(mark.first_index, mark.first_position, chain, -1)
        self._walked = self.start
        self._file: ReadableFile | None = None

    def find(self, index: int) -> Border | None:
        """The border before entry ``index``; ``None`` where its forerunner cannot be shown.

        Nor is it where the replica does not know that forerunner to be committed: it may be
        another one than that of the others then, and nothing wrong with it.
        """
        if index - 1 > self.replica.known_index:
            return None
        if index == self.start.index:
            return self.start
        if index <= self.replica.checkpoint_index + 1:
            return self._find_by_rows(index)
        return self._walk_to(index)

    def contradicts_itself(self) -> bool:
        """Whether the log has another chain where mark, checkpoints or manifest name an entry."""
        mark, manifest = self._state.mark, self._state.manifest
        named = [(digest.index, digest.chain) for digest in self.replica.digests]
        named.append((mark.index, mark.chain_crc))
        if manifest is not None:
            named.append((manifest.commit_index, manifest.chain_crc))
        for index, chain in sorted(named):
            border = self.find(index + 1) if index >= self.start.index else None
            if border is not None and border.chain != chain:
                return True
        return False

    def assume(self, index: int) -> Border:
        """The border as files say that can be wrong; the check then tells what is."""
        state = self._state
        mark, checkpoint, manifest = state.mark, state.checkpoint, state.manifest
        if manifest is not None and manifest.commit_index == index - 1:
            return Border(index, manifest.end_position, manifest.chain_crc, manifest.term)
        if mark.index == index - 1:
            return Border(index, mark.position, mark.chain_crc, -1)
        if checkpoint is not None and checkpoint.index == index - 1:
            return Border(index, checkpoint.end_position, checkpoint.chain_crc, checkpoint.term)
        row = self._row(index)
        return Border(index, self.start.position if row is None else row.position, None, -1)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def position_of(self, index: int) -> int:
        """Where the entry index says that an entry lies; -1 where it does not say."""
        row = self._row(index)
        return -1 if row is None else row.position

    def _row(self, index: int) -> Row | None:
        data = self._rows.read(index, 1)
        if len(data) < ROW_SIZE:
            return None
        row = Row._make(ROW.unpack(data))
        return row if row.entry_index == index and row.position >= 0 else None

    def _find_by_rows(self, index: int) -> Border | None:
        row = self._row(index - 1)
        if row is None:
            return None
        before = self.start
        if index - 1 > self.start.index:
            earlier = self._row(index - 2)
            header = None if earlier is None else self._header(earlier.position)
            if earlier is None or header is None or header[2] != index - 2:
                return None
            before = Border(index - 1, earlier.end, header[6], header[3])
        return self._behind(before, row.position)

    def _behind(self, before: Border, position: int) -> Border | None:
        """The border behind the entry that follows ``before``, if its header is whole."""
        header = self._header(position)
        if header is None:
            return None
        magic, size, index, term, stated, channel, chain, body_crc, length = header
        expected = chain
        if before.chain is not None:
            fields = (magic, size, index, term, stated, channel, body_crc, length)
            expected = crc32c(CHAINED.pack(before.chain, *fields))
        if (
            (index, stated, chain, length) != (before.index, position, expected, size - HEADER_SIZE)
            or size < HEADER_SIZE
            or term < before.term
        ):
            return None
        return Border(index + 1, position + size, chain, term)

    def _walk_to(self, index: int) -> Border | None:
        """Follows the headers from the checkpoint on: the entry index need not go further."""
        if not self._walked.index <= index:
            self._walked = self.start
        checkpointed = self.replica.checkpoint_index + 1
        here: Border | None = self._walked
        if self._walked.index < checkpointed:
            here = self._find_by_rows(checkpointed)
        size = self._state.identity.segment_size
        while here is not None and here.index < index:
            if index - here.index > HEADERS_WALKED:
                return None
            following = self._behind(here, here.position)
            if following is None and here.position % size:
                start = segment_start(here.position, size) + size
                following = self._behind(here, start)
            here = following
        if here is not None:
            self._walked = here
        return here

    def _header(self, position: int) -> tuple[int, ...] | None:
        start = segment_start(position, self._state.identity.segment_size)
        path = f"{self._directory}/commitlog/{segment_name(start)}"
        if self._file is None or self._file.path != path:
            self.close()
            try:
                self._file = self._fs.open(path, writable=False)
            except FileNotFoundError:
                return None
        data = self._file.pread(HEADER_SIZE, position - start)
        return HEADER.unpack(data) if len(data) == HEADER_SIZE else None


def _plan_ranges(
    finders: Sequence[BorderFinder], range_bytes: int, contradicting: Collection[int]
) -> list[RangePlan]:
    """Cuts at equal distances, and where a replica begins, ends or has its checkpoint."""
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
    # A chain that has once left the others' never comes back.
    diverged: frozenset[int] = frozenset()
    for (index, found), (end, ending) in pairwise(cuts):
        members = [
            finder.replica.first_index <= index and end - 1 <= finder.replica.known_index
            for finder in finders
        ]
        if not any(members):
            continue  # what a file says to be there and none has
        begins = _adopt(index, found, members, finders)
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
        ranges += _tail(finder, place, len(finders), len(ranges))
    return ranges


def _equal_distances(
    finders: Sequence[BorderFinder], first: int, last: int, range_bytes: int
) -> list[int]:
    """Indexes at about every ``range_bytes``, by the entry index that reaches furthest."""
    ordered = sorted(
        finders, key=lambda one: (-one.replica.checkpoint_index, one.replica.first_index)
    )

    def position_of(index: int) -> int:
        """-1 where none has a row of it."""
        found = (finder.position_of(index) for finder in ordered)
        return next((position for position in found if position >= 0), -1)

    last = min(last, ordered[0].replica.checkpoint_index)
    found: list[int] = []
    here = max(position_of(first), 0)
    while first < last:
        wanted = here + range_bytes
        low, high = first + 1, last + 1
        while low < high:
            middle = (low + high) // 2
            if 0 <= position_of(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        if low > last or position_of(low) < 0:
            break  # the rest is one range, where its rows do not say how large it is
        for index in range(low, min(low + BORDERS_TRIED, last + 1)):
            if any(one.find(index) for one in finders):
                low = index
                break
        found.append(low)
        here = max(position_of(low), wanted)
        first = low
    return found


def _adopt(
    index: int,
    found: Sequence[Border | None],
    members: Sequence[bool],
    finders: Sequence[BorderFinder],
) -> tuple[Border | None, ...]:
    """A replica that cannot show a border itself has it where most of the others have it."""
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
    """The replicas that have left the log of the others already at this border, ``known`` left
    out; see :mod:`store.verify.majority`."""
    chains = [
        (border.chain, place)
        for place, border in enumerate(found)
        if border is not None and border.chain is not None and place not in known
    ]
    right = proved(chains, contradicting)
    if right is None:
        voices = [(chain, place) for chain, place in chains if place not in contradicting]
        right = majority([(chain, replicas[place].name) for chain, place in voices])
    if right is None:
        return frozenset()
    return frozenset(
        place
        for place, border in enumerate(found)
        if border is not None and border.chain not in (None, right)
    )


def _tail(finder: BorderFinder, place: int, count: int, number: int) -> list[RangePlan]:
    """What a stopped replica has behind the entries that it knows to be committed."""
    replica = finder.replica
    if replica.is_snapshot:
        return []
    index = max(replica.known_index + 1, replica.first_index)
    borders: list[Border | None] = [None] * count
    borders[place] = finder.find(index) or finder.assume(index)
    return [RangePlan(number, index, None, 0, tuple(borders))]


def _unidentified(directory: str, error: DamagedError) -> Finding:
    return Finding(
        FindingKind.FORMAT,
        directory,
        None,
        None,
        error.path,
        error.position,
        "the format file of a replica",
        error.what,
        f"nothing else of this replica was checked; {RESTORE}",
        unread=isinstance(error, UnreadableError),
    )
