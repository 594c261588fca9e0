"""The pages of all topics and of one topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.cli.terminal.time_arguments import length_text
from broker.cluster_admin.admin_client import when_led
from broker.cluster_admin.topics import (
    READ_QUEUES,
    WRITE_QUEUES,
    permission_word,
    topic_configs,
    view_queues,
)
from broker.console.visits.visit import Page, Visit
from broker.topics_and_groups import (
    DLQ_PREFIX,
    MESSAGE_TYPE,
    PERM_READ,
    PERM_WRITE,
    RETENTION_MS,
    RETRY_PREFIX,
)

PERM_MASK = PERM_READ | PERM_WRITE


def topic_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each topic, over all broker groups."""
    rows: dict[str, dict[str, Any]] = {}
    for each in document["topics"]:
        name = each["name"]
        row = rows.setdefault(name, {"name": name, "queues": 0, "messages": 0, "groups": []})
        row["queues"] += each.get("read_queues") or 0
        row["messages"] += each["messages"]
        row["groups"].append(each["broker_group"])
        row["perm"] = permission_word(int(each.get("perm") or 0) & PERM_MASK)
        row["own"] = not each.get("system") and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return [rows[name] for name in sorted(rows)]


def _filtered(rows: Iterable[dict[str, Any]], query: Mapping[str, str]) -> list[dict[str, Any]]:
    wanted = query.get("find", "").lower()
    return [
        row for row in rows if wanted in row["name"].lower() and (row["own"] or query.get("system"))
    ]


async def topics(visit: Visit) -> Page:
    document = await visit.view.document()
    rows = topic_rows(document)
    return Page(
        "topics.html",
        "Topics",
        "topics",
        {
            "topics": _filtered(rows, visit.query),
            "several": len(document["broker_groups"]) > 1,
            "query": visit.query,
        },
    )


async def topic(visit: Visit, name: str) -> Page:
    """The page of one topic. Raises :class:`~broker.command_error.CommandError` for an
    unknown one."""
    queues = await when_led(lambda: view_queues(visit.admin, name))
    masters = (await visit.admin.route(name)).masters
    configs = await topic_configs(visit.admin, name, [*masters.values()])
    document = await visit.view.document()
    config = next((each for each in configs.values() if each), {})
    consumers: dict[str, int | None] = {}
    for row in document["groups"]:
        if row["topic"] == name:
            known = consumers.get(row["group"], 0)
            consumers[row["group"]] = None if row["lag"] is None else (known or 0) + row["lag"]
    return Page(
        "topic.html",
        name,
        "topics",
        {
            "name": name,
            "queues": queues,
            "messages": sum(queue.max_offset - queue.min_offset for queue in queues),
            "brokers": sorted(masters),
            "perm": permission_word(config.get("perm", PERM_MASK)),
            "type": config.get(MESSAGE_TYPE, ""),
            "order": bool(config.get("order")),
            "retention": length_text(config[RETENTION_MS]) if config.get(RETENTION_MS) else "",
            "read_queues": config.get(READ_QUEUES, 0),
            "write_queues": config.get(WRITE_QUEUES, 0),
            "consumers": sorted(consumers.items()),
        },
    )
