"""What a broker says of itself as JSON: its place in the group, its topics, its consumer groups."""

from __future__ import annotations

from typing import Any

from broker.admin.groups import ConsumerGroups
from broker.admin.topics import all_topics
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
                "name": topic.config.name,
                "read_queues": topic.config.read_queues,
                "write_queues": topic.config.write_queues,
                "perm": topic.config.perm,
                "messages": topic.messages,
            }
            for topic in all_topics(context.machine)
        ]
    }


def groups_document(context: BrokerContext) -> dict[str, Any]:
    """For each group and topic: how many messages lie behind what the group has acknowledged.

    ``members`` are those connected to this node: consumers talk to the leader. A group that
    consumes nothing has one row with the topic null. ``lag`` is null where the members keep their
    offsets themselves.
    """
    documents: list[dict[str, Any]] = []
    for group in ConsumerGroups(context.machine, context.clients).all():
        rows = [(topic.topic, topic.acknowledged, topic.lag) for topic in group.topics]
        documents += [
            {
                "group": group.name,
                "topic": topic,
                "members": len(group.members),
                "acknowledged": acknowledged,
                "lag": lag,
            }
            for topic, acknowledged, lag in rows or [(None, 0, 0)]
        ]
    return {"groups": documents}
