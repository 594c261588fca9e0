"""``dledger group``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import click

from broker.cli.commands.missing_groups import left_out, tell_unregistered
from broker.cli.commands.name_completion import groups, topics
from broker.cli.terminal.name_arguments import group_name, topic_name
from broker.cli.terminal.numbers import WholeRange
from broker.cli.terminal.options import (
    ask_first,
    cluster_options,
    dry_run_option,
    yes_option,
)
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Group
from broker.cli.terminal.time_arguments import TIME, TIME_HELP, place_in_time
from broker.cluster_admin.admin_client import (
    AdminClient,
    run_admin,
    run_on_leaders,
)
from broker.cluster_admin.consumer_group_views import (
    ConsumerGroupView,
    UnknownGroupError,
    find_group,
    group_names,
)
from broker.cluster_admin.consumer_groups import (
    RETRIES_MAX,
    GroupDeletion,
    create_group,
    group_configs,
    put_group,
)
from broker.cluster_admin.offset_resets import foresee_offsets, reset_offsets
from broker.command_error import UsageError
from broker.limits import STATE
from broker.topics_and_groups import dead_letter_topic
from store.counted import counted

RETRIES = WholeRange(0, RETRIES_MAX)
RETRY_QUEUES = WholeRange(0, STATE.retry_queues_max)
"""What a broker takes."""

F = TypeVar("F", bound=Callable[..., Any])

command = Group()
name_argument = click.argument("name", type=group_name)
known_argument = click.argument("name", type=group_name, shell_complete=groups)


@command.command("list", examples="  dledger group list\n")
@cluster_options
def list_groups(namesrv: str, output: Output) -> None:
    """The groups with a configuration, members or offsets."""

    async def work(admin: AdminClient) -> tuple[list[str], list[str]]:
        return await group_names(admin), await admin.unregistered()

    groups, gone = run_on_leaders(namesrv, work)
    tell_unregistered("group list", gone)
    if not output.document({"groups": groups} | left_out(gone)):
        print("\n".join(groups) or "there are no groups yet")


@command.command(examples="  dledger group describe printers\n")
@known_argument
@cluster_options
def describe(name: str, namesrv: str, output: Output) -> None:
    """A group's members, offsets and lag."""
    group = run_on_leaders(namesrv, lambda admin: find_group(admin, name))
    if output.document(group_json(group)):
        return
    members = group.members
    connected = f"{counted(len(members), 'member')} connected"
    print(f"{connected}: {', '.join(members)}" if members else connected)
    oldest = f", the oldest for {group.lag_ms / 1000:.1f} s" if group.lag_ms else ""
    print(f"{counted(group.lag, 'message')} to consume{oldest}")
    print_table(
        ("TOPIC", "BROKER", "QUEUE", "OFFSET", "MAX", "LAG", "LAG_MS"),
        [
            (q.topic, q.broker, q.queue_id, q.offset, q.max_offset, q.lag, _known(q.lag_ms))
            for q in group.queues
        ],
    )
    for topic in group.broadcast:
        print(f"{topic}: broadcast: the members keep its offsets")


def _known(value: int | None) -> int | str:
    return "-" if value is None else value


def group_json(group: ConsumerGroupView) -> dict[str, Any]:
    """The document of ``dledger group describe --json``."""
    return {
        "group": group.name,
        "members": group.members,
        "lag": group.lag,
        "lag_ms": group.lag_ms,
        "queues": [asdict(queue) for queue in group.queues],
        "broadcast": group.broadcast,
    }


RETRY_MAX_HELP = (
    "Retries before a dead letter, usually 16: for POP, and for clients that send no limit of "
    "their own. RocketMQ 4's Java client always sends one, 16 by default."
)


def settings_options(command: F) -> F:
    """Options for the settings of a group, by RocketMQ's names; None for settings that are not
    given."""
    for name, field, kind, told in (
        ("--broadcast/--no-broadcast", "consumeBroadcastEnable", None, "May consume by broadcast."),
        ("--consume/--no-consume", "consumeEnable", None, "May consume at all."),
        (
            "--retry-queues",
            "retryQueueNums",
            RETRY_QUEUES,
            "Queues for its retries, usually 1; 0: none.",
        ),
        ("--retry-max", "retryMaxTimes", RETRIES, RETRY_MAX_HELP),
    ):
        metavar = None if kind is None else "N"
        command = click.option(name, field, type=kind, metavar=metavar, default=None, help=told)(
            command
        )
    return command


@command.command(examples="  dledger group create billing --retry-max 5\n")
@name_argument
@settings_options
@cluster_options
def create(*, name: str, namesrv: str, output: Output, **given: int | None) -> None:
    """Create a group on all broker groups. Consumers create missing groups with defaults.

    Where it exists its settings stay.
    """

    async def work(admin: AdminClient) -> dict[str, dict[str, Any] | None]:
        await create_group(admin, name, _given(given))
        return await group_configs(admin, name)

    _print_settings(name, run_admin(namesrv, work), output)


