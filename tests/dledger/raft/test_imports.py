"""The core touches nothing of the world: its time, its chance and its bytes are handed in."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from dledger import raft
from tests.support.imports import statements

RAFT = sorted(Path(raft.__path__[0]).glob("*.py"))
BESIDE = {
    "dledger.config",
    "dledger.errors",
    "store.errors",
    "store.io",
    "store.io.filesystem",
    "store.log",
    "store.log.entry",
    "store.log.layout",
}
"""What the core knows beside itself: settings, errors, and the layout of entries."""
WORLD = {
    "aiohttp",
    "asyncio",
    "msgpack",
    "os",
    "random",
    "socket",
    "ssl",
    "threading",
    "time",
    "uvloop",
}


def imported(path: Path) -> set[str]:
    """The packages that a file imports anywhere."""
    found = set()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", RAFT, ids=lambda path: path.stem)
def test_a_core_module_imports_nothing_of_the_world(path: Path) -> None:
    assert not imported(path) & WORLD


@pytest.mark.processes
def test_importing_the_core_brings_in_the_core_and_what_is_listed_beside_it() -> None:
    code = "import sys, dledger.raft.core; print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in found.stdout.split() if name.startswith(("dledger.", "store."))}
    core = {f"dledger.raft.{path.stem}" for path in RAFT if path.stem != "__init__"}
    assert ours == BESIDE | core | {"dledger.raft"}
