"""The pages of consumer groups, of one group, and of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.client.message import PROPERTY_RETRY_TOPIC
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.admin_client import NoTopicError, when_led
from broker.cluster_admin.consumer_group_views import find_group
from broker.cluster_admin.consumer_groups import group_configs
from broker.cluster_admin.peeking import Peek, Window
from broker.console.pages.messages import PREVIEW_SIZE, preview
from broker.console.visits.visit import Page, Visit
from broker.limits import CONSOLE
from broker.topics_and_groups import DLQ_PREFIX, RETRY_PREFIX, dead_letter_topic

DEAD_SHOWN = 50


def group_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each group, over all topics and broker groups."""
    rows: dict[str, dict[str, Any]] = {}
    for each in document["groups"]:
        row = rows.setdefault(
            each["group"],
            {"name": each["group"], "members": 0, "lag": 0, "topics": set(), "retries": 0},
        )
        row["members"] = max(row["members"], each.get("members") or 0)
        topic, lag = each["topic"], each["lag"] or 0
        if topic is not None and topic.startswith(RETRY_PREFIX):
            row["retries"] += lag
        elif topic is not None:
            row["topics"].add(topic)
        row["lag"] += lag
    dead = dead_letters_by_group(document)
    return [
        {**row, "topics": sorted(row["topics"]), "dead": dead.get(name, 0)}
        for name, row in sorted(rows.items())
    ]


def dead_letters_by_group(document: Mapping[str, Any]) -> dict[str, int]:
    """The number of dead letters of each group."""
    found: dict[str, int] = {}
    for each in document["topics"]:
        if each["name"].startswith(DLQ_PREFIX):
            group = each["name"].removeprefix(DLQ_PREFIX)
            found[group] = found.get(group, 0) + each["messages"]
    return found


async def groups(visit: Visit) -> Page:
    rows = group_rows(await visit.view.document())
    wanted = visit.query.get("find", "").lower()
    return Page(
        "groups.html",
        "Consumer groups",
        "groups",
        {"groups": [row for row in rows if wanted in row["name"].lower()], "query": visit.query},
    )


async def group(visit: Visit, name: str) -> Page:
    """The page of one group. Raises :class:`~broker.command_error.CommandError` for an
    unknown one."""
    found = await when_led(lambda: find_group(visit.admin, name))
    configs = await group_configs(visit.admin, name)
    config = next((each for each in configs.values() if each), {})
    topics: dict[str, int] = {}
    for queue in sorted(found.queues, key=lambda each: each.topic.startswith(RETRY_PREFIX)):
        topics[queue.topic] = topics.get(queue.topic, 0) + queue.lag
    document = await visit.view.document()
    return Page(
        "group.html",
        name,
        "groups",
        {
            "group": found,
            "config": config,
            "topics": topics,
            "dead": dead_letters_by_group(document).get(name, 0),
        },
    )


async def dead_letters(visit: Visit) -> Page:
    found = dead_letters_by_group(await visit.view.document())
    return Page("dead.html", "Dead letters", "dead", {"groups": sorted(found.items())})


async def dead_letters_of(visit: Visit, name: str) -> Page:
    """The page of the newest dead letters of a group."""
    topic = dead_letter_topic(name)
    found: list[ReceivedMessage] = []
    try:
        peek = Peek(visit.admin, topic, Window(last=DEAD_SHOWN, bytes_max=CONSOLE.page_bytes_max))
        found = [message async for message in peek.messages()]
    except NoTopicError:
        pass
    count = dead_letters_by_group(await visit.view.document()).get(name, 0)
    rows = [
        {
            "id": message.message_id,
            "stored_ms": message.store_timestamp,
            "broker": message.queue.broker,
            "queue_id": message.queue.queue_id,
            "offset": message.queue_offset,
            "topic": message.properties.get(PROPERTY_RETRY_TOPIC, ""),
            "attempts": message.reconsume_times,
            "preview": preview(message)[:PREVIEW_SIZE],
        }
        for message in reversed(found)
    ]
    return Page(
        "dead_group.html",
        f"Dead letters of {name}",
        "dead",
        {"name": name, "topic": topic, "count": count, "rows": rows},
    )
