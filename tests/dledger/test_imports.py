"""The core touches nothing of the world: its time, its chance and its bytes are handed in."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dledger

CORE = (
    "changes",
    "config",
    "configuration",
    "effects",
    "elections",
    "errors",
    "follower",
    "founding",
    "handover",
    "holdings",
    "leaderreads",
    "leading",
    "locallog",
    "log",
    "majorities",
    "messages",
    "progress",
    "quorum",
    "raft",
    "readrounds",
    "replication",
    "service",
    "standing",
    "terms",
)
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


@pytest.mark.parametrize("module", CORE)
def test_a_core_module_imports_nothing_of_the_world(module: str) -> None:
    modules = imported(Path(dledger.__path__[0]) / f"{module}.py")
    assert not {name.partition(".")[0] for name in modules} & set(WORLD)


@pytest.mark.parametrize("module", CORE)
def test_a_core_module_takes_chance_from_a_generator_only(module: str) -> None:
    modules = imported(Path(dledger.__path__[0]) / f"{module}.py")
    assert modules.get("random", ("Random",)) == ("Random",)


def test_importing_the_core_brings_in_no_other_module_of_ours_but_the_layout_of_entries() -> None:
    code = "import sys, dledger.raft; print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in found.stdout.split() if name.startswith(("dledger.", "store."))}
    layout = {"store.entry", "store.errors", "store.filesystem", "store.layout"}
    assert ours == layout | {f"dledger.{module}" for module in CORE}
