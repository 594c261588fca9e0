"""Which faults a run has, and when they strike: all of it decided by the seed.

Swarm testing: a run with every fault switched on hides the bugs that need a quiet spell, so the
seed first chooses which kinds exist at all, and how often they strike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from simulator.host import Ending

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.host import Host

FULL_DISK_ROOM_MAX = 12 << 10


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The kinds of fault of one run; ``pause_max``: the longest time between two, in seconds."""

    kinds: tuple[str, ...]
    pause_max: float

    @classmethod
    def drawn(cls, rng: Random) -> FaultPlan:
        """Each kind exists with even odds."""
        kinds = tuple(kind for kind in KINDS if rng.random() < 0.5)
        return cls(kinds, rng.choice((0.4, 1.5, 4.0)))

    def __str__(self) -> str:
        return ", ".join(self.kinds) or "no faults"


class FaultInjector:
    """Strikes now and then, until it is told to stop."""

    def __init__(self, cluster: Cluster, plan: FaultPlan, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._plan = plan
        self._stopped = False

    def start(self) -> None:
        """Begins, if there is anything to begin with."""
        if self._plan.kinds:
            self._next()

    def end(self) -> None:
        """No fault strikes from now on; what was broken stays so until the cluster is healed."""
        self._stopped = True

    def process_ended(self, host: Host) -> None:
        """Somebody starts it again, at once or later."""
        seconds = self._rng.choice((0.02, 0.3, 3.0)) * self._rng.random()
        self._cluster.loop.call_later(seconds, host.start)

    def _next(self) -> None:
        self._cluster.loop.call_later(self._rng.uniform(0.05, self._plan.pause_max), self._strike)

    def _strike(self) -> None:
        if not self._stopped:
            KINDS[self._rng.choice(self._plan.kinds)](self)
            self._next()

    def _later(self, action: Callable[[], None], seconds_max: float) -> None:
        def act() -> None:
            if not self._stopped:
                action()

        self._cluster.loop.call_later(self._rng.uniform(0.01, seconds_max), act)

    def _host(self) -> Host:
        """Any host, but the leader more often: there most is at stake."""
        leader = self._cluster.leader()
        if leader is not None and self._rng.random() < 0.4:
            return leader
        return self._rng.choice(self._cluster.hosts)

    def _two(self) -> tuple[Host, Host]:
        one = self._host()
        return one, self._rng.choice([host for host in self._cluster.hosts if host is not one])

    def _minority(self) -> Sequence[Host]:
        hosts = self._cluster.hosts
        return self._rng.sample(hosts, self._rng.randint(1, max(1, (len(hosts) - 1) // 2)))

    # --- processes and machines

    def crash(self) -> None:
        self._host().crash()

    def crash_within_a_call(self) -> None:
        self._host().end_within_a_call(Ending.CRASH, self._rng.randint(1, 40))

    def power_loss(self) -> None:
        for host in self._minority():
            host.lose_power()

    def power_loss_of_all(self) -> None:
        for host in self._cluster.hosts:
            host.lose_power()

    def power_loss_within_a_call(self) -> None:
        self._host().end_within_a_call(Ending.POWER_LOSS, self._rng.randint(1, 40))

    def stop(self) -> None:
        self._host().stop()

    def pause(self) -> None:
        host = self._host()
        host.pause()
        self._later(host.resume, 3.0)

    # --- disks

    def disk_error(self) -> None:
        self._host().fail_a_call(self._rng.randint(1, 40))

    def full_disk(self) -> None:
        host = self._host()
        host.fill_disk(self._rng.randint(0, FULL_DISK_ROOM_MAX))
        self._later(host.free_disk, 3.0)

    def slow_disk(self) -> None:
        host = self._host()
        host.disk_slowness = self._rng.choice((1.0, 10.0, 300.0))
        host.note(f"disk is {host.disk_slowness:g} times as slow")

    # --- the network

    def partition(self) -> None:
        """Two sides that do not hear each other."""
        first = self._host()
        side = [host for host in self._cluster.hosts if host is first or self._rng.random() < 0.3]
        noticed = self._rng.random() < 0.5
        for one in side:
            for other in self._cluster.hosts:
                if other not in side:
                    self._cluster.cut(one, other, noticed=noticed)
                    self._cluster.cut(other, one, noticed=noticed)
        self._later(self._cluster.heal_network, 2.0)

    def partial_partition(self) -> None:
        """Two hosts do not hear each other, and everybody else hears both."""
        one, other = self._two()
        noticed = self._rng.random() < 0.5
        self._cluster.cut(one, other, noticed=noticed)
        self._cluster.cut(other, one, noticed=noticed)
        self._later(self._cluster.heal_network, 5.0)

    def one_way(self) -> None:
        """One host still hears another that does not hear it."""
        one, other = self._two()
        if self._rng.random() < 0.5:
            one, other = other, one
        self._cluster.cut(one, other, noticed=False)
        self._later(self._cluster.heal_network, 5.0)

    def lossy(self) -> None:
        faults = self._cluster.network.faults
        faults.loss = self._rng.choice((0.0, 0.01, 0.1, 0.3))

    def duplicating(self) -> None:
        self._cluster.network.faults.duplication = self._rng.choice((0.0, 0.02, 0.3))

    def reordering(self) -> None:
        self._cluster.network.faults.reordering = self._rng.choice((0.0, 0.05, 0.5))

    def far(self) -> None:
        self._cluster.network.faults.delay_max = self._rng.choice((0.002, 0.02, 0.2))


KINDS: dict[str, Callable[[FaultInjector], None]] = {
    "crash": FaultInjector.crash,
    "crash within a call": FaultInjector.crash_within_a_call,
    "power loss": FaultInjector.power_loss,
    "power loss of all": FaultInjector.power_loss_of_all,
    "power loss within a call": FaultInjector.power_loss_within_a_call,
    "stop": FaultInjector.stop,
    "pause": FaultInjector.pause,
    "disk error": FaultInjector.disk_error,
    "full disk": FaultInjector.full_disk,
    "slow disk": FaultInjector.slow_disk,
    "partition": FaultInjector.partition,
    "partial partition": FaultInjector.partial_partition,
    "one-way link": FaultInjector.one_way,
    "loss": FaultInjector.lossy,
    "duplication": FaultInjector.duplicating,
    "reordering": FaultInjector.reordering,
    "delay": FaultInjector.far,
}
"""Every kind of fault, by the name that the summary of a run tells."""
