"""The page of limits says what the code says."""

from __future__ import annotations

from pathlib import Path

from tests.broker.limits_page import page

PAGE = Path(__file__).parents[2] / "docs/limits.md"


def test_the_page_of_limits_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "python -m tests.broker.limits_page > docs/limits.md"


def test_values_have_units() -> None:
    text = page()
    assert "| `unhandled_max` | 128 MiB | Bytes of incomplete frames" in text
    assert "| `topics_max` | 20,000 |" in text
    assert "| `idle_seconds` | 120 s | A connection without traffic" in text
    assert "``" not in text
    assert ":class:" not in text
