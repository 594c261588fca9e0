"""Which folder of the simulator may know which, and that no files know each other in a circle."""

from __future__ import annotations

from tests.support.imports import circles, imports_of

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


def folder_of(file: str) -> str:
    """Of ``simulator``; what lies beside its folders starts the program, and is its own."""
    package, _, inside = file.partition("/")
    return inside.partition("/")[0] if package == "simulator" else ""


def test_each_folder_knows_only_those_below_it() -> None:
    upward = [
        f"{file} imports {other}"
        for file, known in imports_of("simulator").items()
        for other in known
        if (here := LEVELS.get(folder_of(file))) is not None
        and (there := LEVELS.get(folder_of(other))) is not None
        and folder_of(file) != folder_of(other)
        and there >= here
    ]
    assert not upward
    folders = {folder_of(file) for file in imports_of("simulator") if file.count("/") > 1}
    assert folders == LEVELS.keys()


def test_no_files_import_each_other_in_a_circle() -> None:
    assert not [circle for circle in circles(imports_of("simulator")) if len(circle) > 1]
