"""What a broker says of itself as JSON: its place in the group, its topics, its consumer groups."""

from __future__ import annotations

from typing import Any

from broker.context import BrokerContext
from broker.members import member_addresses
from broker.runtime import role_name


def status_document(context: BrokerContext) -> dict[str, Any]:
    """Role, term and how far this node is; the members as it knows them."""
    config, node = context.config, context.node
    leadership = node.leadership
    return {
        "group": config.group,
        "node": config.node,
        "cluster": config.cluster,
        "role": role_name(context),
        "term": leadership.term,
        "leader": leadership.leader,
        "serving": leadership.serving,
        "last_index": node.core.log.last_index,
        "commit_index": node.core.commit_index,
        "applied_index": node.applied_index,
        "applied_end": context.machine.applied_end,
        "members": {
            name: {"peer": at.peer, "address": at.client, "http": at.http}
            for name, at in member_addresses(config, node.core.configuration).items()
        },
        "topics": len(context.machine.state.topics),
        "groups": len(context.machine.state.groups),
        "held_pulls": len(context.holds),
        "put_messages": context.stats.put_messages,
        "get_messages": context.stats.get_messages,
        "boot_timestamp": context.stats.boot_ms,
        "flush": config.flush,
    }


def topics_document(context: BrokerContext) -> dict[str, Any]:
    """The topics, their settings, and how many messages their queues hold here."""
    return {
        "topics": [
            {
                "name": name,
                "read_queues": topic.read_queues,
                "write_queues": topic.write_queues,
                "perm": topic.perm,
                "messages": sum(
                    end - first
                    for first, end in (
                        (queue.first_offset, queue.end_offset)
                        for queue_id, queue in context.machine.queues(name).items()
                        if queue_id < topic.read_queues
                    )
                ),
            }
            for name, topic in sorted(context.machine.state.topics.items())
        ]
    }


def groups_document(context: BrokerContext) -> dict[str, Any]:
    """For each group and topic: how many messages lie behind what the group has acknowledged.

    ``members`` are those connected to this node: consumers talk to the leader.
    """
    documents = []
    for (group, topic), offsets in sorted(context.machine.state.offsets.items()):
        ends = {queue_id: context.reader.offsets(topic, queue_id) for queue_id in offsets}
        members = context.clients.consumers.get(group)
        documents.append(
            {
                "group": group,
                "topic": topic,
                "members": 0 if members is None else len(members.client_ids()),
                "acknowledged": sum(
                    min(offset, ends[queue_id][1]) for queue_id, offset in offsets.items()
                ),
                "lag": sum(
                    max(end - max(offsets[queue_id], first), 0)
                    for queue_id, (first, end) in ends.items()
                ),
            }
        )
    return {"groups": documents}
