"""Which faults a run has, and when they strike: all of it decided by the seed.

Swarm testing: a run with every fault switched on hides the bugs that need a quiet spell, so the
seed first chooses which kinds exist at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.cluster import Cluster


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The kinds of fault of one run."""

    crash: bool
    power_loss: bool
    power_loss_of_all: bool
    power_loss_within_a_call: bool
    partition: bool
    one_way: bool
    lossy: bool
    reordering: bool
    slow_disk: bool

    @classmethod
    def drawn(cls, rng: Random) -> FaultPlan:
        """Each kind with even odds."""
        return cls(*(rng.random() < 0.5 for _ in range(9)))

    def __str__(self) -> str:
        names = [name for name in self.__slots__ if getattr(self, name)]
        return ", ".join(names) or "no faults"


class FaultInjector:
    """Strikes now and then, until it is told to stop."""

    def __init__(self, cluster: Cluster, plan: FaultPlan, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._stopped = False
        kinds: list[tuple[bool, Callable[[], None]]] = [
            (plan.crash, self._crash),
            (plan.power_loss, self._power_loss),
            (plan.power_loss_of_all, self._power_loss_of_all),
            (plan.power_loss_within_a_call, self._power_loss_within_a_call),
            (plan.partition, self._partition),
            (plan.one_way, self._one_way),
            (plan.lossy, self._lossy),
            (plan.reordering, self._reorder),
            (plan.slow_disk, self._slow_disk),
        ]
        self._strikes = [strike for exists, strike in kinds if exists]

    def start(self) -> None:
        """Begins, if there is anything to begin with."""
        if self._strikes:
            self._next()

    def stop(self) -> None:
        """No fault strikes from now on; what was broken stays so until the cluster is healed."""
        self._stopped = True

    def _next(self) -> None:
        self._cluster.loop.call_later(self._rng.uniform(0.05, 1.5), self._strike)

    def _strike(self) -> None:
        if not self._stopped:
            self._rng.choice(self._strikes)()
            self._next()

    def _later(self, action: Callable[[], None], seconds_max: float) -> None:
        def act() -> None:
            if not self._stopped:
                action()

        self._cluster.loop.call_later(self._rng.uniform(0.01, seconds_max), act)

    def _crash(self) -> None:
        host = self._rng.choice(self._cluster.hosts)
        host.crash()
        self._later(host.start, 2.0)

    def _power_loss(self) -> None:
        host = self._rng.choice(self._cluster.hosts)
        host.power_failed()
        self._later(host.start, 2.0)

    def _power_loss_of_all(self) -> None:
        for host in self._cluster.hosts:
            host.power_failed()
            self._later(host.start, 1.0)

    def _power_loss_within_a_call(self) -> None:
        host = self._rng.choice(self._cluster.hosts)
        if host.node is not None:
            calls = self._rng.randint(1, 40)
            host.note(f"power will fail in {calls} calls")
            host.fs.lose_power_at(calls)
        self._later(host.start, 3.0)

    def _partition(self) -> None:
        hosts = self._cluster.hosts
        side = [host for host in hosts if self._rng.random() < 0.5]
        noticed = self._rng.random() < 0.5
        for one in side:
            for other in hosts:
                if other not in side:
                    self._cluster.cut(one, other, noticed=noticed)
                    self._cluster.cut(other, one, noticed=noticed)
        self._later(self._cluster.heal_network, 2.0)

    def _one_way(self) -> None:
        one, other = self._rng.sample(self._cluster.hosts, 2)
        self._cluster.cut(one, other, noticed=False)
        self._later(self._cluster.heal_network, 2.0)

    def _lossy(self) -> None:
        faults = self._cluster.network.faults
        faults.loss = self._rng.choice((0.0, 0.01, 0.1, 0.3))
        faults.duplication = self._rng.choice((0.0, 0.01, 0.1))
        faults.delay_max = self._rng.choice((0.002, 0.02, 0.2))

    def _reorder(self) -> None:
        self._cluster.network.faults.reordering = self._rng.choice((0.0, 0.05, 0.3))

    def _slow_disk(self) -> None:
        host = self._rng.choice(self._cluster.hosts)
        host.disk_slowness = self._rng.choice((1.0, 10.0, 300.0))
        host.note(f"disk is {host.disk_slowness:g} times as slow")
