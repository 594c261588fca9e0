"""Sequences of faults of brokers; see ``faults/raft_sequences.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.faults.actions import CONSUMER, LEADER
from simulator.faults.client_and_clock_faults import NAME_SERVER
from simulator.faults.injector import Fault, FaultInjector
from simulator.faults.raft_sequences import leader_beside

if TYPE_CHECKING:
    from simulator.hosts.host import Host

CONSUMERS = ("c0", "c1")
SUCCESSOR_WITHIN_SECONDS = 4.0
LOOK_SECONDS = 0.002
SLOW, USUAL = 30.0, 1.0
"""How many times as long as on a good disk work takes."""


def _leader_dies_unheard(injector: FaultInjector) -> None:
    """A leader acknowledges, and dies before any peer knows that the entry is committed. A client
    that asks the next leader at once must get what was acknowledged. Slow disks delay the first
    entry of that leader."""
    leader = injector.cluster.leader()
    if leader is None or leader.node is None or not injector.begin_sequence(7.0):
        return
    injector.do("withhold-commits", leader.name)
    injector.do("write-at-once", leader.name)
    boot = leader.boot
    injector.after(injector.rng.uniform(0.01, 0.06), _dies, injector, leader, boot)


def _dies(injector: FaultInjector, leader: Host, boot: int) -> None:
    if leader.boot != boot or leader.node is None:
        return
    term = leader.node.core.term
    others = [host.name for host in injector.cluster.hosts if host is not leader]
    injector.do("crash", leader.name)
    for other in others:
        injector.do("slow-disk", other, SLOW)
        injector.do_after(SUCCESSOR_WITHIN_SECONDS + 1.0, "slow-disk", other, USUAL)
    injector.do_after(SUCCESSOR_WITHIN_SECONDS + 1.0, "heal")
    tries = int(SUCCESSOR_WITHIN_SECONDS / LOOK_SECONDS)
    injector.after(LOOK_SECONDS, _ask_successor, injector, leader, term, tries)


def _ask_successor(injector: FaultInjector, leader: Host, term: int, tries: int) -> None:
    successor = leader_beside(injector, leader)
    if successor is not None and successor.node is not None and successor.node.core.term > term:
        if not successor.node.serving:
            successor.coverage_mark("successor asked before it serves")
        for seconds in (0.0, 0.002, 0.01):
            injector.do_after(seconds, "read-at-once", successor.name)
    elif tries:
        injector.after(LOOK_SECONDS, _ask_successor, injector, leader, term, tries - 1)


def _registration_late(injector: FaultInjector) -> None:
    """A leader's registration is in progress for seconds. Meanwhile another one leads and
    registers, or its process dies and the next one registers first. Other members' registrations
    may be late, too."""
    leader = injector.cluster.leader()
    if leader is None or not injector.begin_sequence(5.0):
        return
    rng = injector.rng
    names = [host.name for host in injector.cluster.hosts if host is not leader]
    late = rng.choice(names)
    if rng.random() < 0.5:
        _starts_twice(injector, late)
        return
    other = rng.choice([leader.name, *[name for name in names if name != late]])
    injector.do("delay-stream", late, NAME_SERVER, round(rng.uniform(1.5, 4.0), 1))
    injector.do("hand-over", late)
    if rng.random() < 0.5:
        injector.do_after(0.5, "crash", late)
    else:
        injector.do_after(0.5, "hand-over", other)
    injector.do_after(0.7, "heal")


def _starts_twice(injector: FaultInjector, late: str) -> None:
    """The registration of its first process arrives after that of the next one."""
    injector.do("delay-stream", late, NAME_SERVER, round(injector.rng.uniform(2.0, 4.0), 1))
    for seconds, act in ((0.0, "crash"), (0.01, "start"), (0.5, "crash"), (0.52, "start")):
        injector.do_after(seconds, act, late)
    injector.do_after(0.51, "heal")


def _dies_with_what_was_given(injector: FaultInjector) -> None:
    """A consumer gets messages, and it or the leader dies before the offset is committed."""
    client = injector.rng.choice(CONSUMERS)
    injector.do("crash-given", client, injector.rng.choice((CONSUMER, LEADER)))
    for seconds in (1.0, 3.0):
        injector.do_after(seconds, "start-client", client)


BROKER_SEQUENCE_KINDS: dict[str, Fault] = {
    "leader dies unheard": Fault(_leader_dies_unheard),
    "registration late": Fault(_registration_late),
    "dies with what was given": Fault(_dies_with_what_was_given),
}
"""They need brokers, clients and a NameServer."""
