"""The core, message by message, against Raft as the paper states it
(``dledger/raft/reference_raft.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dledger.config import RaftConfig
from dledger.errors import InvariantError, ProposeError
from dledger.raft.core import Raft
from dledger.raft.messages import (
    AppendAccepted,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.raft_state import Role
from simulator.bugs import bug_by_id, planted
from tests.dledger.raft.core_cluster import Cluster
from tests.dledger.raft.invariants import Invariants, check_converged
from tests.dledger.raft.observer import Observer, Packet
from tests.dledger.raft.reference_raft import (
    View,
    append_entries,
    heartbeats,
    highest_committed,
    in_term,
    may_vote,
    view,
)
from tests.support.search_effort import searching

T = TypeVar("T")

HEALED_SECONDS = 6.0
CONFIG = RaftConfig(
    append_bytes_max=150, window_messages=3, window_bytes=400, uncommitted_bytes_max=2000
)


class Told(Observer):
    """What each candidate and each leader was told, also while time passes."""

    def __init__(self) -> None:
        self.granted: dict[tuple[str, int], set[str]] = {}  # (candidate, term) -> its voters
        self.held: dict[tuple[str, int], dict[str, int]] = {}  # (leader, term) -> confirmed

    def delivered(self, packet: Packet) -> None:
        sender, to, message = packet
        match message:
            case VoteResponse(term=term, granted=True, pre_vote=False):
                self.granted.setdefault((to, term), set()).add(sender)
            case AppendAccepted(term=term, match_index=index):
                held = self.held.setdefault((to, term), {})
                held[sender] = max(held.get(sender, -1), index)
            case HeartbeatResponse(term=term, match_index=index, last_index=last):
                held = self.held.setdefault((to, term), {})
                before = held.get(sender, -1)
                # The paper knows no disk that loses what it confirmed; the core allows for it.
                held[sender] = index if last < before else max(before, index)
            case _:
                pass

    def connected(self, node: str, peer: str) -> None:
        """The peer may have restarted, so the leader asks it again what it holds."""
        for (leader, _), held in self.held.items():
            if leader == node:
                held.pop(peer, None)


class CoreMachine(RuleBasedStateMachine):
    """A group of cores; a rule is one thing that happens to it."""

    @initialize(size=st.sampled_from((3, 5)), seed=st.integers(0, 1000))
    def begin(self, size: int, seed: int) -> None:
        self.seen = Invariants()
        self.told = Told()
        self.cluster = Cluster(
            [f"n{place}" for place in range(size)],
            [self.seen, self.told],
            config=CONFIG,
            segment_size=500,
            seed=seed,
        )
        self.seen.cluster = self.cluster

    def pick(self, data: st.DataObject, choices: Sequence[T]) -> T:
        return choices[data.draw(st.integers(0, len(choices) - 1))]

    # --- messages

    @precondition(lambda self: self.cluster.flight)
    @rule(data=st.data(), count=st.integers(1, 8))
    def deliver(self, data: st.DataObject, count: int) -> None:
        """Each link keeps its order; which link is next, chance says."""
        for _ in range(min(count, len(self.cluster.flight))):
            if not self.cluster.flight:
                return
            picked = self.pick(data, self.cluster.flight)
            first = next(each for each in self.cluster.flight if each[:2] == picked[:2])
            self.receive(first)

    @precondition(lambda self: self.cluster.flight)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        packet = self.pick(data, self.cluster.flight)
        self.receive(packet)
        self.cluster.flight.append(packet)

    @precondition(lambda self: self.cluster.flight)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.cluster.flight.remove(self.pick(data, self.cluster.flight))

    def receive(self, packet: Packet) -> None:
        """Delivers a message, and compares what it does with what the paper says it does."""
        name, sender, message = packet.to, packet.sender, packet.message
        core = self.cluster.cores.get(name)
        if core is None:
            self.cluster.deliver(packet)
            return
        before, role = view(core), core.role
        self.cluster.deliver(packet)
        after = view(core)
        match message:
            case AppendRequest():
                assert after == append_entries(before, message)
            case Heartbeat():
                assert after in heartbeats(before, message)
            case VoteRequest(pre_vote=True):
                assert after == before
            case VoteRequest():
                assert (after.log, after.commit_index) == (before.log, before.commit_index)
                if after.vote == sender and (before.vote, before.term) != (sender, after.term):
                    assert may_vote(before, sender, message)
                    assert after.term == message.term
                else:
                    assert after in (before, in_term(before, message.term))
            case VoteResponse():
                self.check_elected(name, role)
            case _:
                self.check_committed(name)

    def check_elected(self, name: str, role: Role) -> None:
        core = self.cluster.cores[name]
        if core.role is Role.LEADER and role is not Role.LEADER:
            voters = {name, *self.told.granted.get((name, core.term), ())}
            assert 2 * len(voters) > len(self.cluster.names), f"elected by {voters} alone"

    def check_committed(self, name: str) -> None:
        core = self.cluster.cores[name]
        if core.role is not Role.LEADER:
            return
        held = {**self.told.held.get((name, core.term), {}), name: core.durable_index}
        assert core.commit_index == highest_committed(view(core), held, self.cluster.names)

    # --- time, clients, disks, crashes

    @precondition(lambda self: self.cluster.cores)
    @rule(data=st.data(), due=st.booleans())
    def tick(self, data: st.DataObject, due: bool) -> None:
        cores = self.cluster.cores
        first = min(cores, key=lambda name: (cores[name].deadline(), name))
        self.cluster.tick(first if due else self.pick(data, list(cores)))

    @rule(seconds=st.sampled_from((0.005, 0.05, 0.7)))
    def settle(self, seconds: float) -> None:
        self.cluster.run(seconds)

    @rule(data=st.data(), count=st.integers(1, 3))
    def propose(self, data: st.DataObject, count: int) -> None:
        leaders = [n for n, core in self.cluster.cores.items() if core.role is Role.LEADER]
        if not leaders:
            return
        name = self.pick(data, leaders)
        for _ in range(count):
            try:
                self.cluster.propose(name, b"body")
            except ProposeError:
                return

    @precondition(lambda self: self.cluster.cores)
    @rule(data=st.data(), held=st.booleans())
    def hold_or_release(self, data: st.DataObject, held: bool) -> None:
        name = self.pick(data, list(self.cluster.cores))
        if held:
            self.cluster.hold(name)
        else:
            self.cluster.release(name)
            if name in self.cluster.cores:
                self.check_committed(name)

    @precondition(lambda self: self.cluster.cores)
    @rule(data=st.data(), kept=st.integers(0, 3), part=st.integers(0, 2))
    def crash(self, data: st.DataObject, kept: int, part: int) -> None:
        name = self.pick(data, list(self.cluster.cores))
        kept = min(kept, len(self.cluster.disks[name].pending))
        self.cluster.crash(name, kept, part)

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        down = [name for name in self.cluster.names if name not in self.cluster.cores]
        if down:
            self.cluster.restart(self.pick(data, down))

    @rule(data=st.data(), up=st.booleans())
    def link(self, data: st.DataObject, up: bool) -> None:
        self.cluster.connect(*self.pick(data, list(self.cluster.links)), up)

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """From now on one hears nothing of another, and nobody is told."""
        one, other = self.pick(data, list(self.cluster.links))
        self.cluster.cuts[(one, other) if data.draw(st.booleans()) else (other, one)] = True

    @rule()
    def heal(self) -> None:
        self.cluster.cuts.clear()

    def teardown(self) -> None:
        """Without faults the group comes to agree."""
        if not hasattr(self, "cluster"):
            return
        self.cluster.cuts.clear()
        for name in self.cluster.names:
            if name in self.cluster.cores:
                self.cluster.release(name)
            else:
                self.cluster.restart(name)
        for one, other in self.cluster.links:
            self.cluster.connect(one, other, True)
        self.cluster.run(HEALED_SECONDS)
        check_converged(self.cluster)


CoreMachine.TestCase.settings = searching(60, steps=40)
TestCoreAgainstTheReference = CoreMachine.TestCase


@pytest.mark.minutes
@pytest.mark.parametrize("id_", ["A1c", "B1", "B2", "B7"])
def test_the_reference_tells_a_core_without_one_of_its_defences(id_: str) -> None:
    bug = bug_by_id(id_)
    assert bug is not None
    brief = settings(
        searching(1000, steps=60), phases=[Phase.generate], database=None, derandomize=True
    )
    with planted(bug), pytest.raises((AssertionError, InvariantError)):
        run_state_machine_as_test(CoreMachine, settings=brief)


@pytest.mark.parametrize(
    ("held", "committed"),
    [({"n0": 1}, -1), ({"n0": 1, "n2": 0}, -1), ({"n0": 1, "n2": 1}, 1)],
    ids=["nobody answered", "one has the entry of the older term", "one has all"],
)
def test_a_leader_commits_nothing_of_an_older_term_before_an_entry_of_its_own(
    held: dict[str, int], committed: int
) -> None:
    """The reference once took the entries before the leader's first for committed."""
    leader = View(term=2, vote="n0", log=(1, 2), commit_index=-1)
    assert highest_committed(leader, held, ("n0", "n1", "n2")) == committed


