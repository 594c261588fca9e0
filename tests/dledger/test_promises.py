"""A process that ends by its own assertion says which promise stands behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.errors import InvariantError, SafetyProperty

ROOT = Path(__file__).parents[2]
PACKAGES = ("store", "dledger", "broker", "spark")


def _assertions() -> Iterator[tuple[str, ast.Call]]:
    """Each call that makes one, and where it is."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if "InvariantError(" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("InvariantError"):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_every_assertion_names_its_promise() -> None:
    found = list(_assertions())
    assert found
    for place, call in found:
        first = ast.unparse(call.args[0])
        assert first.removeprefix("SafetyProperty.") in SafetyProperty.__members__, (
            f"{place}: {first}"
        )


@pytest.mark.parametrize("promise", SafetyProperty)
def test_what_is_said_begins_with_the_promise(promise: SafetyProperty) -> None:
    assert str(InvariantError(promise, "entry 5 is gone")) == f"{promise.value}: entry 5 is gone"
