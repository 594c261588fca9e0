"""The core touches nothing of the world: its time, its chance and its bytes are handed in."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from dledger import raft

RAFT = sorted(Path(raft.__path__[0]).glob("*.py"))
BESIDE = {
    "dledger.config",
    "dledger.errors",
    "dledger.wire",
    "dledger.wire.service_messages",
    "store.errors",
    "store.io",
    "store.io.filesystem",
    "store.log",
    "store.log.entry",
    "store.log.layout",
}
"""What the core knows beside itself: settings, errors, layout of entries, kinds of messages."""
WORLD = ("aiohttp", "asyncio", "msgpack", "os", "socket", "ssl", "threading", "time", "uvloop")


def imported(path: Path) -> dict[str, tuple[str, ...]]:
    """The modules that a file imports anywhere, each with the names taken from it (none: all)."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update({alias.name: () for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = tuple(alias.name for alias in node.names)
            found[node.module] = found.get(node.module, ()) + names
    return found


@pytest.mark.parametrize("path", RAFT, ids=lambda path: path.stem)
def test_a_core_module_imports_nothing_of_the_world(path: Path) -> None:
    modules = imported(path)
    assert not {name.partition(".")[0] for name in modules} & set(WORLD)


@pytest.mark.parametrize("path", RAFT, ids=lambda path: path.stem)
def test_a_core_module_takes_chance_from_a_generator_only(path: Path) -> None:
    modules = imported(path)
    assert modules.get("random", ("Random",)) == ("Random",)


@pytest.mark.processes
def test_importing_the_core_brings_in_the_core_and_what_is_listed_beside_it() -> None:
    code = "import sys, dledger.raft.core; print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in found.stdout.split() if name.startswith(("dledger.", "store."))}
    core = {f"dledger.raft.{path.stem}" for path in RAFT if path.stem != "__init__"}
    assert ours == BESIDE | core | {"dledger.raft"}
