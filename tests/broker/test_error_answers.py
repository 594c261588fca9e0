"""Each wire makes answers of errors, and counts them, in one place."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.errors import ANSWERED

BROKER = Path(__file__).parents[2] / "broker"

PLACES = {
    "remoting": "remoting/error_responses.py",
    "http": "http/errors.py",
    "grpc": "grpc/statuses.py",
}
"""Of each wire the file that makes answers of errors."""

COUNTERS = {
    "errors.py",  # for all wires
    "http/errors.py",  # what the port itself refuses
    "remoting/connection.py",  # likewise
}
"""The files that count refusals."""

ANSWERS = {
    "respond",
    "Status",
    "Response",
    "json_response",
    "refusal_response",
    "RequestError",
    "FieldError",
    "HttpRefusedError",
    "bad_request",
    "BadCallError",
}
"""What makes an answer, or an error with an answer of its own."""

TYPES = {"Answered", "Refusal"} | {error.__name__ for error in ANSWERED}
"""Names of types of completions' errors."""


def files_of(wire: str) -> Iterator[str]:
    for path in sorted((BROKER / wire).rglob("*.py")):
        name = path.relative_to(BROKER).as_posix()
        if name != PLACES[wire] and not name.endswith("_pb2.py"):
            yield name


def tree_of(name: str) -> ast.Module:
    return ast.parse((BROKER / name).read_text())


def answers_in(node: ast.AST) -> Iterator[ast.Call]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            called = each.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in ANSWERS:
                yield each


def caught_answers(name: str, tree: ast.Module) -> Iterator[str]:
    """Answers in the handlers of errors that the one place answers."""
    module = importlib.import_module(f"broker.{name.removesuffix('.py').replace('/', '.')}")
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            kinds = eval(ast.unparse(node.type), vars(module))
            kinds = kinds if isinstance(kinds, tuple) else (kinds,)
            if any(issubclass(kind, ANSWERED) for kind in kinds):
                yield from (f"{name}:{call.lineno}" for call in answers_in(node))


def completed_answers(name: str, tree: ast.Module) -> Iterator[str]:
    """Answers that completions make of the error that they get."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        errors = {
            each.arg
            for each in (*node.args.args, *node.args.kwonlyargs)
            if each.annotation is not None
            and TYPES
            & {part.id for part in ast.walk(each.annotation) if isinstance(part, ast.Name)}
        }
        for call in answers_in(node):
            given = [*call.args, *(each.value for each in call.keywords)]
            used = {
                part.id for each in given for part in ast.walk(each) if isinstance(part, ast.Name)
            }
            if errors & used:
                yield f"{name}:{call.lineno}"


def counted(name: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        target = node.target if isinstance(node, ast.AugAssign) else None
        if isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith("refusals"):
            yield f"{name}:{target.lineno}"


@pytest.mark.parametrize("wire", PLACES)
def test_no_other_file_of_a_wire_makes_answers_of_errors(wire: str) -> None:
    found = []
    for name in files_of(wire):
        tree = tree_of(name)
        found += [*caught_answers(name, tree), *completed_answers(name, tree)]
    assert not found


def test_refusals_are_counted_in_one_place() -> None:
    files = (path.relative_to(BROKER).as_posix() for path in sorted(BROKER.rglob("*.py")))
    found = {name for name in files if [*counted(name, tree_of(name))]}
    assert found == COUNTERS


def test_the_search_finds_what_it_looks_for() -> None:
    source = """
try:
    handle()
except UnknownQueueError as error:
    connection.respond(request, 1, str(error))

def done(data: bytes, error: StoreError | None) -> None:
    connection.respond(request, 1, str(error))
    refusals[error.reason] += 1

def good(data: bytes, error: StoreError | None) -> None:
    connection.respond(request, body=data)
"""
    tree = ast.parse(source)
    assert [*caught_answers("errors.py", tree)] == ["errors.py:5"]
    assert [*completed_answers("errors.py", tree)] == ["errors.py:8"]
    assert [*counted("errors.py", tree)] == ["errors.py:9"]
