"""How long Apache's Python client of RocketMQ 5 hears nothing when the leader is killed.

The figures are printed (``pytest -s``) and are properties of the test report; docs/clients.md tells
of them. A clock is not asserted on: what is, is that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_real_clients import running
from tests.clients.test_rocketmq_5 import (
    IN_FLIGHT,
    command,
    consuming,
    create,
    endpoints,
    kill_leader,
    told,
)
from tests.cluster.running_cluster import RunningCluster

COUNT = 400
KILLED_AFTER = 150


def longest(lines: Sequence[dict[str, Any]], until: float) -> float:
    """Seconds without one. What was in flight comes again later, when there is nothing else."""
    times = [each["at"] for each in lines if each["at"] <= until]
    return float(max(later - earlier for earlier, later in pairwise(times)))


@pytest.mark.parametrize(
    ("how", "kind"),
    [("simple", "normal"), ("simple", "fifo"), ("push", "normal"), ("push", "fifo")],
)
def test_a_client_goes_on_when_the_leader_is_killed(
    cluster: RunningCluster,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    how: str,
    kind: str,
) -> None:
    create(cluster, "orders", kind.upper())
    sent = []
    with consuming(cluster, how, "orders", "readers", tmp_path / "consumer", COUNT) as heard:
        produce = command("produce", kind, endpoints(cluster), "orders", COUNT)
        with running(produce, tmp_path) as lines:
            for line in told(lines):
                sent.append(line)
                if len(sent) == KILLED_AFTER:
                    kill_leader(cluster)
        received = list(heard)

    assert [each["n"] for each in sent] == list(range(COUNT))
    assert {each["n"] for each in received} == {*range(COUNT)}
    assert len(received) <= COUNT + 2 * IN_FLIGHT, "only what was in flight comes again"
    ends = sent[-1]["at"]
    figures = {"producer": longest(sent, ends), how: longest(received, ends)}
    for client, seconds in figures.items():
        record_property(f"{client} ({kind}): seconds of silence", round(seconds, 2))
        print(f"{client} ({kind}): {seconds:.2f} s of silence")
