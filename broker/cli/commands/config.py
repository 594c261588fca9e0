"""``dledger config``: files of settings, and settings of running groups."""

from __future__ import annotations

import argparse

from broker.cli.cluster_admin.admin_client import AdminClient, run_admin
from broker.cli.commands.config_files import FILE_ACTIONS, add_file_arguments
from broker.cli.terminal.command_error import UsageError
from broker.cli.terminal.options import add_json, add_namesrv, print_json
from broker.remoting.protocol.codes import RequestCode
from store.quoting import quoted

EXAMPLES = """\
  dledger config init node.toml                   all settings of a node, explained
  dledger config check node.toml                  every problem, with its line
  dledger config show node.toml                   each value, and where it comes from
  dledger config get                              every setting of every group
  dledger config get fileReservedTime
  dledger config set logLevel debug               on all nodes of all groups, across restarts
  dledger config set fileReservedTime 24 --group broker-a
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    get = actions.add_parser("get", help="show the settings of running groups")
    get.add_argument("key", metavar="KEY", nargs="?", help="default: all")
    change = actions.add_parser("set", help="change a setting of running groups")
    change.add_argument("key", metavar="KEY")
    change.add_argument("value", metavar="VALUE")
    add_file_arguments(actions)
    for action in (get, change):
        action.add_argument("--group", metavar="NAME", help="a broker group; default: all")
        add_namesrv(action)
        add_json(action)


def run(args: argparse.Namespace) -> int:
    return {"get": _get, "set": _set, **FILE_ACTIONS}[args.action](args)


def _get(args: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> dict[str, dict[str, str]]:
        leaders = await _leaders(admin, args.group)
        return {group: await _settings(admin, leader) for group, leader in leaders.items()}

    found = run_admin(args.namesrv, work)
    if args.key is not None:
        for group, settings in found.items():
            if args.key not in settings:
                known = ", ".join(sorted(settings))
                raise UsageError(f"{group} has no setting {quoted(args.key)}; there are {known}")
            found[group] = {args.key: settings[args.key]}
    if args.json:
        print_json({"groups": found})
        return 0
    for group, settings in found.items():
        for key, value in settings.items():
            print(f"{group} {key}={value}")
    return 0


def _set(args: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> list[str]:
        leaders = await _leaders(admin, args.group)
        line = f"{args.key}={args.value}\n".encode()
        for leader in leaders.values():
            await admin.ask(leader, RequestCode.UPDATE_BROKER_CONFIG, body=[line])
        return list(leaders)

    if "\n" in args.key + args.value or "=" in args.key:
        raise UsageError("a key and a value are one line, and a key has no `=`")
    groups = run_admin(args.namesrv, work)
    if args.json:
        print_json({"key": args.key, "value": args.value, "groups": groups})
    else:
        for group in groups:
            print(f"{group} {args.key}={args.value}")
    return 0


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
