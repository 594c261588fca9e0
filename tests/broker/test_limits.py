"""Limits of what others can grow stand in one place, have a test, and no loop counts to a number
that somebody sent.

The rules are for what listens: the library, the command line and the benchmarks are for one user.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import limits

BROKER = Path(limits.__file__).parents[1]
ROOMS_OF_USERS = {"bench", "cli", "client"}
TESTS = Path(__file__).parents[1]

REASONS = ("Format: ", "Pace: ", "Setting: ")
"""With which the docstring of a bound begins that is none on what others can grow."""

INTEGER = re.compile(r"_?INT(32|64)_MAX")


def modules(word: str) -> Iterator[tuple[Path, ast.Module]]:
    """Those in which the word is."""
    for path in sorted(BROKER.rglob("*.py")):
        room = path.relative_to(BROKER).parts[0]
        if room not in {*ROOMS_OF_USERS, "limits"} and word in (source := path.read_text()):
            yield path, ast.parse(source)


def bounds(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each constant of a module or class whose name is that of a bound, and its docstring."""
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.Module | ast.ClassDef):
            continue
        for statement, after in zip(scope.body, [*scope.body[1:], None], strict=True):
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target]
                if isinstance(statement, ast.AnnAssign)
                else []
            )
            names = [
                name.id
                for target in targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            ]
            told = (
                after.value.value
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                else ""
            )
            for name in names:
                if name.endswith("_MAX") and not INTEGER.fullmatch(name):
                    yield name, str(told)


def test_bounds_on_what_others_grow_stand_in_limits_alone() -> None:
    elsewhere = {
        f"{path.relative_to(BROKER)}: {name}"
        for path, tree in modules("_MAX")
        for name, told in bounds(tree)
        if not told.startswith(REASONS)
    }
    assert elsewhere == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("A_MAX = 1", ["A_MAX"]),
        ('A_MAX = 1\n"""Of something."""', ["A_MAX"]),
        ('A_MAX = 1\n"""Format: i32."""', []),
        ("a, B_MAX = 1, 2", ["B_MAX"]),
        ("class A:\n    A_MAX: int = 1", ["A_MAX"]),
        ("_INT64_MAX = 2**63 - 1", []),
        ("def f():\n    a_max = 1", []),
    ],
)
def test_the_rule_sees_a_bound(source: str, found: list[str]) -> None:
    told = [name for name, text in bounds(ast.parse(source)) if not text.startswith(REASONS)]
    assert told == found


# --- no loop to a number from outside


def is_known(node: ast.expr) -> bool:
    """Whether the number is one of ours, or of what is there: a constant, a field of the limits,
    how many there are of something, or the smaller of one of them and any other."""
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()
        case ast.Attribute(value=ast.Name(id=owner)):
            return owner.isupper()
        case ast.UnaryOp(operand=operand):
            return is_known(operand)
        case ast.BinOp(left=left, right=right):
            return is_known(left) and is_known(right)
        case ast.Call(func=ast.Name(id="len")) | ast.Call(func=ast.Attribute(attr="count")):
            return True
        case ast.Call(func=ast.Name(id="min"), args=args):
            return any(map(is_known, args))
    return False


def unknown_ranges(tree: ast.AST) -> list[str]:
    """What the program counts to without knowing how far that is."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and not all(map(is_known, node.args))
    ]


def test_nothing_counts_to_a_number_that_somebody_sent() -> None:
    found = {
        f"{path.relative_to(BROKER)}: {text}"
        for path, tree in modules("range(")
        for text in unknown_ranges(tree)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("range(topic.read_queues)", True),
        ("range(max(a.read_queues, 4))", True),
        ("[x for x in range(count)]", True),
        ("range(0, len(rows), SIZE)", False),
        ("range(min(count, LIMITS.rows_max))", False),
        ("range(1, LEVELS + 1)", False),
    ],
)
def test_the_rule_sees_a_loop(source: str, found: bool) -> None:
    assert bool(unknown_ranges(ast.parse(source))) is found


# --- each limit has its refusal


def limit_names() -> list[str]:
    return [
        name
        for made in vars(limits).values()
        if isinstance(made, type) and hasattr(made, "_fields")
        for name in made._fields
        if name.endswith("_max")
    ]


def test_each_limit_is_named_by_a_test_that_reaches_it() -> None:
    tests = "\n".join(
        path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__)
    )
    words, names = set(re.findall(r"\w+", tests)), limit_names()
    assert {"topics_max", "connections_max"} <= set(names)
    assert {name for name in names if name not in words} == set()


def test_the_instances_have_their_own_limits_of_the_usual_size() -> None:
    assert limits.StateLimits() == limits.STATE
    assert limits.STATE.automatic_topics_max < limits.STATE.topics_max
    assert limits.STATE.automatic_groups_max < limits.STATE.groups_max
    assert limits.STATE.automatic_queues_max < limits.STATE.all_queues_max
