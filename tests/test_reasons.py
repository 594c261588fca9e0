"""Whatever silences a tool says why, beside it."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("broker", "dledger", "simulator", "spark", "store", "tests")
SILENCED = re.compile(r"noqa: [A-Z0-9, ]*[A-Z0-9]|type: ignore\[[a-z, -]+\]")


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_each_silenced_finding_has_its_reason_beside_it() -> None:
    without = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if SILENCED.search(source := path.read_text(encoding="utf-8"))
        for line, text in comments(source)
        if (found := SILENCED.search(text)) and not re.search(r"\w", text[found.end() :])
    ]
    assert without == []
