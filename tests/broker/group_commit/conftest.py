"""A batcher, and one with little room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.group_commit.room import Room


@pytest.fixture
def room() -> Iterator[Room]:
    opened = Room()
    yield opened
    opened.loop.close()
