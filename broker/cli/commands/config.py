"""``dledger config``: settings files, and settings of running groups."""

from __future__ import annotations

import click

from broker.cli.commands.config_files import check, init, show
from broker.cli.terminal.options import broker_group_option, cluster_options
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Group
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.settings import change_settings, settings_by_group
from broker.command_error import UsageError
from store.quoting import quoted

command = Group()
command.add_command(init)
command.add_command(check)
command.add_command(show)


@command.command(
    examples="""\
  dledger config get                              every setting of every group
  dledger config get fileReservedTime
"""
)
@click.argument("key", required=False, help="Default: all.")
@broker_group_option
@cluster_options
def get(key: str | None, group: str | None, namesrv: str, output: Output) -> None:
    """Show the settings of running groups."""

    found = run_admin(namesrv, lambda admin: settings_by_group(admin, group))
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
@broker_group_option
@cluster_options
def change(key: str, value: str, group: str | None, namesrv: str, output: Output) -> None:
    """Change a setting of running groups."""

    if "\n" in key + value or "=" in key:
        raise UsageError("a key and a value must be one line, and a key must have no `=`")
    groups = run_admin(namesrv, lambda admin: change_settings(admin, group, {key: value}))
    if output.document({"key": key, "value": value, "groups": groups}):
        return
    for name in groups:
        print(f"{name} {key}={value}")
