"""Which folder of the simulator may know which, and that no modules know each other in a circle.

Imports for type checkers count as well: who needs a type needs to know the file that says it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import simulator

ROOT = Path(simulator.__file__).parent

BOTTOM_UP = (
    ("engine", "linearizability"),
    ("hosts",),
    ("workload",),
    ("faults",),
    ("invariants",),
    ("worlds", "view"),
    ("bugs",),
    ("runs",),
    ("cli",),
)
"""A folder may know those before it. Folders of one line do not know each other."""

LEVELS = {folder: level for level, folders in enumerate(BOTTOM_UP) for folder in folders}


def _modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _imports(module: str) -> Iterator[str]:
    """The modules of the simulator that it imports, for types or for running."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in inner]
        else:
            continue
        yield from (name for name in names if name in MODULES and name != module)


def _folder(module: str) -> str | None:
    parts = module.split(".")
    is_folder = len(parts) > 1 and (ROOT / parts[1]).is_dir()
    return parts[1] if is_folder else None


def test_each_folder_knows_only_those_below_it() -> None:
    upward = [
        f"{module} imports {other}"
        for module in MODULES
        for other in _imports(module)
        if (here := _folder(module)) is not None
        and (there := _folder(other)) != here
        and (LEVELS[there] >= LEVELS[here] if there else other != "simulator")
    ]
    assert not upward


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = {module: set(_imports(module)) for module in MODULES}
    while free := [module for module, known in left.items() if not known & left.keys()]:
        for module in free:
            del left[module]
    # Whoever only leads into a circle goes too: what is left is in one, or between two.
    while top := [one for one in left if not any(one in known for known in left.values())]:
        for module in top:
            del left[module]
    assert not left
