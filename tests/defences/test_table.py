"""The table of defences and the code agree, and no planted bug is left out of it."""

from __future__ import annotations

import re
from pathlib import Path

from simulator.bugs import BUGS, bug_by_id

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "defences.md"
ID = re.compile(r"\b[A-Z]\d+[a-z]*\b")
COLUMNS = 5


def rows() -> list[list[str]]:
    """Defence, where, shown by, seeds and note of each."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] not in ("defence", "---"):
            found.append(cells)
    return found


def test_every_row_says_where_the_defence_is_and_what_shows_it() -> None:
    assert len(rows()) > 100
    assert [row for row in rows() if len(row) != COLUMNS or not all(row[:3])] == []


def test_every_file_that_the_table_names_exists() -> None:
    named = {name for row in rows() for name in re.findall(r"`([\w/]+\.(?:py|txt))", " ".join(row))}
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_every_test_that_the_table_names_exists() -> None:
    missing = []
    for row in rows():
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[2]):
            if f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8"):
                missing.append(f"{file}::{test}")
    assert missing == []


def test_every_planted_bug_that_the_table_names_exists() -> None:
    cells = [re.sub(r"`[^`]*`", "", f"{row[2]} {row[3]}") for row in rows()]
    told = {id_ for cell in cells for id_ in ID.findall(cell)}
    assert [id_ for id_ in sorted(told) if bug_by_id(id_) is None] == []


def test_every_planted_bug_is_named_on_the_page() -> None:
    named = set(ID.findall(PAGE.read_text(encoding="utf-8")))
    assert [bug.id for bug in BUGS if bug.id not in named] == []
