"""A compiled function is used if it does what its twin does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from store.message.twins import MODULE, compiled_or


def twin(number: int) -> int:
    return number + 1


def refuses(number: int) -> int:
    raise TypeError(f"built for other arguments than {number}")


@pytest.mark.parametrize(
    ("compiled", "used"),
    [(lambda number: 1 + number, True), (lambda _: 3, False), (refuses, False)],
)
def test_a_module_of_other_sources_is_not_used(
    monkeypatch: pytest.MonkeyPatch, compiled: Callable[[int], int], used: bool
) -> None:
    module = ModuleType(MODULE)
    monkeypatch.setattr(module, "add", compiled, raising=False)
    monkeypatch.setitem(sys.modules, MODULE, module)
    found = compiled_or(twin, "add", lambda add: [add(4), add(6)])
    assert found is (compiled if used else twin)
    assert compiled_or(twin, "subtract", lambda add: add(4)) is twin


def test_without_a_compiled_module_the_twin_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert compiled_or(twin, "add", lambda add: add(4)) is twin
