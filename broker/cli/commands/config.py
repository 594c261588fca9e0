"""``dledger config``: files of settings, and settings of running groups."""

from __future__ import annotations

import click

from broker.cli.commands.config_files import add_file_commands
from broker.cli.terminal.command_error import UsageError
from broker.cli.terminal.options import json_option, namesrv_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Group
from broker.cluster_admin.admin_client import AdminClient, run_admin
from broker.remoting.protocol.codes import RequestCode
from store.quoting import quoted

command = Group()
add_file_commands(command)

group_option = click.option("--group", metavar="NAME", help="A broker group (default: all).")


@command.command(
    examples="""\
  dledger config get                              every setting of every group
  dledger config get fileReservedTime
"""
)
@click.argument("key", required=False, help="Default: all.")
@group_option
@namesrv_option
@json_option
def get(key: str | None, group: str | None, namesrv: str, output: Output) -> None:
    """Show the settings of running groups."""

    async def work(admin: AdminClient) -> dict[str, dict[str, str]]:
        leaders = await _leaders(admin, group)
        return {group: await _settings(admin, leader) for group, leader in leaders.items()}

    found = run_admin(namesrv, work)
    if key is not None:
        for name, settings in found.items():
            if key not in settings:
                known = ", ".join(sorted(settings))
                raise UsageError(f"{name} has no setting {quoted(key)}; there are {known}")
            found[name] = {key: settings[key]}
    if output.document({"groups": found}):
        return
    for name, settings in found.items():
        for each, value in settings.items():
            print(f"{name} {each}={value}")


@command.command(
    "set",
    examples="""\
  dledger config set logLevel debug               on all nodes of all groups, across restarts
  dledger config set fileReservedTime 24 --group broker-a
""",
)
@click.argument("key")
@click.argument("value")
@group_option
@namesrv_option
@json_option
def change(key: str, value: str, group: str | None, namesrv: str, output: Output) -> None:
    """Change a setting of running groups."""

    async def work(admin: AdminClient) -> list[str]:
        leaders = await _leaders(admin, group)
        line = f"{key}={value}\n".encode()
        for leader in leaders.values():
            await admin.ask(leader, RequestCode.UPDATE_BROKER_CONFIG, body=[line])
        return list(leaders)

    if "\n" in key + value or "=" in key:
        raise UsageError("a key and a value are one line, and a key has no `=`")
    groups = run_admin(namesrv, work)
    if output.document({"key": key, "value": value, "groups": groups}):
        return
    for name in groups:
        print(f"{name} {key}={value}")


async def _leaders(admin: AdminClient, group: str | None) -> dict[str, str]:
    """The leaders' addresses by group."""
    masters = await admin.masters()
    if group is None:
        return dict(sorted(masters.items()))
    if group not in masters:
        known = ", ".join(sorted(masters)) or "none"
        raise UsageError(f"there is no group {quoted(group)}; known are: {known}")
    return {group: masters[group]}


async def _settings(admin: AdminClient, leader: str) -> dict[str, str]:
    answer = await admin.ask(leader, RequestCode.GET_BROKER_CONFIG)
    pairs = (line.partition("=") for line in answer.body.decode().splitlines())
    return {key: value for key, _, value in pairs}
