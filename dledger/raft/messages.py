"""What the nodes of a group say to one another, as values that nobody changes.

Every message carries its sender's term (Raft thesis, figure 3.1). Commit information is told by the
leader in three ways: with entries, in heartbeats, and where neither is due soon, in a notice: a
heartbeat that asks for no answer.

The messages of every entry and heartbeat are not ``frozen``: Python makes a frozen object of five
fields in 0.58 microseconds, and one that is not in 0.15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dledger.raft.replication_evidence import MemberEvidence
from store.log.entry import Entry


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A candidate asks for a vote in ``term``; with ``pre_vote`` only whether it would get one.

    For a pre-vote, ``term`` is the term that the sender would campaign in (thesis 9.6). With
    ``ordered`` the leader itself asked the sender to campaign. ``incarnation`` says on which disk
    the sender stands, 0 for unknown; so it does in every message that a majority is counted from.
    """

    term: int
    last_index: int
    last_term: int
    pre_vote: bool
    ordered: bool = False
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """A granted pre-vote echoes the asked term; any refusal carries the refuser's own.

    ``log_index`` is where the voter's log ends."""

    term: int
    granted: bool
    pre_vote: bool
    incarnation: int = 0
    log_index: int = -1


@dataclass(slots=True)
class AppendRequest:
    """Entries that follow ``prev_index``; without entries, a probe of whether the logs meet there.

    The chain CRC inside the first entry covers the log before it: a follower whose log differs
    anywhere below cannot accept the entries.
    """

    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum([entry.size for entry in self.entries])


@dataclass(slots=True)
class AppendAccepted:
    """All up to ``match_index`` is equal to the leader's log and durable on the sender."""

    term: int
    match_index: int
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class AppendRejected:
    """The logs do not meet at ``rejected_index``.

    The hint is the sender's last entry not after that index whose term is not above the asked one,
    so that the leader skips whole terms instead of single entries (thesis 5.3).
    """

    term: int
    rejected_index: int
    hint_index: int
    hint_term: int


NOTICE = 0
"""The round of a heartbeat that is not to be answered."""


@dataclass(slots=True)
class Heartbeat:
    """The leader lives. ``commit_index`` is never above what the receiver has confirmed.

    ``round`` counts up; its echo proves that the receiver still followed when it was sent. Round 0
    is a notice: who follows does not answer. ``evidence`` is what the members hold; see
    ``raft/replication_evidence.py``.
    """

    term: int
    commit_index: int
    round: int = NOTICE
    evidence: tuple[MemberEvidence, ...] = ()


@dataclass(slots=True)
class HeartbeatResponse:
    """Repeats what is confirmed (an earlier answer may be lost): all up to ``match_index`` is
    durable; all up to ``last_index`` is received and matching, though perhaps not durable yet.

    ``log_index`` is where the log ends, matching or not: below what was confirmed before ``round``
    began, it says that entries were lost."""

    term: int
    match_index: int
    last_index: int
    round: int = 0
    incarnation: int = 0
    log_index: int = -1


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """The leader of ``term`` hands over: the receiver is to campaign at once (thesis 3.10)."""

    term: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A follower asks how far it must have applied to serve reads; ``id`` is its own number, and
    none that an earlier process of this node has used."""

    term: int
    id: int


@dataclass(frozen=True, slots=True)
class ReadResponse:
    """Reads are the newest once all up to ``index`` is applied; -1: the asked one leads no more."""

    term: int
    id: int
    index: int


RaftMessage: TypeAlias = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendAccepted
    | AppendRejected
    | Heartbeat
    | HeartbeatResponse
    | TimeoutNow
    | ReadRequest
    | ReadResponse
)


@dataclass(slots=True)
class Envelope:
    """A message and the node that it is for."""

    to: str
    message: RaftMessage