def test_the_reference_counts_what_a_follower_confirms_over_its_present_link() -> None:
    """It once counted a confirmation from before a restart, which the core had forgotten."""
    leader, one, other, machine = five_with_a_proposal()
    confirm(machine, one)
    machine.cluster.crash(one)
    machine.cluster.restart(one)
    confirm(machine, other)
    assert leader.commit_index == 0
    machine.cluster.run(0.5)
    assert leader.commit_index == 1


def test_the_reference_believes_an_answer_that_the_follower_holds_less() -> None:
    """It once took the older of two answers for news of nothing; the core asks the follower."""
    leader, one, other, machine = five_with_a_proposal()
    older = HeartbeatResponse(leader.term, match_index=0, last_index=0)
    confirm(machine, one)
    machine.receive(Packet(one, leader.node, older))
    confirm(machine, other)
    assert leader.commit_index == 0
    machine.cluster.run(0.5)
    assert leader.commit_index == 1


def five_with_a_proposal() -> tuple[Raft, str, str, CoreMachine]:
    """A leader whose second entry is on its way, two of its followers, and their machine."""
    machine = CoreMachine()
    machine.begin(size=5, seed=0)
    cluster = machine.cluster
    cluster.run(1.0)
    leader = next(core for core in cluster.cores.values() if core.role is Role.LEADER)
    one, other = [name for name in cluster.names if name != leader.node][:2]
    assert leader.commit_index == 0
    cluster.propose(leader.node, b"body")
    return leader, one, other, machine


def confirm(machine: CoreMachine, follower: str) -> None:
    """Delivers what is on its way to a follower, and what it answers."""
    for end in ("to", "sender"):
        for packet in list(machine.cluster.flight):
            if getattr(packet, end) == follower:
                machine.receive(packet)
