"""The faults of a run and their times: the seed decides all of it.

Swarm testing: a run with every kind of fault hides bugs that need quiet times. So the seed first
chooses which kinds the run has, and how often they happen.

A fault only chooses. It proposes actions to the schedule (``faults/actions.py``), which notes them.
So all or some of the faults of a run can be played again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeVarTuple, Unpack

from simulator.faults.schedule import TIME_DIGITS

if TYPE_CHECKING:
    from simulator.faults.target import Argument, FaultTarget
    from simulator.hosts.host import Host

Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The kinds of fault of one run; ``pause_max``: the longest time between two, in seconds."""

    kinds: tuple[str, ...]
    pause_max: float

    @classmethod
    def drawn(cls, seed: int, among: Sequence[str]) -> FaultPlan:
        """A plan that has each kind of ``among`` with a probability of one half.

        Each kind is drawn by its name. So a new kind changes only the runs that have it.
        """
        kinds = tuple(kind for kind in among if Random(f"{seed}/has {kind}").random() < 0.5)
        return cls(kinds, Random(f"{seed}/pause").choice((0.4, 1.5, 4.0)))

    @classmethod
    def of(cls, kinds: Sequence[str]) -> FaultPlan | None:
        """A plan of exactly these kinds; ``None`` without any."""
        return cls(tuple(kinds), 1.0) if kinds else None

    def __str__(self) -> str:
        return ", ".join(self.kinds) or "no faults"


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. ``at_start``: it also happens when the run begins."""

    strike: Callable[[FaultInjector], None]
    at_start: bool = False


def at_a_host(action: str, *draws: Callable[[Random], Argument]) -> Fault:
    """A fault that is one action, at a host by chance; ``draws`` give its other arguments."""

    def strike(injector: FaultInjector) -> None:
        host = injector.host().name
        injector.do(action, host, *[draw(injector.rng) for draw in draws])

    return Fault(strike)


class FaultInjector:
    """Injects faults until :meth:`end`. ``rng`` decides everything about them."""

    def __init__(
        self, cluster: FaultTarget, plan: FaultPlan, faults: Mapping[str, Fault], rng: Random
    ) -> None:
        """``faults`` has at least the kinds of the plan."""
        self.cluster = cluster
        self.rng = rng
        self._plan = plan
        self._faults = faults
        self._stopped = False
        self._sequence_ends_at = 0.0

    def start(self) -> None:
        """Starts, if the plan has faults."""
        for kind in self._plan.kinds:
            if self._faults[kind].at_start:
                self._faults[kind].strike(self)
        if self._plan.kinds:
            self._next()

    def end(self) -> None:
        """Injects no more faults. What is broken stays so until the cluster is healed."""
        self._stopped = True

    def process_ended(self, host: Host) -> None:
        """Starts the process again, at once or later."""
        seconds = self.rng.choice((0.02, 0.3, 3.0)) * self.rng.random()
        self._after(seconds, self.do, "start", host.name)

    def _after(self, seconds: float, act: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        """Acts at a time with few digits, for the schedule."""
        loop = self.cluster.loop
        loop.call_at(round(loop.time() + seconds, TIME_DIGITS), act, *arguments)

    def _next(self) -> None:
        self._after(self.rng.uniform(0.05, self._plan.pause_max), self._strike)

    def _strike(self) -> None:
        if not self._stopped:
            self._faults[self.rng.choice(self._plan.kinds)].strike(self)
            self._next()

    # --- for faults

    def begin_sequence(self, seconds: float) -> bool:
        """Begins a sequence of this length; ``False`` if another one is in progress."""
        now = self.cluster.loop.time()
        if now < self._sequence_ends_at:
            return False
        self._sequence_ends_at = now + seconds
        return True

    def do(self, name: str, *arguments: Argument) -> None:
        """Proposes an action."""
        self.cluster.schedule.propose(name, *arguments)

    def do_after(self, seconds: float, name: str, *arguments: Argument) -> None:
        """Proposes an action at a later time, unless faults are over by then."""
        self._after(seconds, self._do_unless_stopped, name, *arguments)

    def cut_apart(self, side: Sequence[str], others: Sequence[str], how: Argument) -> None:
        """No host of one side reaches one of the other, in either direction."""
        for one in side:
            for other in others:
                self.do("cut", one, other, how)
                self.do("cut", other, one, how)

    def names(self) -> Sequence[str]:
        """The names of all hosts."""
        return [host.name for host in self.cluster.hosts]

    def after(self, seconds: float, act: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        """Calls ``act`` at a later time, unless faults are over by then."""

        def go_on() -> None:
            if not self._stopped:
                act(*arguments)

        self._after(seconds, go_on)

    def later(self, seconds_max: float, name: str, *arguments: Argument) -> None:
        """Proposes an action within ``seconds_max``, unless faults are over by then."""
        self.do_after(self.rng.uniform(0.01, seconds_max), name, *arguments)

    def _do_unless_stopped(self, name: str, *arguments: Argument) -> None:
        if not self._stopped:
            self.do(name, *arguments)

    def host(self) -> Host:
        """A host by chance, more often the leader: its faults matter most."""
        leader = self.cluster.leader()
        if leader is not None and self.rng.random() < 0.4:
            return leader
        return self.rng.choice(self.cluster.hosts)

    def two(self) -> tuple[Host, Host]:
        """Two different hosts."""
        one = self.host()
        return one, self.rng.choice([host for host in self.cluster.hosts if host is not one])

    def minority(self) -> Sequence[Host]:
        """Some hosts, at most a minority."""
        hosts = self.cluster.hosts
        return self.rng.sample(hosts, self.rng.randint(1, max(1, (len(hosts) - 1) // 2)))
