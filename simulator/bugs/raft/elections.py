"""Planted bugs A: votes, terms, elections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dledger.node.health_monitor import HealthMonitor
from dledger.raft.core import Raft
from dledger.raft.election import Elections
from dledger.raft.messages import Heartbeat, VoteRequest, VoteResponse
from dledger.raft.raft_state import NOBODY, Role
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import MemberEvidence
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from store.errors import DamagedError
from store.io.filesystem import FileSystem
from store.io.two_slot_file import SLOT_COUNT, SLOT_SIZE, TwoSlotFile, encode_slot
from store.state.hard_state import VOTE_NAME, HardState

bug = BugsOf()


@bug("A1", "its disk holds", 5)
def vote_before_it_is_durable(patch: Patch) -> None:
    """An answer that must wait for the disk leaves at once."""
    patch.set(ReadyBuilder, "send_after_write", ReadyBuilder.send)


@bug("A1b", "takes its vote for", 40)
def vote_forgotten_at_restart(patch: Patch) -> None:
    """A restarted node is in its term again, but has forgotten its vote."""

    @patch.around(Raft, "__init__")
    def forgetful(begin: Original[None], core: Raft, **arguments: Any) -> None:
        begin(core, **{**arguments, "vote": NOBODY})


@bug("A1c", "votes for", 40)
def voting_twice_in_a_term(patch: Patch) -> None:
    """Every candidate gets the vote, though another has it."""

    @patch.around(Elections, "vote_requested")
    def generous(
        asked: Original[None], elections: Elections, sender: str, request: VoteRequest, now: float
    ) -> None:
        raft_state = elections._raft_state
        if request.term == raft_state.term and raft_state.role is Role.FOLLOWER:
            raft_state.vote = NOBODY
        asked(elections, sender, request, now)


@bug("A2", "has spoken in term", 80)
def term_forgotten_at_restart(patch: Patch) -> None:
    """A restarted node is in the term of its last entry."""

    @patch.around(Raft, "__init__")
    def forgetful(begin: Original[None], core: Raft, **arguments: Any) -> None:
        last_term = arguments["log"].last_term
        if arguments.get("term", 0) > last_term:
            arguments = {**arguments, "term": last_term, "vote": NOBODY}
        begin(core, **arguments)


@bug("A3", "its disk holds", 5)
def vote_not_saved(patch: Patch) -> None:
    """A save of the vote does nothing and reports success."""
    patch.set(TwoSlotFile, "save", lambda _file, _payload: None)


@bug(
    "A4",
    "has spoken in term | takes its vote for | is below the log's last",
    80,
    "power loss within a call",
    "crash within a call",
)
def vote_file_rewritten(patch: Patch) -> None:
    """The vote's file is emptied and written again, and an empty one counts as a new node's."""
    begin, replace_record = TwoSlotFile.open, TwoSlotFile.save

    @patch.instead(TwoSlotFile, "save")
    def save(slots: TwoSlotFile, payload: bytes) -> None:
        if not slots.path.endswith(VOTE_NAME):
            replace_record(slots, payload)
            return
        slots._sequence += 1
        slots.payload = payload
        slots._file.truncate(0)
        slots._file.datasync()
        slots._file.pwrite(encode_slot(slots._sequence, payload) * SLOT_COUNT, 0)
        slots._file.datasync()

    def trusting(fs: FileSystem, path: str) -> TwoSlotFile:
        try:
            return begin(fs, path)
        except DamagedError:
            if not path.endswith(VOTE_NAME):
                raise
            return TwoSlotFile(fs, fs.open(path), 0, HardState().pack())

    patch.set(TwoSlotFile, "open", staticmethod(trusting))


@bug("A4b", "its disk holds", 20)
def corrupt_slot_brings_the_old_vote_back(patch: Patch) -> None:
    """The two slots are written in turn, one with each save, and the second is never synced."""

    @patch.instead(TwoSlotFile, "save")
    def save(slots: TwoSlotFile, payload: bytes) -> None:
        slots._sequence += 1
        slots.payload = payload
        place = slots._sequence % SLOT_COUNT
        slots._file.pwrite(encode_slot(slots._sequence, payload), place * SLOT_SIZE)
        if place == 0:
            slots._file.datasync()


@bug("A5", "lacks the committed entry", 100)
def last_term_taken_from_the_current_term(patch: Patch) -> None:
    """A candidate states its current term for the term of its last entry."""
    _boasting(patch, lambda request: replace(request, last_term=request.term))


@bug("A5b", "lacks the committed entry", 250, "partition", "crash")
def votes_by_length_alone(patch: Patch) -> None:
    """A voter looks at the index of the last entry and not at its term."""

    @patch.around(Elections, "vote_requested")
    def short_sighted(
        asked: Original[None], elections: Elections, sender: str, request: VoteRequest, now: float
    ) -> None:
        asked(elections, sender, replace(request, last_term=elections._log.last_term), now)


def _boasting(patch: Patch, change: Callable[[VoteRequest], VoteRequest]) -> None:
    for name in ("send", "send_after_write"):
        send = getattr(ReadyBuilder, name)

        def altered(ready_builder: ReadyBuilder, to: str, message: Any, send: Any = send) -> None:
            if isinstance(message, VoteRequest):
                message = change(message)
            send(ready_builder, to, message)

        patch.set(ReadyBuilder, name, altered)


@bug("A6", "without having been asked for", 5)
def no_pre_vote(patch: Patch) -> None:
    """A node that was cut off raises its term and so deposes a healthy leader when it returns."""

    @patch.around(Elections, "campaign")
    def at_once(campaign: Original[None], elections: Elections, now: float, **_asked: bool) -> None:
        campaign(elections, now, pre_vote=False)


@bug("A7", "though it hears", 40)
def votes_while_a_leader_is_heard(patch: Patch) -> None:
    """Without stickiness, a node that misses the leader deposes it with the votes of those that
    hear it."""

    @patch.around(Elections, "vote_requested")
    def fickle(
        asked: Original[None], elections: Elections, sender: str, request: VoteRequest, now: float
    ) -> None:
        raft_state = elections._raft_state
        heard, raft_state.leader_heard_at = raft_state.leader_heard_at, float("-inf")
        asked(elections, sender, request, now)
        if raft_state.leader is not None:
            raft_state.leader_heard_at = heard


@bug("A7b", "both lead", 40)
def pre_votes_counted_as_votes(patch: Patch) -> None:
    """An answer to the pre-vote counts as a vote in the election."""

    @patch.around(Elections, "vote_answered")
    def careless(
        answered: Original[None],
        elections: Elections,
        sender: str,
        answer: VoteResponse,
        now: float,
    ) -> None:
        raft_state = elections._raft_state
        if answer.granted and answer.pre_vote and raft_state.role is Role.CANDIDATE:
            answer = replace(answer, term=raft_state.term, pre_vote=False)
        answered(elections, sender, answer, now)


@bug("A9", "though only disks", 80, "slow disk", seconds=14.0)
def heartbeats_behind_the_disk(patch: Patch) -> None:
    """Heartbeats wait for the disk, and a leader with a slow one does not hand over."""

    @patch.instead(Replicator, "_heartbeat")
    def late(
        replicator: Replicator,
        peer: str,
        commit_index: int,
        number: int,
        held: tuple[MemberEvidence, ...] = (),
    ) -> None:
        progress = replicator.peers[peer]
        commit = min(commit_index, progress.match_index)
        progress.sent_commit = max(progress.sent_commit, commit)
        beat = Heartbeat(replicator._term, commit, number, held)
        replicator._ready_builder.send_after_write(peer, beat)

    patch.set(HealthMonitor, "_tick", lambda _monitor: None)
