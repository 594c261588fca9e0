"""The ranges of a check, and the results of each.

A range has a first and a last index. A replica takes part with all entries of the range, or not at
all. The check of a range needs no other range. So ranges are checked in any order, on any machine.
What spans ranges, such as the offsets of queues, is checked at the end, from the results of all
ranges.

Everything here can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from store.state.format_file import Identity
from store.verify.files.directory_listing import Listing, without_queues
from store.verify.findings import Finding
from store.verify.plan.message_counts import MessageCounts
from store.verify.state.broker_state import BrokerEffects
from store.verify.state.checkpoint_digest import StateDigest
from store.verify.state.state_files import StateFiles

QueueKey: TypeAlias = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, slots=True)
class Border:
    """The beginning of a range in one replica, behind entry ``index - 1``.

    ``position``: where that entry ends. ``chain`` and ``term``: its chain CRC and term. They are
    ``None`` and -1 if unknown. At the beginning of a whole log the chain CRC is 0.
    """

    index: int
    position: int
    chain: int | None
    term: int


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """One replica: its small files, without the state of the broker."""

    directory: str
    state: StateFiles

    @property
    def identity(self) -> Identity:
        return self.state.identity

    @property
    def name(self) -> str:
        """``group/node``."""
        return f"{self.identity.group}/{self.identity.node}"

    @property
    def first_index(self) -> int:
        return self.state.mark.first_index

    @property
    def known_index(self) -> int:
        """The last entry that the replica knows to be committed."""
        return self.state.commit_index

    @property
    def known_end(self) -> int | None:
        """The position at which that entry ends, if the small files say it."""
        state = self.state
        return state.durable_position if state.durable_index == state.commit_index else None

    @property
    def checkpoint_index(self) -> int:
        return self.state.checkpoint_index

    @property
    def digests(self) -> list[StateDigest]:
        """The digests of all checkpoints that can be read."""
        return [saved.digest for saved in self.state.checkpoints]


@dataclass(frozen=True, slots=True)
class RangePlan:
    """A range.

    * ``last_index``: ``None`` for the range behind the entries known to be committed.
    * ``borders``: by place, the border of each replica; ``None`` if it takes no part.
    * ``diverged``: the places of replicas that the majority contradicts before the range.
    """

    number: int
    first_index: int
    last_index: int | None
    size_bytes: int
    borders: tuple[Border | None, ...]
    diverged: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The replicas of one group and the ranges over them, in order.

    ``contradicting``: the places of replicas whose own mark, checkpoints or manifest contradict
    their log.
    """

    group: str
    segment_size: int
    replicas: tuple[ReplicaPlan, ...]
    ranges: tuple[RangePlan, ...]
    contradicting: frozenset[int] = frozenset()
    listing: Listing = field(default_factory=dict)
    """What the directories of all replicas hold."""

    @property
    def directories(self) -> list[str]:
        """Those of the replicas, by place."""
        return [replica.directory for replica in self.replicas]

    def for_ranges(self) -> GroupPlan:
        """The part that the check of a range needs. Its size does not depend on the queues."""
        return replace(
            self,
            replicas=tuple(_without_queues(replica) for replica in self.replicas),
            listing=without_queues(self.listing),
        )

    def range_end(self, plan: RangePlan, place: int) -> int | None:
        """The position at which a replica's part of a range ends; ``None`` if the plan does not
        say it."""
        for other in self.ranges[plan.number + 1 :]:
            border = other.borders[place]
            if border is not None:
                return border.position
        replica = self.replicas[place]
        return replica.known_end if plan.last_index == replica.known_index else None


