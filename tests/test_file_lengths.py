"""A file of more than 400 lines is two files."""

from __future__ import annotations

from pathlib import Path

LINES_MAX = 400
ROOT = Path(__file__).parents[1]
ROOMS = ("dledger", "store", "broker", "simulator", "spark", "tests")


def test_no_file_is_too_long() -> None:
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 1000
    long = {
        str(path.relative_to(ROOT)): count
        for path in files
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert long == {}
