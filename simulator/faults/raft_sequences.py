"""Sequences of faults that chance alone would seldom produce.

Each step is an action of its own, so a run that is played again, or made smaller, may leave some of
them out. A later step may depend on the state of the cluster by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dledger.raft.raft_state import Role
from simulator.faults.actions import SILENT
from simulator.faults.injector import Fault, FaultInjector
from simulator.faults.wiped_voter import WIPED_BESIDE_AN_EMPTY_ONE, wiped_beside_an_empty_one

if TYPE_CHECKING:
    from simulator.hosts.host import Host

GIVES_UP_AFTER = (0.8, 1.6, 2.4)
"""The pause until an unheard follower saves a checkpoint and expires its log: it keeps the last
two."""


def _follower_unheard(injector: FaultInjector) -> None:
    """The leader does not hear a follower that hears it. The follower gives up its oldest entries
    and restarts. The leader knows nothing of its confirmations and sends expired entries again."""
    leader = injector.cluster.leader()
    if leader is None or not injector.begin_sequence(3.4):
        return
    others = [host.name for host in injector.cluster.hosts if host is not leader]
    follower = injector.rng.choice(others)
    injector.do("cut", follower, leader.name, SILENT)
    for seconds in GIVES_UP_AFTER:
        injector.do_after(seconds, "expire", follower)
    injector.do_after(3.2, "crash", follower)
    injector.do_after(3.4, "heal")


LOOK_SECONDS = 0.02
EVEN_VOTERS_MIN = 4
RIVAL_WITHIN_SECONDS = 3.0
FAR, NEAR = 0.2, 0.002


def _rival_changes(injector: FaultInjector) -> None:
    """Two leaders change the members, each its own way: bug B8 (Ongaro 2015).

    Two majorities that differ by one change each have nobody in common only if the number of voters
    is even. So a member leaves first.
    """
    leader = injector.cluster.leader()
    if leader is None or leader.node is None or not injector.begin_sequence(8.0):
        return
    voters = leader.node.core.configuration.voters
    if len(voters) % 2:
        injector.do("remove-member", _one_of(injector, voters, leader.name))
    injector.after(1.0, _first_change, injector)


def _one_of(injector: FaultInjector, names: Sequence[str], *but: str) -> str:
    return injector.rng.choice([name for name in names if name not in but])


def _first_change(injector: FaultInjector) -> None:
    """The leader is cut off and asked to remove a voter before anybody notices."""
    leader = injector.cluster.leader()
    if leader is None or leader.node is None:
        return
    voters = leader.node.core.configuration.voters
    if len(voters) < EVEN_VOTERS_MIN:
        return
    injector.do("delay", FAR)
    others = [each for each in injector.names() if each != leader.name]
    injector.cut_apart([leader.name], others, SILENT)
    victim = _one_of(injector, voters, leader.name)
    injector.do("remove-member-at", leader.name, victim)
    injector.do_after(RIVAL_WITHIN_SECONDS, "delay", NEAR)
    injector.do_after(RIVAL_WITHIN_SECONDS + 3.0, "heal")
    tries = int(RIVAL_WITHIN_SECONDS / LOOK_SECONDS)
    injector.after(LOOK_SECONDS, _second_change, injector, leader, victim, tries)


def _second_change(injector: FaultInjector, first: Host, victim: str, tries: int) -> None:
    """Its successor is asked to remove it right after its election. Then the successor is cut off
    from one of its voters, which hears the first leader again."""
    second = leader_beside(injector, first)
    if second is None:
        if tries:
            injector.after(LOOK_SECONDS, _second_change, injector, first, victim, tries - 1)
        return
    injector.do("remove-member-at", second.name, first.name)
    names = injector.names()
    friend = _one_of(injector, names, first.name, second.name, victim)
    injector.do("heal")
    side = [first.name, friend]
    injector.cut_apart(side, [each for each in names if each not in side], SILENT)


def leader_beside(injector: FaultInjector, first: Host) -> Host | None:
    """The other host that believes to be the leader."""
    for host in injector.cluster.hosts:
        if host is not first and host.node is not None and host.node.core.role is Role.LEADER:
            return host
    return None


OLD_COPY_SECONDS = (2.7, 3.2, 3.7)
"""The pause before the copy is restored: the others first save what the disk holds."""


def _old_copy(injector: FaultInjector) -> None:
    """A disk is copied, used for a while, and replaced by that copy (bug C11)."""
    host = injector.rng.choice(injector.names())
    injector.do("copy-disk", host)
    injector.do_after(1.5, "pause", host)
    for seconds in OLD_COPY_SECONDS:
        injector.do_after(seconds, "restore-disk", host)
    injector.do_after(4.0, "resume", host)


def _leader_dies_in_a_change(injector: FaultInjector) -> None:
    """A leader is asked to remove a voter, and dies before that is done: the next leader ends
    it."""
    leader = injector.cluster.leader()
    if leader is None or leader.node is None or not injector.begin_sequence(1.0):
        return
    voters = leader.node.core.configuration.voters
    if len(voters) < len(injector.cluster.hosts):
        return
    injector.do("remove-member", _one_of(injector, voters, leader.name))
    injector.do_after(injector.rng.uniform(0.001, 0.01), "crash", leader.name)


STUCK_SECONDS = 11.0


def _change_stuck(injector: FaultInjector) -> None:
    """A removal needs a voter that the leader does not reach any more: it is cancelled."""
    leader = injector.cluster.leader()
    if leader is None or leader.node is None or not injector.begin_sequence(STUCK_SECONDS):
        return
    voters = leader.node.core.configuration.voters
    if len(voters) != len(injector.cluster.hosts):
        return
    leaves = _one_of(injector, voters, leader.name)
    others = [each for each in voters if each not in (leader.name, leaves)]
    injector.cut_apart([leader.name], others[: len(others) // 2 + 1], SILENT)
    injector.do("remove-member", leaves)
    injector.do_after(STUCK_SECONDS, "heal")


SEVERAL_SECONDS = 1.0


def _several_change(injector: FaultInjector) -> None:
    """Learners become voters, and voters leave, in one step. If there are no learners yet, a member
    first leaves or returns as one."""
    leader = injector.cluster.leader()
    if leader is None or leader.node is None:
        return
    found = leader.node.core.configuration
    away = [name for name in injector.names() if name not in found.voters]
    for name in away:
        if name not in found.learners:
            injector.do("add-member", name)
    injector.after(SEVERAL_SECONDS, _change_several, injector)


def _change_several(injector: FaultInjector) -> None:
    leader = injector.cluster.leader()
    if leader is None or leader.node is None:
        return
    found = leader.node.core.configuration
    names = injector.names()
    fewest = len(names) - injector.cluster.members_away_max
    coming = list(found.learners)
    injector.rng.shuffle(coming)
    coming = coming[: injector.rng.randint(0, len(coming))]
    most = max(0, min(len(found.voters) + len(coming) - fewest, len(found.voters) - 1))
    leaving = injector.rng.sample(found.voters, injector.rng.randint(min(1, most), most))
    wanted = [name for name in names if name in coming or name in found.voters]
    injector.do("replace-members", ",".join(each for each in wanted if each not in leaving))


RAFT_SEQUENCE_KINDS: dict[str, Fault] = {
    WIPED_BESIDE_AN_EMPTY_ONE: Fault(wiped_beside_an_empty_one, at_start=True),
}
"""For bare nodes: their elections are those of brokers, at a tenth of the cost."""

SEQUENCE_KINDS: dict[str, Fault] = {
    "follower unheard": Fault(_follower_unheard),
    "rival changes": Fault(_rival_changes),
    "old copy put back": Fault(_old_copy),
    "leader dies in a change": Fault(_leader_dies_in_a_change),
    "change stuck": Fault(_change_stuck),
    "several members change": Fault(_several_change),
}
