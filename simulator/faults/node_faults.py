"""Single faults of nodes, their disks and their network. Each chooses its place."""

from __future__ import annotations

from simulator.faults.actions import NOTICED, SILENT
from simulator.faults.attacker import CERTIFICATES, FORGERIES
from simulator.faults.injector import Fault, FaultInjector

FULL_DISK_ROOM_MAX = 12 << 10


# --- processes and machines


def _crash(injector: FaultInjector) -> None:
    injector.do("crash", injector.host().name)


def _crash_within_a_call(injector: FaultInjector) -> None:
    injector.do("crash-within", injector.host().name, injector.rng.randint(1, 40))


def _power_loss(injector: FaultInjector) -> None:
    for host in injector.minority():
        injector.do("lose-power", host.name)


def _power_loss_of_all(injector: FaultInjector) -> None:
    for host in injector.cluster.hosts:
        injector.do("lose-power", host.name)


def _power_loss_within_a_call(injector: FaultInjector) -> None:
    injector.do("lose-power-within", injector.host().name, injector.rng.randint(1, 40))


def _stop(injector: FaultInjector) -> None:
    injector.do("stop", injector.host().name)


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


def _disk_error(injector: FaultInjector) -> None:
    injector.do("fail-call", injector.host().name, injector.rng.randint(1, 40))


def _full_disk(injector: FaultInjector) -> None:
    host = injector.host()
    injector.do("fill-disk", host.name, injector.rng.randint(0, FULL_DISK_ROOM_MAX))
    injector.later(3.0, "free-disk", host.name)


def _slow_disk(injector: FaultInjector) -> None:
    injector.do("slow-disk", injector.host().name, injector.rng.choice((1.0, 10.0, 300.0)))


def _expiry(injector: FaultInjector) -> None:
    for host in injector.cluster.hosts:
        injector.do("expire", host.name)


# --- the network


def _partition(injector: FaultInjector) -> None:
    """Two sides that cannot reach each other."""
    first = injector.host()
    side = [host for host in injector.cluster.hosts if host is first or injector.rng.random() < 0.3]
    how = injector.rng.choice((NOTICED, SILENT))
    for one in side:
        for other in injector.cluster.hosts:
            if other not in side:
                injector.do("cut", one.name, other.name, how)
                injector.do("cut", other.name, one.name, how)
    injector.later(2.0, "heal")


def _partial_partition(injector: FaultInjector) -> None:
    """Two hosts cannot reach each other, but all others reach both."""
    one, other = injector.two()
    how = injector.rng.choice((NOTICED, SILENT))
    injector.do("cut", one.name, other.name, how)
    injector.do("cut", other.name, one.name, how)
    injector.later(5.0, "heal")


def _one_way(injector: FaultInjector) -> None:
    """One host receives from another that receives nothing from it."""
    one, other = injector.two()
    if injector.rng.random() < 0.5:
        one, other = other, one
    injector.do("cut", one.name, other.name, SILENT)
    injector.later(5.0, "heal")


def _lossy(injector: FaultInjector) -> None:
    injector.do("loss", injector.rng.choice((0.0, 0.01, 0.1, 0.3)))


def _duplicating(injector: FaultInjector) -> None:
    injector.do("duplication", injector.rng.choice((0.0, 0.02, 0.3)))


def _reordering(injector: FaultInjector) -> None:
    injector.do("reordering", injector.rng.choice((0.0, 0.05, 0.5)))


def _flipping(injector: FaultInjector) -> None:
    """Flips bits of frames between peers, sometimes so often that few links stay up."""
    injector.do("flips", injector.rng.choice((0.0, 0.002, 0.02, 0.2)))


def _delaying(injector: FaultInjector) -> None:
    injector.do("delay", injector.rng.choice((0.002, 0.02, 0.2)))


NODE_KINDS: dict[str, Fault] = {
    "crash": Fault(_crash),
    "crash within a call": Fault(_crash_within_a_call),
    "power loss": Fault(_power_loss),
    "power loss of all": Fault(_power_loss_of_all),
    "power loss within a call": Fault(_power_loss_within_a_call),
    "stop": Fault(_stop),
    "pause": Fault(_pause),
    "disk error": Fault(_disk_error),
    "full disk": Fault(_full_disk),
    "slow disk": Fault(_slow_disk),
    "partition": Fault(_partition),
    "partial partition": Fault(_partial_partition),
    "one-way link": Fault(_one_way),
    "loss": Fault(_lossy),
    "duplication": Fault(_duplicating),
    "reordering": Fault(_reordering),
    "bits flipped on a link": Fault(_flipping),
    "delay": Fault(_delaying),
    "expiry": Fault(_expiry),
}
"""Faults of every cluster, by their names in the summary of a run."""

ATTACKER = "attacker"
ATTACKS: dict[str, Fault] = {ATTACKER: Fault(_somebody_attacks)}
"""Kinds that only a profile with attacks draws."""
