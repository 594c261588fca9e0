"""A machine whose log is damaged, and that is stopped while its peers are to mend it."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.node.recovering_node import open_replica
from simulator.hosts import host as hosts
from simulator.worlds.cluster import Cluster
from store.replica import ReplicaStore
from tests.simulator.hosts.test_durable_state import cut_off
from tests.simulator.hosts.test_host import others, restarted, run, serving, settle


def test_a_machine_that_waits_to_be_mended_is_stopped_in_order() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        host = others(cluster, await serving(cluster))[0]
        cut_off(cluster, host)
        boot = host.boot
        cluster.schedule.propose("flip-bit", host.name, 0.9, 3)
        await cluster.until(lambda: host.boot > boot, "it is started again")
        await cluster.pass_time(0.5)
        assert host.process is not None
        assert host.node is None
        boot = host.boot
        host.stop()
        await cluster.until(
            lambda: "stopped before its repair" in cluster.trace.marks, "it is stopped"
        )
        cluster.heal_network()
        host.start()
        await cluster.until(lambda: restarted(host, boot), "it is mended and serves")
        await settle(cluster)

    outcome = run(script, seed=6)
    assert outcome.marks["stopped before its repair"] == 1
    assert outcome.marks["damage repaired before the node started"] == 1


def test_a_machine_is_stopped_in_order_in_the_moment_in_which_it_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(cluster: Cluster[Any]) -> None:
        host = others(cluster, await serving(cluster))[0]

        async def open_and_stop(*arguments: Any, **more: Any) -> ReplicaStore:
            store = await open_replica(*arguments, **more)
            cluster.loop.call_soon(host.stop)  # before anybody hears that it is open
            monkeypatch.setattr(hosts, "open_replica", open_replica)
            return store

        monkeypatch.setattr(hosts, "open_replica", open_and_stop)
        cluster.schedule.propose("flip-bit", host.name, 0.9, 3)
        await cluster.until(lambda: host.process is None, "it is damaged")
        await cluster.until(lambda: "stopped in order" in cluster.trace.marks, "it is stopped")
        host.start()
        await settle(cluster)

    outcome = run(script, seed=6)
    assert outcome.marks["damage repaired before the node started"] == 1


def test_a_machine_whose_files_are_swapped_is_not_damaged_otherwise() -> None:
    """Nobody could tell by a file's name what in it may suffer: seed 34 of ``damage`` lost an
    entry that was behind the mark, in a segment that bore the name of an old one."""

    async def script(cluster: Cluster[Any]) -> None:
        host = others(cluster, await serving(cluster))[0]
        await cluster.pass_time(20.0)  # until there is a second segment
        host.crash()
        host.fs.swap(*[path for path in sorted(host.fs.files()) if "/commitlog/" in path][:2])
        host.files_swapped = True
        before = {path: host.fs.durable_bytes(path) for path in host.fs.files()}
        for fault, *arguments in (
            ("flip-bit", 0.1, 3),
            ("lose-file", 0.1),
            ("cut-file", 0.1),
            ("misdirect-write", 0.1, 0.3),
        ):
            cluster.schedule.propose(fault, host.name, *arguments)
        assert {path: host.fs.durable_bytes(path) for path in host.fs.files()} == before
        cluster.schedule.propose("swap-files", host.name, 0.1, 0.9)
        assert {path: host.fs.durable_bytes(path) for path in host.fs.files()} != before
        boot = host.boot
        host.start()
        await cluster.until(lambda: restarted(host, boot), "it has its files again")
        assert not host.files_swapped
        boot = host.boot
        cluster.schedule.propose("swap-files", host.name, 0.1, 0.9)
        assert not host.files_swapped  # an old copy of the log's end might come back
        assert host.boot == boot
        await cluster.until(lambda: not host.holds_old_bytes, "all of it was read again")
        cluster.schedule.propose("swap-files", host.name, 0.1, 0.9)
        assert host.files_swapped
        host.start()
        await settle(cluster)

    run(script, seed=6)
