"""The actions of a run, as a list that can be kept and edited.

The generator of faults (``faults/injector.py``) does nothing to the cluster itself. It asks the
:class:`Schedule` for actions (``faults/actions.py``), which notes each with its time and then
performs it. The list of a run can be played again, without the generator of faults. The same list
gives the same run; a list with one action less is a run with one fault less. ``shrink`` uses that,
and a scenario file holds such a list, one line each::

    at 1.250394 crash n0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.engine.event_loop import VirtualLoop
from simulator.engine.trace import Trace
from simulator.faults.actions import ACTIONS, HostName
from simulator.faults.target import Argument, FaultTarget

TIME_DIGITS = 6


class ScheduleError(ValueError):
    """A line is no action. The text says why."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action, at a time in virtual seconds."""

    at: float
    name: str
    arguments: tuple[Argument, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts that it concerns."""
        kinds = zip(ACTIONS[self.name].types, self.arguments, strict=True)
        return tuple(str(value) for type_, value in kinds if type_ is HostName)

    @property
    def text(self) -> str:
        """The action without its time."""
        return " ".join([self.name, *map(str, self.arguments)])

    def __str__(self) -> str:
        return f"at {self.at!r} {self.text}"


def parse_action(line: str) -> Action:
    """The action of a line. Raises :class:`ScheduleError`."""
    at, when, *words = line.split() + [""] * (3 - len(line.split()))
    name, *given = words
    kind = ACTIONS.get(name)
    if at != "at" or kind is None:
        raise ScheduleError(
            f"{line!r} is not 'at SECONDS ACTION ...' with one of {', '.join(sorted(ACTIONS))}"
        )
    if len(given) != len(kind.types):
        raise ScheduleError(f"{line!r}: {name} takes {len(kind.types)} arguments")
    try:
        arguments = tuple(type_(text) for type_, text in zip(kind.types, given, strict=True))
        return Action(float(when), name, arguments)
    except ValueError as error:
        raise ScheduleError(f"{line!r}: {error}") from None


class Schedule:
    """The actions of one run: those done so far, and perhaps a list to play.

    If ``given`` is not None, it is played, and nothing else is done: proposals through
    :meth:`propose` are refused.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        trace: Trace,
        given: Sequence[Action] | None,
        target_of: Callable[[Action], FaultTarget],
    ) -> None:
        """``target_of``: the group that an action concerns."""
        self.done: list[Action] = []
        self.observers: list[Callable[[Action], None]] = []
        """They get each action before it is done."""
        self._loop = loop
        self._trace = trace
        self._given = given
        self._target_of = target_of

    @property
    def played(self) -> bool:
        """Whether the actions come from a list."""
        return self._given is not None

    def start(self) -> None:
        """Schedules each action of a list."""
        for action in self._given or ():
            self._loop.call_at(action.at, self._perform, action)

    def propose(self, name: str, *arguments: Argument) -> None:
        """Does an action that chance has chosen, now."""
        if self._given is None:
            self._perform(Action(self._loop.time(), name, arguments))

    def _perform(self, action: Action) -> None:
        self.done.append(action)
        self._trace.note("act", action.text)
        for tell in self.observers:
            tell(action)
        ACTIONS[action.name].run(self._target_of(action), *action.arguments)
