"""JSON documents about a broker: its status, its topics, its consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.admin.audit_report import AuditReport
from broker.admin.consumer_groups import ConsumerGroups, TopicProgress, waiting_places
from broker.admin.node_status import NodeStatus, security_settings
from broker.admin.topic_contents import all_topics
from broker.admin.turns import Turn
from broker.context import BrokerContext
from broker.delivery.store_times import Place
from broker.limits import ADMIN
from broker.metrics.build_info import program_version
from broker.metrics.history import STEP_SECONDS, History, HistorySample


def status_document(context: BrokerContext) -> dict[str, Any]:
    """Role, term and indexes of this node, and the members that it knows."""
    status = NodeStatus.of(context)
    return {
        "group": status.group,
        "node": status.node,
        "cluster": status.cluster,
        "role": status.role,
        "term": status.term,
        "leader": status.leader,
        "serving": status.serving,
        "last_index": status.last_index,
        "commit_index": status.commit_index,
        "applied_index": status.applied_index,
        "applied_end": context.machine.applied_end,
        "member": status.member,
        "voters": status.voters,
        "old_voters": status.old_voters,
        "members": {
            name: {"peer": at.peer, "address": at.client, "http": at.http}
            for name, at in status.members.items()
        },
        "topics": len(context.machine.state.topics),
        "groups": len(ConsumerGroups(context.machine, context.clients).names()),
        "held_pulls": len(context.delivery.long_polling),
        "put_messages": context.stats.put_messages,
        "get_messages": context.stats.get_messages,
        "boot_timestamp": context.stats.boot_ms,
        "version": program_version(),
        "flush": context.config.flush,
        "grpc": status.grpc or None,
        "security": security_settings(context.config),
        **_disk_and_findings(context),
        "quotas": len(context.throttle.quotas),
        "throttled_seconds": round(sum(context.throttle.throttled_seconds.values()), 3),
        "access_refused": context.access.refused if context.access is not None else 0,
    }


def _disk_and_findings(context: BrokerContext) -> dict[str, Any]:
    """The free space of the disk, and the findings of the node's checks of its own data."""
    node = context.node
    space, refill = node.store.disk_space(), node.snapshot_receiver.progress
    return {
        "disk": {
            "level": node.health.disk.level.name.lower(),
            "free": space.free,
            "total": space.total,
        },
        "scrub_progress": node.scrubber.progress,
        "scrub_passes": node.scrubber.passes,
        "damage": [*node.scrubber.damage_summary, *context.proofs.problems],
        "repaired": list(node.scrubber.repaired),
        "mended": list(node.scrubber.repaired),  # for earlier programs
        "state_wrong": bool(node.state_divergence.wrong),
        "refilling": None if refill is None else f"{refill[0]} of {refill[1]}",
    }


def audit_document(directory: str, reports: Sequence[AuditReport]) -> dict[str, Any]:
    """The directory of audit reports, empty for none, and the newest reports."""
    return {"directory": directory, "reports": [each._asdict() for each in reports]}


def history_document(context: BrokerContext, history: History, since_ms: int) -> dict[str, Any]:
    """The samples of this node since ``since_ms``, oldest first; ``fields`` names the values of a
    sample."""
    return {
        "group": context.config.group,
        "node": context.config.node,
        "step_seconds": STEP_SECONDS,
        "fields": HistorySample._fields,
        "samples": [list(each) for each in history.since(since_ms)],
    }


async def topics_document(context: BrokerContext) -> dict[str, Any]:
    """The topics, their settings, and the number of messages in their queues here.

    ``system`` topics exist by configuration.
    """
    system = frozenset(context.machine.state.system_names)
    documents = []
    turn = Turn()
    for topic in all_topics(context.machine):
        documents.append(
            {
                "name": topic.config.name,
                "read_queues": topic.config.read_queues,
                "write_queues": topic.config.write_queues,
                "perm": topic.config.perm,
                "system": topic.config.name in system,
                "messages": topic.messages,
            }
        )
        await turn.took(len(topic.queues))
    return {"topics": documents}


async def groups_document(context: BrokerContext) -> dict[str, Any]:
    """For each group and topic: the messages that the group has not acknowledged yet.

    ``members`` counts members connected to this node: consumers talk to the leader. A group that
    consumes nothing has one row with the topic null. ``lag`` is null if the members keep their
    offsets themselves. ``lag_ms`` is how long the oldest of these messages has waited, null if
    unknown.
    """
    documents: list[dict[str, Any]] = []
    behind: list[tuple[dict[str, Any], list[Place]]] = []
    left = ADMIN.lag_times_max
    turn = Turn()
    for group in ConsumerGroups(context.machine, context.clients).all():
        topics: list[TopicProgress | None] = [*group.topics]
        for topic in topics or [None]:
            document = {
                "group": group.name,
                "topic": topic and topic.topic,
                "members": len(group.members),
                "acknowledged": topic.acknowledged if topic else 0,
                "lag": topic.lag if topic else 0,
                "lag_ms": None if topic and topic.lag != 0 else 0,
            }
            documents.append(document)
            if topic and topic.lag and left > 0:
                queues = topic.queues()
                left -= len(queues)
                behind.append((document, waiting_places(queues)))
        await turn.took(sum(len(topic.committed) for topic in group.topics))
    await context.waiting_since.look(place for _, places in behind for place in places)
    for document, places in behind:
        document["lag_ms"] = context.waiting_since.lag_ms(places)
    return {"groups": documents}
