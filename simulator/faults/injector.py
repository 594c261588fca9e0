"""Which faults a run has, and when they strike: all of it decided by the seed.

Swarm testing: a run with every fault switched on hides the bugs that need a quiet spell, so the
seed first chooses which kinds exist at all, and how often they strike.

A fault only chooses: what happens to the cluster is proposed to its schedule as an action
(``faults/actions.py``), which notes it. So the faults of a run can be played again, and fewer of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, TypeVarTuple, Unpack

from simulator.faults.actions import NOTICED, SILENT, Argument
from simulator.faults.membership import MEMBER_KINDS
from simulator.faults.raft_sequences import RAFT_SEQUENCE_KINDS, SEQUENCE_KINDS
from simulator.faults.schedule import TIME_DIGITS
from simulator.faults.wiped_voter import WIPED_BESIDE_AN_EMPTY_ONE

if TYPE_CHECKING:
    from simulator.hosts.host import Host
    from simulator.worlds.raft_cluster import Cluster

Ts = TypeVarTuple("Ts")

FULL_DISK_ROOM_MAX = 12 << 10


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The kinds of fault of one run; ``pause_max``: the longest time between two, in seconds."""

    kinds: tuple[str, ...]
    pause_max: float

    @classmethod
    def drawn(cls, rng: Random, among: Sequence[str] = ()) -> FaultPlan:
        """Each kind exists with even odds, of those ``among`` which it is drawn (none for all)."""
        kinds = tuple(kind for kind in among or KINDS if rng.random() < 0.5)
        return cls(kinds, rng.choice((0.4, 1.5, 4.0)))

    @classmethod
    def of(cls, kinds: Sequence[str]) -> FaultPlan | None:
        """A plan of just these kinds; None where there are none."""
        return cls(tuple(kinds), 1.0) if kinds else None

    def __str__(self) -> str:
        return ", ".join(self.kinds) or "no faults"


