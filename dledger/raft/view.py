"""What others may read of a core. To change something, they send the core an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dledger.config import RaftConfig
from dledger.raft.configuration import Configuration
from dledger.raft.health import MemberHealth, OwnHealth
from dledger.raft.progress import ProgressState
from dledger.raft.raft_state import RaftState, Role
from dledger.raft.replication_evidence import MemberEvidence, ReplicationEvidence
from store.log.entry import Entry


class EntryCacheView(Protocol):
    """See :class:`~dledger.raft.entry_cache.EntryCache`."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...
    @property
    def end_position(self) -> int: ...
    @property
    def chain_crc(self) -> int: ...
    @property
    def cached_from(self) -> int: ...
    def entry(self, index: int) -> Entry | None: ...
    def term_at(self, index: int) -> int | None: ...
    def term_starts(self, last_index: int) -> tuple[tuple[int, int], ...]: ...


class ConfigurationsView(Protocol):
    """See :class:`~dledger.raft.configuration.Configurations`."""

    @property
    def current(self) -> Configuration: ...
    @property
    def index(self) -> int: ...
    def at(self, index: int) -> Configuration: ...
    def packed_at(self, index: int) -> bytes: ...


class RaftLogView(Protocol):
    """See :class:`~dledger.raft.raft_log.RaftLog`."""

    @property
    def commit_index(self) -> int: ...
    @property
    def durable_index(self) -> int: ...
    @property
    def verified_index(self) -> int: ...
    @property
    def match_index(self) -> int: ...
    def next_position(self, size: int) -> int: ...


class RaftStateView(Protocol):
    """See :class:`~dledger.raft.raft_state.RaftState`."""

    @property
    def term(self) -> int: ...
    @property
    def vote(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def leader(self) -> str | None: ...
    @property
    def elections(self) -> int: ...
    @property
    def removed(self) -> bool: ...
    @property
    def joins(self) -> bool: ...
    @property
    def up(self) -> Mapping[str, bool]: ...
    @property
    def led_by_stranger(self) -> bool: ...
    def is_led(self, now: float) -> bool: ...


class ProgressView(Protocol):
    """See :class:`~dledger.raft.progress.Progress`."""

    @property
    def state(self) -> ProgressState: ...
    @property
    def connected(self) -> bool: ...
    @property
    def match_index(self) -> int: ...
    @property
    def next_index(self) -> int: ...
    @property
    def lost(self) -> bool: ...


class RaftView:
    """One node's share of the protocol, to look at."""

    def __init__(
        self,
        *,
        node: str,
        incarnation: int,
        config: RaftConfig,
        entry_cache: EntryCacheView,
        raft_log: RaftLogView,
        configurations: ConfigurationsView,
        raft_state: RaftState,
        evidence: ReplicationEvidence,
        health: MemberHealth,
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self.config = config
        self.entry_cache = entry_cache
        self.raft_log = raft_log
        self.configurations = configurations
        self.raft_state: RaftStateView = raft_state
        self._raft_state = raft_state
        self._evidence = evidence
        self._health = health

    # --- what this node is

    @property
    def term(self) -> int:
        """The newest term that this node knows."""
        return self.raft_state.term

    @property
    def vote(self) -> str:
        """Who got this node's vote in it."""
        return self.raft_state.vote

    @property
    def role(self) -> Role:
        """What this node is in it."""
        return self.raft_state.role

    @property
    def leader(self) -> str | None:
        """Who leads it, as far as this node knows."""
        return self.raft_state.leader

    @property
    def own_health(self) -> OwnHealth:
        """How it is, as it was told last."""
        return self._health.own

    @property
    def campaigns(self) -> bool:
        """Whether the health of the members lets it ask for votes."""
        return self._health.campaigns(self.other_voters)

    @property
    def leads(self) -> bool:
        """Whether this node does."""
        return self.raft_state.role is Role.LEADER

    # --- the members

    @property
    def configuration(self) -> Configuration:
        """The members, as the log says at present."""
        return self.configurations.current

    @property
    def peers(self) -> tuple[str, ...]:
        """All members but this node."""
        return tuple(name for name in self.configuration.members if name != self.node)

    @property
    def other_voters(self) -> tuple[str, ...]:
        """Who could lead in the place of this node: learners could not."""
        return tuple(filter(self.configuration.votes, self.peers))

    def serves(self, node: str) -> bool:
        """Whether that node may get the log: a member by this node's log, or one whose removal is
        not committed yet. A new member is one from the entry on that adds it."""
        return self._raft_state.knows(node) or node in self.progress

    @property
    def counts(self) -> bool:
        """Whether this node is a voter, on the disk that counts for it."""
        return self.configuration.votes(self.node) and self._raft_state.sound

    def known_evidence(self) -> list[MemberEvidence]:
        """What the members are known to hold, in the order of names."""
        return self._evidence.known()

    # --- what it does as leader

    @property
    def progress(self) -> Mapping[str, ProgressView]:
        """What the leader knows of its followers; empty if this node does not lead."""
        leader_state = self._raft_state.leader_state
        return {} if leader_state is None else leader_state.replicator.peers

    @property
    def term_first_index(self) -> int:
        """The no-op of the present leadership; -1 while this node does not lead."""
        leader_state = self._raft_state.leader_state
        return -1 if leader_state is None else leader_state.first_index

    @property
    def transfer_target(self) -> str | None:
        """To whom this leader hands the leadership over at present."""
        leader_state = self._raft_state.leader_state
        return None if leader_state is None else leader_state.leadership_transfer.target

    # --- the log

    @property
    def commit_index(self) -> int:
        """The last entry that is known to be committed."""
        return self.raft_log.commit_index

    @property
    def durable_index(self) -> int:
        """The last entry of the present log that is durable here."""
        return self.raft_log.durable_index

    @property
    def match_index(self) -> int:
        """The last entry that is durable here and known to be the leader's."""
        return self.raft_log.match_index
