"""Counts in messages for people."""

from __future__ import annotations

import pytest

from store.counted import counted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 findings"), (1, "1 finding"), (2, "2 findings")]
)
def test_one_thing_is_singular(count: int, text: str) -> None:
    assert counted(count, "finding") == text