class FaultInjector:
    """Strikes now and then, until it is told to stop."""

    drawn_kinds: ClassVar[Sequence[str]] = ()
    """Among which kinds a seed chooses; all of ``KINDS`` if there are none."""

    def __init__(self, cluster: Cluster, plan: FaultPlan, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._plan = plan
        self._stopped = False
        self._sequence_ends_at = 0.0

    def start(self) -> None:
        """Begins, if there is anything to begin with."""
        if WIPED_BESIDE_AN_EMPTY_ONE in self._plan.kinds:
            self._strike_with(WIPED_BESIDE_AN_EMPTY_ONE)
        if self._plan.kinds:
            self._next()

    def end(self) -> None:
        """No fault strikes from now on; what was broken stays so until the cluster is healed."""
        self._stopped = True

    def process_ended(self, host: Host) -> None:
        """Somebody starts it again, at once or later."""
        seconds = self._rng.choice((0.02, 0.3, 3.0)) * self._rng.random()
        self._after(seconds, self._do, "start", host.name)

    def _do(self, name: str, *arguments: Argument) -> None:
        self._cluster.schedule.propose(name, *arguments)

    def _after(self, seconds: float, act: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        """At a time that a schedule can say in a few digits."""
        loop = self._cluster.loop
        loop.call_at(round(loop.time() + seconds, TIME_DIGITS), act, *arguments)

    def _next(self) -> None:
        self._after(self._rng.uniform(0.05, self._plan.pause_max), self._strike)

    def _strike(self) -> None:
        if not self._stopped:
            self._strike_with(self._rng.choice(self._plan.kinds))
            self._next()

    def _strike_with(self, kind: str) -> None:
        of_nodes = {**KINDS, **MEMBER_KINDS, **SEQUENCE_KINDS, **RAFT_SEQUENCE_KINDS}
        of_nodes[kind](self)

    # --- for faults that are told elsewhere

    @property
    def cluster(self) -> Cluster:
        """What it strikes."""
        return self._cluster

    @property
    def rng(self) -> Random:
        """All chance of its faults."""
        return self._rng

    def begin_sequence(self, seconds: float) -> bool:
        """Whether none is under way; then one is, for so long."""
        now = self._cluster.loop.time()
        if now < self._sequence_ends_at:
            return False
        self._sequence_ends_at = now + seconds
        return True

    def do(self, name: str, *arguments: Argument) -> None:
        """Proposes an action."""
        self._do(name, *arguments)

    def do_after(self, seconds: float, name: str, *arguments: Argument) -> None:
        """Proposes an action at a time to come, unless faults are over by then."""
        self._after(seconds, self._do_unless_stopped, name, *arguments)

    def do_to_one(self, name: str) -> None:
        """An action on one host, the leader more often."""
        self._do(name, self._host().name)

    def names(self) -> Sequence[str]:
        """Of all hosts."""
        return [host.name for host in self._cluster.hosts]

    def after(self, seconds: float, act: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        """Goes on choosing at a time to come, unless faults are over by then."""

        def go_on() -> None:
            if not self._stopped:
                act(*arguments)

        self._after(seconds, go_on)

    # --- within

    def _later(self, seconds_max: float, name: str, *arguments: Argument) -> None:
        self._after(self._rng.uniform(0.01, seconds_max), self._do_unless_stopped, name, *arguments)

    def _do_unless_stopped(self, name: str, *arguments: Argument) -> None:
        if not self._stopped:
            self._do(name, *arguments)

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
        self._do("crash", self._host().name)

    def crash_within_a_call(self) -> None:
        self._do("crash-within", self._host().name, self._rng.randint(1, 40))

    def power_loss(self) -> None:
        for host in self._minority():
            self._do("lose-power", host.name)

    def power_loss_of_all(self) -> None:
        for host in self._cluster.hosts:
            self._do("lose-power", host.name)

    def power_loss_within_a_call(self) -> None:
        self._do("lose-power-within", self._host().name, self._rng.randint(1, 40))

    def stop(self) -> None:
        self._do("stop", self._host().name)

    def pause(self) -> None:
        host = self._host()
        self._do("pause", host.name)
        self._later(3.0, "resume", host.name)

    # --- disks

    def disk_error(self) -> None:
        self._do("fail-call", self._host().name, self._rng.randint(1, 40))

    def full_disk(self) -> None:
        host = self._host()
        self._do("fill-disk", host.name, self._rng.randint(0, FULL_DISK_ROOM_MAX))
        self._later(3.0, "free-disk", host.name)

    def slow_disk(self) -> None:
        self._do("slow-disk", self._host().name, self._rng.choice((1.0, 10.0, 300.0)))

    def expiry(self) -> None:
        for host in self._cluster.hosts:
            self._do("expire", host.name)

    # --- the network

    def partition(self) -> None:
        """Two sides that do not hear each other."""
        first = self._host()
        side = [host for host in self._cluster.hosts if host is first or self._rng.random() < 0.3]
        how = self._rng.choice((NOTICED, SILENT))
        for one in side:
            for other in self._cluster.hosts:
                if other not in side:
                    self._do("cut", one.name, other.name, how)
                    self._do("cut", other.name, one.name, how)
        self._later(2.0, "heal")

    def partial_partition(self) -> None:
        """Two hosts do not hear each other, and everybody else hears both."""
        one, other = self._two()
        how = self._rng.choice((NOTICED, SILENT))
        self._do("cut", one.name, other.name, how)
        self._do("cut", other.name, one.name, how)
        self._later(5.0, "heal")

    def one_way(self) -> None:
        """One host still hears another that does not hear it."""
        one, other = self._two()
        if self._rng.random() < 0.5:
            one, other = other, one
        self._do("cut", one.name, other.name, SILENT)
        self._later(5.0, "heal")

    def lossy(self) -> None:
        self._do("loss", self._rng.choice((0.0, 0.01, 0.1, 0.3)))

    def duplicating(self) -> None:
        self._do("duplication", self._rng.choice((0.0, 0.02, 0.3)))

    def reordering(self) -> None:
        self._do("reordering", self._rng.choice((0.0, 0.05, 0.5)))

    def flipping(self) -> None:
        """Bits of frames between peers; at times so often that hardly any link stays up."""
        self._do("flips", self._rng.choice((0.0, 0.002, 0.02, 0.2)))

    def delaying(self) -> None:
        self._do("delay", self._rng.choice((0.002, 0.02, 0.2)))


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
    "bits flipped on a link": FaultInjector.flipping,
    "delay": FaultInjector.delaying,
    "expiry": FaultInjector.expiry,
}
"""Every kind of fault, by the name that the summary of a run tells."""
