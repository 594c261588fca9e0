"""Raft as in figure 2 of the paper, on whole lists, without regard to speed.

The answers of the shipped core to one message are compared with this. The core may do less than the
paper allows (it votes for nobody while it hears a leader), and never anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dledger.raft.core import Raft
from dledger.raft.messages import AppendRequest, Heartbeat, VoteRequest

NO_TERM = 0


@dataclass(frozen=True, slots=True)
class View:
    """The state of a server in figure 2; ``log`` has the term of each entry."""

    term: int
    vote: str
    log: tuple[int, ...]
    commit_index: int

    def term_at(self, index: int) -> int | None:
        """The term of an entry; 0 before the first entry; else ``None``."""
        if index == -1:
            return NO_TERM
        return self.log[index] if index < len(self.log) else None


def view(core: Raft) -> View:
    """The state of a shipped core."""
    terms = [core.entry_cache.term_at(index) for index in range(core.entry_cache.last_index + 1)]
    log = tuple(term for term in terms if term is not None)
    assert len(log) == len(terms), "a term of the log is forgotten"
    return View(core.term, core.vote, log, core.commit_index)


def in_term(state: View, term: int) -> View:
    """Rules for all servers: a higher term is taken over, with no vote in it."""
    return replace(state, term=term, vote="") if term > state.term else state


def append_entries(state: View, request: AppendRequest) -> View:
    """The receiver of AppendEntries, steps 1 to 5."""
    if request.term < state.term:
        return state
    state = in_term(state, request.term)
    if state.term_at(request.prev_index) != request.prev_term:
        return state
    log = list(state.log)
    for entry in request.entries:
        if entry.index < len(log) and log[entry.index] != entry.term:
            del log[entry.index :]
        if entry.index == len(log):
            log.append(entry.term)
    last_new = request.prev_index + len(request.entries)
    commit = max(state.commit_index, min(request.commit_index, last_new))
    return replace(state, log=tuple(log), commit_index=commit)


def heartbeats(state: View, beat: Heartbeat) -> Sequence[View]:
    """Every state that a heartbeat may lead to: a commit index that its sender vouches for is
    taken over, or left until the log is known to match."""
    if beat.term < state.term:
        return [state]
    state = in_term(state, beat.term)
    highest = max(state.commit_index, min(beat.commit_index, len(state.log) - 1))
    return [replace(state, commit_index=index) for index in range(state.commit_index, highest + 1)]


def may_vote(state: View, sender: str, request: VoteRequest) -> bool:
    """The receiver of RequestVote: whether the paper allows it to grant its vote."""
    if request.term < state.term:
        return False
    state = in_term(state, request.term)
    last_term = state.log[-1] if state.log else NO_TERM
    newer = (request.last_term, request.last_index) >= (last_term, len(state.log) - 1)
    return state.vote in ("", sender) and newer


def highest_committed(state: View, held: Mapping[str, int], voters: Sequence[str]) -> int:
    """Rules for leaders, the last: the highest entry of the own term on a majority of the voters,
    or what was committed before.

    ``held`` is the last index that each voter has durably, as far as the leader was told.
    """
    for index in range(len(state.log) - 1, state.commit_index, -1):
        holding = [voter for voter in voters if held.get(voter, -1) >= index]
        if state.log[index] == state.term and 2 * len(holding) > len(voters):
            return index
    return state.commit_index
