"""The settings of running groups, by RocketMQ's names."""

from __future__ import annotations

from collections.abc import Mapping

from broker.cluster_admin.admin_client import AdminClient
from broker.remoting.protocol.codes import RequestCode


async def leaders_by_group(admin: AdminClient, group: str | None) -> dict[str, str]:
    """The leaders' addresses, of all groups or of one. Raises as
    :meth:`AdminClient.masters` and :meth:`AdminClient.leader`."""
    if group is None:
        return dict(sorted((await admin.masters()).items()))
    return {group: await admin.leader(group)}


async def settings_by_group(admin: AdminClient, group: str | None) -> dict[str, dict[str, str]]:
    """All settings, of all groups or of one."""
    leaders = await leaders_by_group(admin, group)
    return {name: await _settings(admin, leader) for name, leader in leaders.items()}


async def _settings(admin: AdminClient, leader: str) -> dict[str, str]:
    answer = await admin.ask(leader, RequestCode.GET_BROKER_CONFIG)
    pairs = (line.partition("=") for line in answer.body.decode().splitlines())
    return {key: value for key, _, value in pairs}


async def change_settings(
    admin: AdminClient, group: str | None, changes: Mapping[str, str]
) -> list[str]:
    """Changes settings of all groups or of one; returns the names of these groups."""
    leaders = await leaders_by_group(admin, group)
    lines = "".join(f"{key}={value}\n" for key, value in changes.items())
    for leader in leaders.values():
        await admin.ask(leader, RequestCode.UPDATE_BROKER_CONFIG, body=[lines.encode()])
    return list(leaders)
