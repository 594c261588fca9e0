"""What a run leaves behind."""

from __future__ import annotations

import gc

import pytest

from simulator.hosts.host import Host
from simulator.worlds.cluster import Cluster
from simulator.worlds.registry import BROKERS, NODES, Run


def kinds_of(kind: type) -> set[type]:
    """It, and all that are derived from it."""
    return {kind}.union(*map(kinds_of, kind.__subclasses__()))


def parts_of_worlds() -> list[object]:
    """Those that the collector knows. Tests before this one may have left some."""
    kinds = kinds_of(Cluster) | kinds_of(Host)
    return [each for each in gc.get_objects() if type(each) in kinds]


@pytest.mark.parametrize("world", [NODES, BROKERS])
def test_nothing_of_a_world_is_left_after_its_run(world: str) -> None:
    earlier = parts_of_worlds()
    outcomes = [Run(seed, world, seconds=2.0, kinds=("crash",)).play() for seed in (1, 2)]
    assert [outcome.violation for outcome in outcomes] == [None, None]
    known = {id(each) for each in earlier}
    assert not [each for each in parts_of_worlds() if id(each) not in known]
    assert gc.isenabled()
    assert not gc.get_freeze_count()
