"""Lanes of disk work that are closed, as before a replica is opened anew in the same process."""

from __future__ import annotations

from functools import partial

from simulator.engine.disk_executor import SimulatedExecutor
from simulator.engine.event_loop import VirtualLoop
from simulator.engine.process import Process
from simulator.engine.random_streams import CountingRandom
from simulator.hosts.host import Host
from simulator.worlds.registry import Run


def test_a_lane_that_is_closed_finishes_its_work_and_tells_nobody() -> None:
    cluster = Run(1).cluster()
    host: Host = cluster.hosts[0]
    loop: VirtualLoop = cluster.loop
    process = Process(died=lambda: None)
    lane = SimulatedExecutor(loop, CountingRandom(1), host, process)
    done: list[int] = []
    told: list[int | None] = []
    for number in range(3):
        lane.submit(partial(done.append, number), lambda _result, _error: told.append(0))
    lane.close()
    assert done == [0, 1, 2]

    async def later() -> None:
        await cluster.pass_time(1.0)

    loop.run_until_complete(later())
    assert (done, told) == ([0, 1, 2], [])
    cluster.switch_off()
