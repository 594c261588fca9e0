"""The page of quotas of all broker groups."""

from __future__ import annotations

from typing import Any

from broker.cluster_admin.admin_client import when_led
from broker.cluster_admin.quotas import GroupQuota, quotas_by_group
from broker.console.actions.quotas import limits
from broker.console.visits.visit import Page, Visit
from broker.quotas.quota import EACH, Entity, Quota


async def quotas(visit: Visit) -> Page:
    """Raises :class:`~broker.command_error.CommandError`."""
    found = await when_led(lambda: quotas_by_group(visit.admin, None))
    document = await visit.view.nodes()
    nodes = document["nodes"]
    return Page(
        "quotas.html",
        "Quotas",
        "quotas",
        {
            "quotas": quota_rows(found, len(document["broker_groups"])),
            "several": len(document["broker_groups"]) > 1,
            "waited": sum(node.get("throttled_seconds") or 0 for node in nodes),
        },
    )


def quota_rows(found: list[GroupQuota], groups: int) -> list[dict[str, Any]]:
    """One row for each quota, with the broker groups that have it. ``group`` is the group that a
    change of it names; empty if all ``groups`` have it."""
    by_quota: dict[tuple[Entity, Quota], list[str]] = {}
    for each in found:
        by_quota.setdefault((each.entity, each.quota), []).append(each.group)
    rows: list[dict[str, Any]] = []
    for (entity, quota), where in sorted(by_quota.items()):
        parts = [where] if len(where) == groups else [[name] for name in where]
        rows += [
            {
                "type": entity.type,
                "name": entity.name,
                "each": entity.name == EACH,
                "in": limits(quota.produce_messages, quota.produce_bytes),
                "out": limits(quota.consume_messages, quota.consume_bytes),
                "groups": names,
                "group": "" if len(names) == groups else names[0],
                "fields": {name: str(rate) for name, rate in quota._asdict().items() if rate},
            }
            for names in parts
        ]
    return rows
