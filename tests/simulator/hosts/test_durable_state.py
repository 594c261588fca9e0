"""What counts as held by a disk that was damaged or lost: what it held before, for a moment."""

from __future__ import annotations

from typing import Any

from simulator.faults.client_and_clock_faults import CLIENT_PAUSE_SECONDS_MAX
from simulator.hosts.disks_before_damage import UNDER_WAY_SECONDS
from simulator.hosts.durable_state import LOG_DIRECTORY, held_entry, holds_entry
from simulator.hosts.host import Host
from simulator.workload.producer import CONFIG
from simulator.worlds.cluster import Cluster
from store.log.entry import Entry
from store.log.layout import segment_name, segment_start
from tests.simulator.hosts.test_host import others, run, serving, settle


def newest_committed(host: Host) -> Entry:
    assert host.node is not None
    entry = host.node.core.entry_cache.entry(host.node.core.commit_index)
    assert entry is not None
    return entry


def cut_off(cluster: Cluster[Any], host: Host) -> None:
    """Nobody gives it anything back."""
    for other in others(cluster, host):
        cluster.cut(host, other, noticed=False)
        cluster.cut(other, host, noticed=False)


def test_what_a_damaged_disk_held_counts_for_answers_under_way_and_no_longer() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        host = others(cluster, await serving(cluster))[0]
        size = host.segment_size
        entry = newest_committed(host)
        cut_off(cluster, host)
        host.crash()
        host.note_damage()
        host.fs.vanish(f"{LOG_DIRECTORY}/{segment_name(segment_start(entry.position, size))}")
        assert held_entry(host, entry, size)
        await cluster.pass_time(UNDER_WAY_SECONDS - 0.1)
        host.note_damage()
        assert held_entry(host, entry, size)
        await cluster.pass_time(0.2)
        assert not holds_entry(host, entry, size)
        assert not held_entry(host, entry, size)
        await settle(cluster)

    run(script)


def test_what_a_lost_disk_held_counts_for_answers_under_way_and_no_longer() -> None:
    async def script(cluster: Cluster[Any]) -> None:
        host = others(cluster, await serving(cluster))[0]
        size = host.segment_size
        entry = newest_committed(host)
        cut_off(cluster, host)
        host.replace_disk()
        assert not holds_entry(host, entry, size)
        await cluster.pass_time(UNDER_WAY_SECONDS - 0.1)
        assert held_entry(host, entry, size)
        await cluster.pass_time(0.2)
        assert not held_entry(host, entry, size)
        await settle(cluster)

    run(script)


def test_no_answer_is_under_way_for_longer_than_a_client_waits_and_may_be_paused() -> None:
    assert CONFIG.request_seconds + CLIENT_PAUSE_SECONDS_MAX <= UNDER_WAY_SECONDS