def _without_queues(replica: ReplicaPlan) -> ReplicaPlan:
    checkpoints = [
        saved
        if saved.machine is None
        else replace(saved, machine=saved.machine._replace(queues=[]))
        for saved in replica.state.checkpoints
    ]
    return replace(replica, state=replace(replica.state, checkpoints=checkpoints, tails={}))


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The plans of all groups, and findings about small files."""

    groups: tuple[GroupPlan, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class WrongRows:
    """Consecutive rows of one ConsumeQueue file that differ from the log.

    ``expected`` and ``found``: the first of them, as it should be and as it is.
    """

    path: str
    byte: int
    index_first: int
    index_last: int
    offset_first: int
    offset_last: int
    expected: bytes
    found: bytes

    def add_to(self, wrong: list[WrongRows]) -> None:
        """Adds these to the wrong rows of a queue, joined with the last ones if they follow."""
        last = wrong[-1] if wrong else None
        if last is None or last.path != self.path or last.offset_last != self.offset_first - 1:
            wrong.append(self)
        else:
            wrong[-1] = replace(last, offset_last=self.offset_last, index_last=self.index_last)


class MissingKeys(NamedTuple):
    """Key rows of the log that no file has: the first entry, the last entry, and the position of
    the last record."""

    index_first: int
    index_last: int
    position: int

    def behind(self, before: MissingKeys | None) -> MissingKeys:
        """These, joined with those of earlier entries."""
        return self if before is None else self._replace(index_first=before.index_first)


class RowsDigest(NamedTuple):
    """Rows of one queue in the log, from ``first_offset`` to before ``end_offset``.

    ``crcs``: the CRC32C and the CRC-32 of their bytes.
    """

    first_offset: int
    end_offset: int
    crcs: tuple[int, int]


class KeysDigest(NamedTuple):
    """Key rows of one range that belong to the file named by ``start``.

    ``total``: the sum of a number for each row, modulo 2^64. So their order does not matter.
    """

    start: int
    rows: int
    total: int


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """The messages of one queue within a range of one replica.

    * ``first_known``: no unreadable entry of the range lies before them.
    * ``end_known``: no unreadable entry of the range lies behind them.
    * ``index``, ``position``: of the entry with the first of them.
    * ``begin``: the first offset that is neither deleted nor expired, if the range has it.
    * ``covered_end``: the end offset, if the checkpoint covers the range.
    """

    key: QueueKey
    first_offset: int
    first_known: bool
    index: int
    position: int
    begin: int | None
    end: int
    end_known: bool
    covered_end: int | None
    digests: tuple[RowsDigest, ...]


@dataclass(frozen=True, slots=True)
class RangeQueues:
    """The result of a range for ConsumeQueues.

    ``emptied``: topics deleted in it. ``lost``: entries could not be read. ``trimmed``: queues, and
    their first offsets by the retention of their topics.
    """

    spans: tuple[QueueSpan, ...] = ()
    emptied: frozenset[str] = frozenset()
    lost: bool = False
    trimmed: tuple[tuple[QueueKey, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RangeKeys:
    """The result of a range for the key index."""

    missing: MissingKeys | None = None
    expired_position: int = 0
    digests: tuple[KeysDigest, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeState:
    """The result of a range for the state, if the checkpoint covers the range.

    * ``times``: by segment, the store time (ms) of the newest message up to its end; ``None`` if
      that message is in an earlier range.
    * ``last_ms``: the store time of the last message.
    * ``configuration``: the body of the last configuration entry.
    """

    times: tuple[tuple[int, int | None], ...] = ()
    last_ms: int | None = None
    configuration: bytes | None = None
    lost: bool = False
    effects: BrokerEffects = field(default_factory=BrokerEffects)


class ProvedCheckpoint(NamedTuple):
    """The voters' reports of their states after the entry ``point``
    (:mod:`store.state.state_digests`). The checkpoint of the entry ``checkpoint`` must fit them.
    """

    checkpoint: int
    point: int
    reports: bytes


@dataclass(frozen=True, slots=True)
class ReplicaRange:
    """One replica's part of a range."""

    place: int
    last_index: int
    last_term: int
    end_position: int
    messages: int
    queues: RangeQueues
    keys: RangeKeys
    state: RangeState | None = None
    """``None`` if the checkpoint does not cover the range."""
    proofs: tuple[ProvedCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The result of the check of one range.

    * ``agreement``: a word for each replica of the group: ``same``, ``differs`` (from the majority;
      without one, from the others), ``damaged``, or ``behind`` if it takes no part.
    * ``counts``: messages by topic and store time.
    """

    number: int
    first_index: int
    last_index: int
    findings: tuple[Finding, ...]
    entries: int
    messages: int
    bytes_read: int
    agreement: tuple[str, ...]
    parts: tuple[ReplicaRange, ...]
    counts: MessageCounts = field(default_factory=MessageCounts)
