"""Finds the imports of the files of a package, including those for types and in functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def imports_of(package: str) -> Mapping[str, frozenset[str]]:
    """For each file of the package the files of this repository that it imports.

    Files are named by their paths, as ``store/log/entry.py``. Call it in a test: a module that is
    imported would read all files of the package in each worker.
    """
    return {
        path.relative_to(ROOT).as_posix(): frozenset(_imported(path))
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def _imported(path: Path) -> set[str]:
    found = set()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{path} imports relatively"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        found |= {file for name in names if (file := _file_of(name)) is not None}
    return found


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All statements, without a look at the expressions in them, which are most of a tree."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.stmt):
                yield node
            if not isinstance(node, ast.expr):
                waiting.append(node)


@cache
def _file_of(name: str) -> str | None:
    """The file of a module, if it is one of this repository; for a package, its ``__init__.py``."""
    place = ROOT / name.replace(".", "/")
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.exists():
            return file.relative_to(ROOT).as_posix()
    return None


def circles(imports: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Files that import each other, directly or through others. Each circle comes once."""
    reached: dict[str, set[str]] = {}
    for start in imports:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for file in imports.get(waiting.pop(), ()):
                if file not in seen:
                    seen.add(file)
                    waiting.append(file)
        reached[start] = seen
    found = {
        tuple(sorted(other for other in reached[file] if file in reached.get(other, ())))
        for file in reached
        if file in reached[file]
    }
    return [list(circle) for circle in sorted(found)]


def room_of(file: str) -> str:
    """The folder of a file."""
    return file.rpartition("/")[0]
