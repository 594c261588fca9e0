"""The quotas of running groups, which are settings."""

from __future__ import annotations

from typing import NamedTuple

from broker.cluster_admin.admin_client import AdminClient
from broker.cluster_admin.settings import change_settings, settings_by_group
from broker.quotas.quota import PREFIX, Entity, Quota, parse_entity, parse_quota


class GroupQuota(NamedTuple):
    """A quota of one broker group."""

    group: str
    entity: Entity
    quota: Quota


async def quotas_by_group(admin: AdminClient, group: str | None) -> list[GroupQuota]:
    """The quotas of all broker groups, or of one."""
    settings = await settings_by_group(admin, group)
    return [
        GroupQuota(name, parse_entity(key), parse_quota(value))
        for name, each in settings.items()
        for key, value in each.items()
        if key.startswith(PREFIX)
    ]


async def put_quota(
    admin: AdminClient, group: str | None, entity: Entity, quota: Quota
) -> list[str]:
    """Sets a quota in all broker groups or in one; returns their names. A quota without limits
    removes it."""
    return await change_settings(admin, group, {entity.setting: str(quota)})
