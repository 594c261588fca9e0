"""Single faults of nodes, their disks and their network. Each chooses its place."""

from __future__ import annotations

from random import Random

from simulator.faults.actions import NOTICED, SILENT
from simulator.faults.attacker import CERTIFICATES, FORGERIES
from simulator.faults.injector import Fault, FaultInjector, at_a_host

FULL_DISK_ROOM_MAX = 12 << 10


# --- processes and machines


def _one_of_the_next_calls(rng: Random) -> int:
    return rng.randint(1, 40)


def _power_loss(injector: FaultInjector) -> None:
    for host in injector.minority():
        injector.do("lose-power", host.name)


def _power_loss_of_all(injector: FaultInjector) -> None:
    for host in injector.cluster.hosts:
        injector.do("lose-power", host.name)


def _pause(injector: FaultInjector) -> None:
    host = injector.host()
    injector.do("pause", host.name)
    injector.later(3.0, "resume", host.name)


# --- the peers' port


def _somebody_attacks(injector: FaultInjector) -> None:
    host, peer = injector.two()
    rng = injector.rng
    certificate, forgery = rng.choice([*CERTIFICATES]), rng.choice([*FORGERIES])
    injector.do("attack", host.name, peer.name, certificate, forgery)


# --- disks


def _full_disk(injector: FaultInjector) -> None:
    host = injector.host()
    injector.do("fill-disk", host.name, injector.rng.randint(0, FULL_DISK_ROOM_MAX))
    injector.later(3.0, "free-disk", host.name)


def _expiry(injector: FaultInjector) -> None:
    for host in injector.cluster.hosts:
        injector.do("expire", host.name)


# --- the network


def _one_of(action: str, *values: float) -> Fault:
    """A fault of all links: one of the values, which hold until all is healed."""
    return Fault(lambda injector: injector.do(action, injector.rng.choice(values)))


def _partition(injector: FaultInjector) -> None:
    """Two sides that cannot reach each other."""
    first = injector.host()
    hosts, rng = injector.cluster.hosts, injector.rng
    side = [host.name for host in hosts if host is first or rng.random() < 0.3]
    others = [name for name in injector.names() if name not in side]
    injector.cut_apart(side, others, rng.choice((NOTICED, SILENT)))
    injector.later(2.0, "heal")


def _partial_partition(injector: FaultInjector) -> None:
    """Two hosts cannot reach each other, but all others reach both."""
    one, other = injector.two()
    injector.cut_apart([one.name], [other.name], injector.rng.choice((NOTICED, SILENT)))
    injector.later(5.0, "heal")


def _one_way(injector: FaultInjector) -> None:
    """One host receives from another that receives nothing from it."""
    one, other = injector.two()
    if injector.rng.random() < 0.5:
        one, other = other, one
    injector.do("cut", one.name, other.name, SILENT)
    injector.later(5.0, "heal")


NODE_KINDS: dict[str, Fault] = {
    "crash": at_a_host("crash"),
    "crash within a call": at_a_host("crash-within", _one_of_the_next_calls),
    "power loss": Fault(_power_loss),
    "power loss of all": Fault(_power_loss_of_all),
    "power loss within a call": at_a_host("lose-power-within", _one_of_the_next_calls),
    "stop": at_a_host("stop"),
    "pause": Fault(_pause),
    "disk error": at_a_host("fail-call", _one_of_the_next_calls),
    "full disk": Fault(_full_disk),
    "slow disk": at_a_host("slow-disk", lambda rng: rng.choice((1.0, 10.0, 300.0))),
    "partition": Fault(_partition),
    "partial partition": Fault(_partial_partition),
    "one-way link": Fault(_one_way),
    "loss": _one_of("loss", 0.0, 0.01, 0.1, 0.3),
    "duplication": _one_of("duplication", 0.0, 0.02, 0.3),
    "reordering": _one_of("reordering", 0.0, 0.05, 0.5),
    "bits flipped on a link": _one_of("flips", 0.0, 0.002, 0.02, 0.2),
    "delay": _one_of("delay", 0.002, 0.02, 0.2),
    "expiry": Fault(_expiry),
}
"""Faults of every cluster, by their names in the summary of a run."""

ATTACKER = "attacker"
ATTACKS: dict[str, Fault] = {ATTACKER: Fault(_somebody_attacks)}
"""Kinds that only a profile with attacks draws."""
