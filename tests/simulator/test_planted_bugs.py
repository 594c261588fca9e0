"""The simulator is tested by bugs: one defence is taken out, and the right check must fire.

The letters name bugs of real systems. Those that take long to meet by chance (a completion taken
for a later write, votes by length alone) are scenarios of the core in ``tests/dledger``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dledger.effects import Outbox, Write
from dledger.locallog import LocalLog
from dledger.logwriter import LogWriter
from dledger.messages import AppendRequest
from dledger.node import Node
from dledger.raft import NOBODY, Raft
from dledger.replication import Replicator
from simulator.cluster import simulate
from simulator.network import Network
from store.entry import Entry
from store.replica import ReplicaStore
from store.slotfile import SlotFile

Planted = Callable[[pytest.MonkeyPatch], None]


def vote_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A1: an answer that needs the disk leaves at once."""
    patch.setattr(Outbox, "send_after_write", Outbox.send)


def confirm_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """C5, C6: what was written counts as durable."""
    patch.setattr(ReplicaStore, "sync", lambda _store: None)


def vote_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A3: saving the vote does nothing, and nobody notices."""
    patch.setattr(SlotFile, "save", lambda _file, _payload: None)


def forget_term_and_vote_at_restart(patch: pytest.MonkeyPatch) -> None:
    """A2: a node comes back in the term of its last entry, whatever it promised since."""
    begin = Raft.__init__

    def forgetful(core: Raft, **arguments: Any) -> None:
        forgotten = {"term": arguments["log"].last_term, "vote": NOBODY}
        begin(core, **{**arguments, **forgotten})

    patch.setattr(Raft, "__init__", forgetful)


def commit_older_terms_by_counting(patch: pytest.MonkeyPatch) -> None:
    """B1: figure 8 of the Raft paper."""

    def advance(core: Raft, now: float) -> None:
        if core.replicator is not None:
            index = core.replicator.quorum_index()
            if index > core.commit_index:
                core._local.commit_to(index)
                core.replicator.committed(now)

    patch.setattr(Raft, "_advance_commit", advance)


def count_a_minority(patch: pytest.MonkeyPatch) -> None:
    """B7: the quorum is one too small."""

    def one(replicator: Replicator) -> int:
        return max(
            replicator._durable_index,
            *(progress.match_index for progress in replicator.peers.values()),
        )

    patch.setattr(Replicator, "quorum_index", one)


def follower_trusts_any_commit_index(patch: pytest.MonkeyPatch) -> None:
    """B6: committed beyond what was verified to match."""

    def trusting(local: LocalLog, index: int) -> None:
        local.commit_index = max(local.commit_index, min(index, local.log.last_index))

    original = LocalLog.accept

    def accept(local: LocalLog, sender: str, request: AppendRequest) -> Any:
        trusting(local, request.commit_index)
        return original(local, sender, request)

    patch.setattr(LocalLog, "accept", accept)


def truncation_that_never_reaches_the_disk(patch: pytest.MonkeyPatch) -> None:
    """C3: the core cuts, the file does not."""
    write = LogWriter._write

    def without_cut(writer: LogWriter, writes: list[Write]) -> None:
        for each in writes:
            each.truncate_from = None
        write(writer, writes)

    patch.setattr(LogWriter, "_write", without_cut)


def apply_twice_after_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """C12: the state and the index that it belongs to are one apart."""
    begin = Node.__init__

    def one_behind(started: Node, **arguments: Any) -> None:
        begin(started, **arguments)
        started.applied_index = max(started.applied_index - 1, -1)

    patch.setattr(Node, "__init__", one_behind)


def never_resend(patch: pytest.MonkeyPatch) -> None:
    """B12: what is lost on the way stays lost."""
    carry = Network.carry

    def lossy(network: Network, sender: str, receiver: str, frame: bytes) -> None:
        if len(frame) < 200:
            carry(network, sender, receiver, frame)

    patch.setattr(Network, "carry", lossy)


def chain_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A follower takes entries whatever its log holds before them."""

    def anything(_local: LocalLog, _entry: Entry, _sender: str) -> None:
        return None

    original = LocalLog.accept

    def accept(local: LocalLog, sender: str, request: AppendRequest) -> Any:
        previous = min(request.prev_index, local.log.last_index)
        return original(
            local,
            sender,
            AppendRequest(
                request.term,
                request.prev_index,
                local.log.term_at(previous) or 0,
                request.commit_index,
                request.entries,
            ),
        )

    patch.setattr(LocalLog, "_check_continues", anything)
    patch.setattr(LocalLog, "accept", accept)


BUGS: list[tuple[Planted, str, int]] = [
    (vote_before_it_is_durable, "its disk holds|spoken in term|votes for", 10),
    (confirm_before_the_sync, "its disk does not hold it", 5),
    (vote_not_synced, "its disk holds|cannot start", 5),
    (forget_term_and_vote_at_restart, "spoken in term|votes for|both lead|cannot fall", 60),
    (commit_older_terms_by_counting, "by counting", 40),
    (count_a_minority, "lacks the committed|applies entry|committed entry|cannot drop", 40),
    (follower_trusts_any_commit_index, "applies|committed entry|cannot drop|elsewhere", 60),
    (truncation_that_never_reaches_the_disk, "stops by itself|does not hold|StoreError", 40),
    (apply_twice_after_a_checkpoint, "applies|starts with", 20),
    (never_resend, "not well", 3),
    (chain_not_checked, "another log|applies|InvariantError|lacks", 60),
]


@pytest.mark.parametrize(
    ("plant", "expected", "budget"), BUGS, ids=[plant.__name__ for plant, _, _ in BUGS]
)
def test_a_planted_bug_is_found_within_its_budget(
    plant: Planted, expected: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(1, budget + 1):
        violation = simulate(seed, seconds=6.0).violation
        if violation is not None:
            assert any(part in violation for part in expected.split("|")), violation
            return
    pytest.fail(f"{plant.__name__} was not found in {budget} seeds")
