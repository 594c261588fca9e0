"""Events of a cluster as text, one line for each."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.errors import InvariantError, PeerError
from dledger.raft.configuration import Configuration
from dledger.raft.messages import (
    NOTICE,
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.ready import Read, ReadIndex, Write
from dledger.wire.transport import Message
from store.log.entry import Entry, EntryKind
from tests.dledger.raft.observer import Observer, Packet, RaftState


class Transcript(Observer):
    """Collects the lines; ``quiet`` leaves only who leads, what is committed, and errors."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.quiet = False
        self._asked: dict[tuple[str, int], bool] = {}  # pending writes of held disks

    def take(self) -> list[str]:
        """The lines since the last call."""
        taken, self.lines = self.lines, []
        return taken

    def _detail(self, line: str) -> None:
        if not self.quiet:
            self.lines.append(line)

    def delivered(self, packet: Packet) -> None:
        self._detail(f"{packet.sender} -> {packet.to}  {describe(packet.message)}")

    def lost(self, packet: Packet) -> None:
        self._detail(f"{packet.sender} -x {packet.to}  {describe(packet.message)}")

    def writes(self, node: str, write: Write, held: bool) -> None:
        if held:
            self._asked[node, write.id] = True
        verb = "asks for" if held else "makes"
        self._detail(f"  {node} {verb} write {write.id}: {describe_write(write)}")

    def durable(self, node: str, write: Write) -> None:
        if self._asked.pop((node, write.id), False):
            self._detail(f"  {node} write {write.id} is durable")

    def stands(self, node: str, raft_state: RaftState) -> None:
        role, term, leader = raft_state
        if role == "leader":
            self.lines.append(f"  {node} LEADS term {term}")
            return
        led = f" of {leader}" if leader is not None else ""
        self._detail(f"  {node} is {role}{led} in term {term}")

    def commits(self, node: str, first: int, last: int) -> None:
        self.lines.append(f"  {node} commits {_span(first, last)}")

    def refuses(self, node: str, error: PeerError) -> None:
        self.lines.append(f"  {node} refuses: {error}")

    def stops(self, node: str, error: InvariantError) -> None:
        self.lines.append(f"  {node} STOPS: {error}")

    def reads(self, node: str, read: Read) -> None:
        span = _span(read.first_index, read.last_index)
        self._detail(f"  {node} reads {span} from its disk for {read.peer}")

    def read_index(self, node: str, answer: ReadIndex) -> None:
        served = "is not confirmed" if answer.index is None else f"from {answer.index} on"
        self.lines.append(f"  {node} read {answer.id} {served}")


def describe(message: Message) -> str:
    """One message in one line. An entry is written ``index/term``."""
    match message:
        case VoteRequest(term, last_index, last_term, pre_vote):
            return f"{_vote(pre_vote)}? term {term}, log ends with {last_index}/{last_term}"
        case VoteResponse(term, granted, pre_vote):
            return f"{_vote(pre_vote)} {'yes' if granted else 'NO'}, term {term}"
        case AppendRequest(term, prev_index, prev_term, commit_index, entries):
            return (
                f"append after {prev_index}/{prev_term}: {describe_entries(entries)}; "
                f"term {term}, commit {commit_index}"
            )
        case AppendAccepted(term, match_index):
            return f"accepted up to {match_index}, term {term}"
        case AppendRejected(term, rejected_index, hint_index, hint_term):
            return f"REJECTED after {rejected_index}, try {hint_index}/{hint_term}; term {term}"
        case Heartbeat(term, commit_index, number):
            kind = "notice" if number == NOTICE else "heartbeat"
            return f"{kind}, term {term}, commit {commit_index}"
        case HeartbeatResponse(term, match_index, last_index):
            return f"alive, term {term}, durable {match_index}, received {last_index}"
        case TimeoutNow(term):
            return f"campaign now, term {term}"
        case ReadRequest(term, number):
            return f"read {number}? term {term}"
        case ReadResponse(term, number, index):
            return f"read {number} from {index} on, term {term}"
        case _:
            return str(message)


def _vote(pre_vote: bool) -> str:
    return "pre-vote" if pre_vote else "vote"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def describe_write(write: Write) -> str:
    """What a write changes on the disk, in order."""
    parts = []
    if write.hard_state is not None:
        term, vote = write.hard_state
        parts.append(f"term {term}, vote {vote or 'none'}")
    if write.truncate_from is not None:
        parts.append(f"cut from {write.truncate_from}")
    if write.entries:
        parts.append(f"entries {describe_entries(write.entries)}")
    return "; ".join(parts)


def describe_entries(entries: Sequence[Entry]) -> str:
    """``index/term`` of each entry, and its body if that is something else."""
    return " ".join(map(_describe_entry, entries)) or "nothing"


def _describe_entry(entry: Entry) -> str:
    place = f"{entry.index}/{entry.term}"
    if entry.kind is EntryKind.CONFIGURATION:
        found = Configuration.unpack(entry.body)
        joint = f" from {','.join(found.old_voters)}" if found.is_joint else ""
        learners = f" learners {','.join(found.learners)}" if found.learners else ""
        return f"{place}:voters {','.join(found.voters)}{joint}{learners}"
    if entry.kind is not EntryKind.DATA:
        return f"{place}:{entry.kind.name.lower()}"
    body = bytes(entry.body).decode()
    return place if body == place else f"{place}:{body}"
