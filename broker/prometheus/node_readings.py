"""A node in its group: Raft, peers, disk, damage, and latencies."""

from __future__ import annotations

from collections.abc import Iterator

from broker.admin.node_status import ROLES, role_name
from broker.context import BrokerContext
from broker.metrics.build_info import program_version
from broker.prometheus import catalog
from broker.prometheus.metric import Reading, single
from dledger.raft.quorum import majority


def raft_readings(context: BrokerContext) -> Iterator[Reading]:
    """Role, term, indexes of the log, and connections to the peers."""
    node, core = context.node, context.node.core
    role = role_name(context)
    yield Reading(catalog.BUILD_INFO, [((program_version(),), 1)])
    yield Reading(catalog.ROLE, [((each,), each == role) for each in ROLES])
    yield single(catalog.HAS_LEADER, node.leadership.leader is not None)
    yield single(catalog.SERVING, node.serving)
    yield single(catalog.TERM, core.term)
    yield single(catalog.ELECTIONS, core.raft_state.elections)
    yield single(catalog.LEADER_CHANGES, node.announcer.leader_changes)
    yield single(catalog.LAST_INDEX, core.entry_cache.last_index)
    yield single(catalog.COMMIT_INDEX, core.commit_index)
    yield single(catalog.APPLIED_INDEX, node.applied_index)
    yield single(catalog.VOTERS, len(core.configuration.voters))
    peers = sorted(core.peers)
    up = core.raft_state.up
    yield Reading(catalog.PEER_CONNECTED, [((peer,), peer in up) for peer in peers])
    if core.leads:
        in_touch = {core.node, *up}
        spare = min(
            len(in_touch & set(voters)) - majority(len(voters))
            for voters in core.configuration.quorums
        )
        yield single(catalog.MAY_LOSE, max(spare, 0))
    last = core.entry_cache.last_index
    lags = [
        ((peer,), max(last - progress.match_index, 0))
        for peer, progress in sorted(core.progress.items())
        if peer in peers
    ]
    yield Reading(catalog.PEER_LAG, lags)


def latency_readings(context: BrokerContext) -> Iterator[Reading]:
    """The latencies of the steps of a write."""
    node = context.node
    yield single(catalog.COMMIT_SECONDS, node.proposals.commit_seconds)
    yield single(catalog.SYNC_SECONDS, node.writer.sync_seconds)
    yield single(catalog.APPLY_SECONDS, node.applier.apply_seconds)


def disk_readings(context: BrokerContext) -> Iterator[Reading]:
    """The disk at its last check, at most half a second ago."""
    node, disk = context.node, context.node.health.disk
    log_bytes = node.store.end_position - node.store.first_position
    yield Reading(catalog.STORAGE_SIZE, ((("local", "disk"), log_bytes),))
    behind = max(node.store.end_position - context.machine.applied_end, 0)
    yield single(catalog.DISPATCH_BEHIND, behind)
    if disk.space is not None:
        yield single(catalog.DISK_SIZE, disk.space.total)
        yield single(catalog.DISK_FREE, disk.space.free)
    yield single(catalog.DISK_LEVEL, int(disk.level))
    marks = disk.watermarks
    percents = {
        "clean": marks.clean_percent,
        "force": marks.force_percent,
        "full": marks.full_percent,
    }
    yield Reading(
        catalog.DISK_WATERMARK, [((level,), percent / 100) for level, percent in percents.items()]
    )
    yield single(catalog.DISK_STALLED, disk.stalled)


def damage_readings(context: BrokerContext) -> Iterator[Reading]:
    """Found and repaired damage, divergence, and refills."""
    node, scrub = context.node, context.node.scrubber
    yield single(catalog.DAMAGED_ENTRIES, len(scrub.damage))
    found = ("entry", scrub.entries_damaged), ("derived", scrub.derived_repaired)
    repaired = ("entry", scrub.entries_repaired), ("derived", scrub.derived_repaired)
    yield Reading(catalog.DAMAGE_FOUND, [((kind,), count) for kind, count in found])
    yield Reading(catalog.DAMAGE_REPAIRED, [((kind,), count) for kind, count in repaired])
    yield single(catalog.STATE_DIVERGED, bool(node.state_divergence.wrong))
    yield single(catalog.REFILLING, node.snapshot_receiver.progress is not None)
    yield single(catalog.SCRUB_PASSES, scrub.passes)
    yield single(catalog.SCRUB_BYTES, scrub.read_bytes)
    yield single(catalog.SCRUB_PROGRESS, scrub.progress)