@command.command(
    examples="  dledger group alter billing --no-consume       its members get nothing\n"
)
@known_argument
@settings_options
@cluster_options
def alter(*, name: str, namesrv: str, output: Output, **given: int | None) -> None:
    """Change the settings of a group; others stay."""
    changes = _given(given)
    if not changes:
        raise UsageError("nothing is changed; name a setting")

    async def work(admin: AdminClient) -> dict[str, dict[str, Any] | None]:
        found = await group_configs(admin, name)
        known = {address: config for address, config in found.items() if config is not None}
        if not known:
            raise UnknownGroupError(name, await group_names(admin), "; `group create` creates it")
        for address, config in known.items():
            await put_group(admin, [address], {**config, **changes})
        return await group_configs(admin, name)

    _print_settings(name, run_on_leaders(namesrv, work), output)


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _given(given: Mapping[str, int | None]) -> dict[str, int]:
    return {field: value for field, value in given.items() if value is not None}


def _print_settings(name: str, found: Mapping[str, Any], output: Output) -> None:
    configs = {address: config for address, config in found.items() if config is not None}
    if output.document({"group": name, "brokers": configs}):
        return
    fields = ("retryMaxTimes", "retryQueueNums", "consumeEnable", "consumeBroadcastEnable")
    print_table(
        ("BROKER", "RETRY MAX", "RETRY QUEUES", "CONSUMES", "BROADCAST"),
        [
            (address, *(_word(config[field]) for field in fields))
            for address, config in configs.items()
        ],
    )


@command.command(
    examples="""\
  dledger group reset-offset printers --topic orders --to earliest --dry-run
  dledger group reset-offset printers --topic orders --to 2026-11-22T10:00:00Z
  dledger group reset-offset printers --topic orders --to 1h                  an hour ago
  dledger group reset-offset printers2 --topic orders --to latest --create     a new group
"""
)
@known_argument
@click.option(
    "--topic",
    metavar="T",
    type=topic_name,
    required=True,
    shell_complete=topics,
    help="The target.",
)
@click.option(
    "--to",
    "target",
    type=place_in_time,
    metavar=f"earliest|latest|{TIME}",
    required=True,
    help=f"{TIME_HELP}.",
)
@click.option("--create", is_flag=True, help="Create the group if no broker knows it.")
@dry_run_option
@cluster_options
def reset_offset(
    *,
    name: str,
    topic: str,
    target: str | int,
    create: bool,
    dry_run: bool,
    namesrv: str,
    output: Output,
) -> None:
    """Move the offsets of a group in a topic, also while it consumes."""

    was: dict[tuple[str, int], int | None] = {}

    async def reset(admin: AdminClient) -> dict[tuple[str, int], int]:
        try:
            known = await find_group(admin, name, hint="; --create creates it")
            was.update(known.offsets(topic))
        except UnknownGroupError:
            if not create:
                raise
            if not dry_run:
                masters = (await admin.route(topic)).masters
                await put_group(admin, masters.values(), {"groupName": name})
        if dry_run:
            return await foresee_offsets(admin, topic, target)
        return await reset_offsets(admin, name, topic, target)

    offsets = run_on_leaders(namesrv, reset)
    moves = [
        {
            "broker": broker,
            "queue_id": queue_id,
            "offset": offset,
            "was": was.get((broker, queue_id)),
        }
        for (broker, queue_id), offset in offsets.items()
    ]
    if not output.document({"group": name, "topic": topic, "queues": moves}):
        print_table(("BROKER", "QUEUE", "OFFSET", "WAS"), [tuple(each.values()) for each in moves])
        if dry_run:
            print("nothing is moved (--dry-run)", file=sys.stderr)


@command.command(examples="  dledger group delete printers\n")
@known_argument
@yes_option
@cluster_options
def delete(name: str, yes: bool, namesrv: str, output: Output) -> None:
    """Delete a group, its offsets and its retries; its dead letters stay."""
    ask_first(f"Delete the group {name}, its offsets and its retries", yes=yes)
    group, dead_letters = run_on_leaders(namesrv, GroupDeletion(name).run)
    brokers = list(group.masters.values())
    document = {"group": name, "brokers": brokers, "members": group.members}
    if not output.document(document | {"dead_letters": dead_letters}):
        print(f"deleted {name} on {', '.join(brokers)}")
    if dead_letters:
        topic = dead_letter_topic(name)
        print(
            f"its dead letters stay: `dledger consume '{topic}' --group NAME` reads them, "
            f"`dledger topic delete '{topic}'` deletes them",
            file=sys.stderr,
        )
    if group.members:
        print(
            f"still connected, so the next heartbeat creates it again: {', '.join(group.members)}",
            file=sys.stderr,
        )
