"""The table of defences and the code agree, and no planted bug is left out of it."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

from simulator.bugs import BUGS, bug_by_id

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "defences.md"
ID = re.compile(r"\b[A-Z]\d+[a-z]*\b")
COLUMNS = 5
SEEDS = re.compile(
    r"(\w+): (\d+), (?:damage |attacker |accounts |retention )?(?:~?(\d+)\*?|not in (\d+)|\?)"
)
BUDGET = 200


def rows() -> list[list[str]]:
    """Defence, where, shown by, seeds and note of each."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] not in ("defence", "---"):
            found.append(cells)
    return found


def planted_bugs(cell: str) -> list[str]:
    """The ids in a cell, and not what files and tests are called."""
    return ID.findall(re.sub(r"`[^`]*`", "", cell))


def seeds() -> dict[str, tuple[int | None, int]]:
    """By planted bug: the seed that found it, if one did, and how many were run."""
    found: dict[str, tuple[int | None, int]] = {}
    for row in rows():
        for told in filter(None, row[3].split("; ")):
            parts = SEEDS.fullmatch(told)
            assert parts is not None, f"{row[0]}: {told}"
            id_, _, seed, tried = parts.groups()
            found[id_] = (int(seed), int(seed)) if seed else (None, int(tried or 0))
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
    told = {id_ for row in rows() for cell in row[2:4] for id_ in planted_bugs(cell)}
    assert [id_ for id_ in sorted(told) if bug_by_id(id_) is None] == []


def test_every_planted_bug_shows_a_defence() -> None:
    named = {id_ for row in rows() for id_ in planted_bugs(row[2])}
    assert [bug.id for bug in BUGS if bug.id not in named] == []


def test_the_seeds_of_a_row_are_those_of_its_planted_bugs() -> None:
    wrong = [row for row in rows() if planted_bugs(row[2]) != planted_bugs(row[3])]
    assert wrong == []


def test_who_is_found_by_no_seed_of_a_profile_has_a_reason() -> None:
    missed = {id_ for id_, (seed, _) in seeds().items() if seed is None}
    unexplained = [
        row for row in rows() if missed.intersection(planted_bugs(row[2])) and not row[4]
    ]
    assert unexplained == []


def test_the_sums_are_those_of_the_table() -> None:
    found = sorted(seed for seed, _ in seeds().values() if seed is not None and seed <= BUDGET)
    missed = sorted(id_ for id_, (seed, _) in seeds().items() if seed is None)
    told = (
        f"Of {len(BUGS)} planted bugs {len(found)} are found within {BUDGET} seeds; the median is "
        f"seed {median(found):g}, or seed {median(found + [BUDGET] * len(missed)):g} if those that "
        f"are not found count as {BUDGET}."
    )
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert told in page
    (after,) = re.findall(r"Not found so far: ([^.]*)\.", page)
    assert sorted(ID.findall(after)) == missed
