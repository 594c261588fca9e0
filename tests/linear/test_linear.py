"""Whatever is read from outside takes no more than linear time, however it is made."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.linear.instrument import is_decoder
from tests.linear.regex_steps import regex_end

pytestmark = pytest.mark.minutes

PRODUCT = Path(__file__).parents[2]
ROOMS = ("broker", "dledger", "store")


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    """What ``python -m tests.linear.run`` prints."""
    run = subprocess.run(
        (sys.executable, "-m", "tests.linear.run"), cwd=PRODUCT, capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr.decode()
    found: dict[str, Any] = orjson.loads(run.stdout)
    return found


def is_linear(steps: list[int]) -> bool:
    """Whether steps for sizes that double grow no more than linearly.

    What is refused beyond a size takes fewer steps there, and that is no fault.
    """
    small, middle, large = steps
    slack = 300
    if large > 2.3 * middle + slack:
        return False
    grows = middle > 1.5 * small
    return not grows or large - middle <= 2.4 * (middle - small) + slack


def test_the_counter_tells_quadratic_from_linear(counted: dict[str, Any]) -> None:
    samples = counted["samples"]
    missed = [name for name, steps in samples["QUADRATIC"].items() if is_linear(steps)]
    wronged = [name for name, steps in samples["LINEAR"].items() if not is_linear(steps)]
    assert (missed, wronged) == ([], [])


def test_every_decoder_is_linear(counted: dict[str, Any]) -> None:
    slow = {
        f"{decoder}: {shape}": steps
        for decoder, shapes in counted["decoders"].items()
        for shape, steps in shapes.items()
        if not is_linear(steps)
    }
    assert not slow, "\n".join(f"{what}: {steps}" for what, steps in slow.items())


def test_every_decoder_is_in_the_table(counted: dict[str, Any]) -> None:
    known = {*counted["entered"], *counted["elsewhere"]}
    missing = sorted(decoders_of_the_product() - known)
    assert not missing, f"tests/linear/decoders.py does not feed {missing}"


def test_whatever_is_named_as_no_decoder_is_there(counted: dict[str, Any]) -> None:
    assert set(counted["elsewhere"]) <= decoders_of_the_product()


@cache
def decoders_of_the_product() -> frozenset[str]:
    """Functions that are called like one, by their names with their modules."""
    found: set[str] = set()
    for room in ROOMS:
        for path in (PRODUCT / room).rglob("*.py"):
            module = path.relative_to(PRODUCT).with_suffix("").as_posix().replace("/", ".")
            _collect(ast.parse(path.read_text()), module.removesuffix(".__init__"), found)
    return frozenset(found)


def _collect(node: ast.AST, scope: str, found: set[str]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{scope}.{child.name}"
            if not isinstance(child, ast.ClassDef) and is_decoder(child):
                found.add(name)
            _collect(child, name, found)
        else:
            _collect(child, scope, found)


PATTERNS = [
    r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(\s*:)',
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]:,]|[^"{}\[\]:,]++',
    r"[+-]?(?:NaN|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?)",
    r"a*?b|(?>a+)b|(?:ab|a)*c",
    r"(?:(?<=b)|\A)a(?!-|0*(?:c|\Z))",
    r"/\*.*?\*/|(a|b){2,3}|^a$",
]


@given(st.sampled_from(PATTERNS), st.text('"\\{,:-019aAbce./*N', max_size=12))
def test_the_counting_matcher_matches_what_re_matches(pattern: str, text: str) -> None:
    compiled = re.compile(pattern, re.DOTALL)
    match = compiled.match(text)
    assert regex_end(compiled, text) == (match and match.end())
