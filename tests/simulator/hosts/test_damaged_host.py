"""A machine whose log is damaged, and that is stopped while its peers are to repair it."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.node.recovering_node import open_replica
from simulator.hosts import host as hosts
from simulator.worlds.cluster import Cluster
from store.replica import ReplicaStore
from tests.simulator.hosts.test_durable_state import cut_off
from tests.simulator.hosts.test_host import others, restarted, run, serving, settle


def test_a_machine_that_waits_to_be_repaired_is_stopped_in_order() -> None:
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
        await cluster.until(lambda: restarted(host, boot), "it is repaired and serves")
        await settle(cluster)

    outcome = run(script, seed=6)
    assert outcome.marks["stopped before its repair"] == 1
    assert outcome.marks["damage repaired before the node started"] == 1


def test_a_machine_is_stopped_in_order_in_the_moment_in_which_it_is_repaired(
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


@pytest.mark.minutes
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


def test_passes_over_damaged_entries_find_no_damage_to_what_is_derived() -> None:
    """Seed 3064 of ``nightly`` lost a file of the log and one of the key index. The scrub passed
    twice before a peer gave back the entries, and the missing keys were called a lost message."""

    async def script(cluster: Cluster[Any]) -> None:
        host = others(cluster, await serving(cluster))[0]
        await cluster.pass_time(5.0)
        host.damaged_parts["keyindex"] = host.boot
        await cluster.until(lambda: not host.part_is_doubtful("keyindex"), "two passes found none")
        node = host.node
        assert node is not None
        cut_off(cluster, host)
        host.note_damage()
        path = min(path for path in host.fs.files() if "/commitlog/" in path)
        host.fs.flip_bit(path, 100, 3)
        await cluster.until(lambda: bool(node.scrubber.damage), "an entry is damaged")
        passes = node.scrubber.passes
        await cluster.until(lambda: node.scrubber.passes >= passes + 3, "more passes")
        assert host.part_is_doubtful("keyindex")
        cluster.heal_network()
        await cluster.until(lambda: not node.scrubber.damage, "a peer gives the entry")
        passes = node.scrubber.passes
        assert host.part_is_doubtful("keyindex")
        await cluster.until(lambda: not host.part_is_doubtful("keyindex"), "all of it was read")
        assert node.scrubber.passes > passes + 1
        await settle(cluster)

    run(script, seed=6)
