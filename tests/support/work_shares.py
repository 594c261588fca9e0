"""How the workers of ``make test`` share its files out.

The tests of a file stay together, as they may share a cluster. Files of long tests come first, in a
mixed order: some wait for timers of real processes while others compute. The short ones level the
workers at the end. By itself xdist begins with the files of the most tests. So files that compute
would all come before those that wait, and a test of a minute could begin when another worker ends.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Mapping

import pytest
from xdist.scheduler import LoadFileScheduling

LONG_MARKS = ("processes", "jvm", "node", "minutes")
SPARK = "tests/spark/"
"""These files go to one worker, for its Spark session takes longer to start than most of them.
Together they are the longest, so they begin at once."""


def unit_of(nodeid: str) -> str:
    """Whatever must stay in one worker: the file of a test, or the folder of Spark."""
    return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]


def in_order(units: Mapping[str, bool]) -> list[str]:
    """The units in the order in which workers take them. ``units`` tells which have long tests."""

    def place(unit: str) -> tuple[int, int]:
        if unit == SPARK:
            return 0, 0
        return (1, crc32(unit.encode())) if units[unit] else (2, 0)

    return sorted(units, key=place)


def put_in_order(items: list[pytest.Item]) -> None:
    """Sorts the tests so; those of a unit keep their order."""
    units: dict[str, bool] = {}
    for item in items:
        unit = unit_of(item.nodeid)
        long = any(map(item.get_closest_marker, LONG_MARKS))
        units[unit] = units.get(unit, False) or long
    places = {unit: place for place, unit in enumerate(in_order(units))}
    items.sort(key=lambda item: places[unit_of(item.nodeid)])


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no type information
    """Gives each worker that has nearly nothing left the next unit."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
