"""``dledger config``: settings files, and settings of running groups."""

from __future__ import annotations

from collections.abc import Mapping

import click

from broker.cli.commands.config_files import check, init, show
from broker.cli.terminal.options import broker_group_option, cluster_options
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Group
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.settings import change_settings, settings_by_group
from broker.command_error import UsageError
from broker.config.run_time_names import RUN_TIME_NAMES, run_time_name
from broker.config.setting_checks import nearest, one_line
from store.quoting import quoted

KEY_HELP = "A key of node.toml, or RocketMQ's name of it."

command = Group()
command.add_command(init)
command.add_command(check)
command.add_command(show)


@command.command(
    examples="""\
  dledger config get                              every setting of every group
  dledger config get file_reserved_hours          or by RocketMQ's name: fileReservedTime
"""
)
@click.argument("key", required=False, help=f"Default: all. {KEY_HELP}")
@broker_group_option
@cluster_options
def get(key: str | None, group: str | None, namesrv: str, output: Output) -> None:
    """Show the settings of running groups."""

    found = run_admin(namesrv, lambda admin: settings_by_group(admin, group))
    if key is not None:
        for name, settings in found.items():
            value = settings.get(run_time_name(key))
            if value is None:
                raise UsageError(
                    f"{name} has no setting {quoted(key)}{_hint(key, settings)}; "
                    "`dledger config get` shows all"
                )
            found[name] = {key: value}
    if output.document({"groups": found}):
        return
    for name, settings in found.items():
        for each, value in settings.items():
            print(f"{name} {each}={value}")


@command.command(
    "set",
    examples="""\
  dledger config set logLevel debug               on all nodes of all groups, across restarts
  dledger config set file_reserved_hours 24 --group broker-a
""",
)
@click.argument("key", help=KEY_HELP)
@click.argument("value")
@broker_group_option
@cluster_options
def change(key: str, value: str, group: str | None, namesrv: str, output: Output) -> None:
    """Change a setting of running groups."""

    if "\n" in key + value or "=" in key:
        raise UsageError("a key and a value must be one line, and a key must have no `=`")
    changes = {run_time_name(key): value}
    groups = run_admin(namesrv, lambda admin: change_settings(admin, group, changes))
    if output.document({"key": key, "value": value, "groups": groups}):
        return
    for name in groups:
        print(f"{name} {key}={value}")


def _hint(key: str, settings: Mapping[str, str]) -> str:
    """The name that is probably meant. The search takes quadratic time, and a key may be long."""
    known = [*settings, *(own for own, name in RUN_TIME_NAMES.items() if name in settings)]
    near = nearest(key, known) if one_line(key) == key else ""
    return f", did you mean {near}?" if near else ""
