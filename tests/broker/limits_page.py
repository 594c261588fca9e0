"""Writes ``docs/limits.md``: ``python -m tests.broker.limits_page > docs/limits.md``."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import broker.system.file_descriptor_limits
import dledger.config
from broker.limits import (
    admin,
    body,
    clients,
    consume,
    grpc,
    http,
    nameserver,
    produce,
    quotas,
    remoting,
    state,
)

MODULES = (
    remoting,
    state,
    produce,
    consume,
    clients,
    nameserver,
    body,
    admin,
    quotas,
    http,
    grpc,
    dledger.config,
    broker.system.file_descriptor_limits,
)
HEAD = """# Limits

Everything that others can make a process keep has a limit. Who goes beyond one is refused with an
error that names it, or its connection is closed and the log says why. Others do not notice:
`python -m tests.fuzz` attacks running servers, and tells how long a steady producer waited.

Besides these, `node.toml` sets the size of a message (`max_message_size`), and of the log of the
process (`logging_file_mib`, `logging_files`). A process raises its limit of open files to the hard
one at its start. If it, or the system, has no more of them, connections wait to be accepted, and
the node goes on.

This page is made from the code by `python -m tests.broker.limits_page`.
"""
KIB, MIB = 1 << 10, 1 << 20
BYTES = re.compile(r"bytes|_size|memory|unhandled|unread|write_buffer|expressions|inflated|lenient")


def page() -> str:
    """The text of the page."""
    return "\n".join((HEAD, *(line for module in MODULES for line in sections(module))))


def sections(module: ModuleType) -> Iterator[str]:
    """The sections of the page: one for each class of limits."""
    for scope in ast.parse(inspect.getsource(module)).body:
        if not isinstance(scope, ast.ClassDef) or not scope.name.endswith("Limits"):
            continue
        told = descriptions(scope)
        usual = getattr(module, scope.name)._field_defaults
        if not usual:
            continue
        yield f"## {scope.name}\n"
        yield plain(ast.get_docstring(scope) or "") + "\n"
        yield "| Limit | Is | Of |\n| --- | --- | --- |"
        for name, value in usual.items():
            yield f"| `{name}` | {shown(name, value)} | {told[name]} |"
        yield ""


def descriptions(scope: ast.ClassDef) -> dict[str, str]:
    """By the names of fields. A text is of the lines right above it; other names stand for
    themselves."""
    found: dict[str, str] = {}
    above: list[str] = []
    last_line = 0
    for statement in scope.body:
        if statement.lineno != last_line + 1:
            above.clear()
        last_line = statement.end_lineno or 0
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = name.removesuffix("_max").replace("_", " ").capitalize() + "."
                above.append(name)
            case ast.Expr(value=ast.Constant(value=str(text))):
                found |= dict.fromkeys(above, plain(text))
                above.clear()
    return found


def plain(text: str) -> str:
    """A docstring as one line of Markdown."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def shown(name: str, value: object) -> str:
    """A value with its unit."""
    if isinstance(value, float):
        return f"{value:g}" + (" s" if "second" in name else "")
    assert isinstance(value, int)
    if BYTES.search(name) and "marks" not in name and "depth" not in name:
        for unit, size in (("MiB", MIB), ("KiB", KIB)):
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
    return f"{value:,}"


if __name__ == "__main__":
    sys.stdout.write(page())
