"""Planted bugs: how they are planted, removed again, and searched for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, isfunction, signature
from types import FunctionType
from typing import Any, TypeAlias, TypeVar

from simulator.faults.injector import FaultPlan
from simulator.worlds.registry import NODES, Run

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Original: TypeAlias = Callable[..., T]
"""A function that a patch replaces and still calls; ``T`` is what it returns."""

SECONDS = 6.0
ID = re.compile("([A-Z]+)([0-9]+)([a-z]*)")
"""A letter of docs/planted-bugs.md, a number, and small letters for other ways to the same bug."""

PLACES = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Patch:
    """Replaces attributes, and restores them in the reverse order."""

    def __init__(self) -> None:
        self._replaced: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replaces an attribute of a class or module, which must have it.

        Raises :class:`TypeError` for a function that cannot be called as the one it replaces can.
        """
        before = vars(owner)[name]
        if isfunction(before) and isfunction(value) and not _callable_as(value, before):
            raise TypeError(
                f"{name}{signature(before)} cannot be replaced by one that takes {signature(value)}"
            )
        self._replaced.append((owner, name, before))
        setattr(owner, name, value)

    def instead(self, owner: object, name: str) -> Callable[[F], F]:
        """Decorates the function that replaces an attribute: see :meth:`set`."""

        def plant(function: F) -> F:
            self.set(owner, name, function)
            return function

        return plant

    def around(self, owner: object, name: str) -> Callable[[F], F]:
        """As :meth:`instead`; the function is given the replaced one as its first argument."""

        def plant(function: F) -> F:
            before, taken = vars(owner)[name], signature(function)

            def planted(*args: Any, **arguments: Any) -> Any:
                return function(before, *args, **arguments)

            planted.__signature__ = taken.replace(  # type: ignore[attr-defined]  # read by inspect
                parameters=[*taken.parameters.values()][1:]
            )
            self.set(owner, name, planted)
            return function

        return plant

    def undo(self) -> None:
        """Restores everything."""
        while self._replaced:
            setattr(*self._replaced.pop())


def _callable_as(function: FunctionType, other: FunctionType) -> bool:
    """Whether it accepts the arguments of the other. Shipped code changes, and a stale patch would
    fail late."""
    taken, given = signature(function).parameters, signature(other).parameters
    kinds = {parameter.kind for parameter in taken.values()}
    least, most = _places(taken)
    fewest, all_of_them = _places(given)
    fits = least <= fewest and (Parameter.VAR_POSITIONAL in kinds or all_of_them <= most)
    return fits and (
        Parameter.VAR_KEYWORD in kinds
        or all(name in taken for name, of in given.items() if of.kind is Parameter.KEYWORD_ONLY)
    )


def _places(parameters: Mapping[str, Parameter]) -> tuple[int, int]:
    """The least and the largest number of positional arguments."""
    places = [each for each in parameters.values() if each.kind in PLACES]
    return sum(each.default is Parameter.empty for each in places), len(places)


Plant: TypeAlias = Callable[[Patch], None]


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, the words of the check that must find it, and the seeds that this may take.

    ``says`` has the words of several checks, with `` | `` between, if chance decides which is
    first.

    ``kinds`` are the faults of its runs, none for those that each seed draws.
    """

    id: str
    plant: Plant
    says: str
    seeds: int
    nodes: int = 3
    seconds: float = SECONDS
    kinds: tuple[str, ...] = ()
    world: str = NODES

    @property
    def name(self) -> str:
        """Its name, in words."""
        return self.plant.__name__.replace("_", " ")

    @property
    def takes_out(self) -> str:
        """The missing defence, in a sentence."""
        return " ".join((self.plant.__doc__ or "").split())

    @property
    def place(self) -> tuple[str, int, str]:
        """Its id for sorting: by the letter, then by the number."""
        found = ID.fullmatch(self.id)
        assert found is not None  # noqa: S101 - see BugsOf
        letter, number, way = found.groups()
        return letter, int(number), way

    def explains(self, violation: str | None) -> bool:
        """Whether a violation is that of the right check."""
        return violation is not None and any(said in violation for said in self.says.split(" | "))

    def of(self, seed: int) -> Run:
        """The run of a seed for this bug. The bug itself must be planted."""
        return Run(
            seed,
            world=self.world,
            nodes=self.nodes,
            seconds=self.seconds,
            plan=FaultPlan.of(self.kinds),
        )


class BugsOf:
    """The bugs of a module, whose runs are alike. As a decorator it makes a bug of a function.

    ``usual``: the faults of a bug that names none.
    """

    def __init__(
        self, world: str = NODES, *, seconds: float = SECONDS, usual: tuple[str, ...] = ()
    ) -> None:
        self.bugs: list[Bug] = []
        self._runs = {"world": world, "seconds": seconds}
        self._usual = usual

    def __call__(
        self, id_: str, says: str, seeds: int, *kinds: str, **others: Any
    ) -> Callable[[Plant], Plant]:
        """``others``: fields of this one :class:`Bug`. Raises :class:`ValueError` for an id that is
        none."""
        if ID.fullmatch(id_) is None:
            raise ValueError(f"{id_!r} is no id of a bug, as A5 and N39x are")
        fields: dict[str, Any] = {**self._runs, **others}

        def add(plant: Plant) -> Plant:
            self.bugs.append(Bug(id_, plant, says, seeds, kinds=kinds or self._usual, **fields))
            return plant

        return add


@dataclass(frozen=True, slots=True)
class Finding:
    """How a bug was found: the seed, the number of seeds, and other violations before.

    ``seed`` is None if the right check did not fire within ``seeds``, of which ``tried`` were run.
    """

    bug: Bug
    seed: int | None
    seeds: int
    tried: int
    violation: str
    others: Sequence[str]


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Plants the bug, if there is one, while it is open."""
    patch = Patch()
    try:
        if bug is not None:
            bug.plant(patch)
        yield
    finally:
        patch.undo()


def look_for(bug: Bug, of: Callable[[int], Run] | None = None, seeds: int | None = None) -> Finding:
    """Runs seeds from 1 on until the right check fires, or the budget is spent.

    ``of`` gives the run of a seed and ``seeds`` is the budget, by default those of the bug. Runs
    that know nothing of the bug end with the first check that fires, whichever it is.
    """
    budget = bug.seeds if seeds is None else seeds
    others: list[str] = []
    with planted(bug):
        for seed in range(1, budget + 1):
            violation = (of or bug.of)(seed).play().violation
            if violation is None:
                continue
            if bug.explains(violation):
                return Finding(bug, seed, budget, seed, violation, others)
            others.append(f"seed {seed}: {violation}")
            if of is not None:
                return Finding(bug, None, budget, seed, "", others)
    return Finding(bug, None, budget, budget, "", others)
