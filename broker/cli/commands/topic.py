"""``dledger topic``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from broker.cli.commands.missing_groups import left_out, tell_unregistered
from broker.cli.commands.name_completion import topics
from broker.cli.commands.topic_move import move
from broker.cli.terminal.name_arguments import server_address, topic_name
from broker.cli.terminal.numbers import WholeRange
from broker.cli.terminal.options import (
    DEFAULT_CLUSTER,
    ask_first,
    cluster_options,
    options,
    yes_option,
)
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Group
from broker.cli.terminal.time_arguments import length_ms, length_text
from broker.cluster_admin.admin_client import (
    AdminClient,
    run_admin,
    run_on_leaders,
)
from broker.cluster_admin.topics import (
    PERMISSIONS,
    QUEUES_USUAL,
    READ_QUEUES,
    WRITE_QUEUES,
    QueueView,
    TopicConfig,
    all_topic_configs,
    delete_topic,
    leaders_of,
    make_or_change_topic,
    permission_word,
    topic_configs,
    topic_names,
    view_queues,
)
from broker.command_error import UsageError
from broker.limits import STATE
from broker.topics_and_groups import MESSAGE_TYPE, MESSAGE_TYPES, RETENTION_MS
from store.counted import counted

QUEUES_MAX = STATE.queues_max

UNSET = "unset"
"""Instead of a length of time: the topic has no retention of its own."""

command = Group()
command.add_command(move)
name_argument = click.argument("name", type=topic_name)
known_argument = click.argument("name", type=topic_name, shell_complete=topics)


def retention(text: str) -> int:
    """The milliseconds of a retention option, 0 for none. Raises ``ValueError``."""
    return 0 if text == UNSET else length_ms(text)


settings_options = options(
    click.option(
        "--queues",
        type=WholeRange(1, QUEUES_MAX),
        metavar="N",
        help=f"On each broker group, 1 to {QUEUES_MAX} (default: {QUEUES_USUAL}, or unchanged).",
    ),
    click.option(
        "--fewer",
        is_flag=True,
        help="Allow fewer queues than now; consumers no longer see messages in the others.",
    ),
    click.option(
        "--retention",
        type=retention,
        metavar=f"LENGTH|{UNSET}",
        help="The age up to which consumers get a message, such as 24h or 7d; not above the "
        "retention of the log (default: that, or unchanged).",
    ),
    click.option(
        "--type",
        "message_type",
        type=click.Choice(MESSAGE_TYPES),
        help="The message type that it allows (default: all, or unchanged); UNSPECIFIED and "
        "MIXED allow all.",
    ),
    click.option(
        "--perm",
        type=click.Choice(list(PERMISSIONS)),
        help="Whether clients may read and write (default: rw, or unchanged).",
    ),
    click.option(
        "--order/--no-order",
        default=None,
        help="Whether routes tell clients that the order of a queue matters.",
    ),
)
"""Options for the settings of a topic; None for settings that are not given."""


@command.command(
    examples="""\
  dledger topic create orders --queues 8
  dledger topic create orders -b 127.0.0.1:10911
  dledger topic create ledger --queues 1 --order --perm rw
  dledger topic create payments --type TRANSACTION
"""
)
@name_argument
@settings_options
@click.option(
    "-b",
    "broker",
    metavar="BROKER_ADDR",
    type=server_address,
    help="On the broker group of this broker.",
)
@click.option(
    "-c",
    "cluster",
    metavar="CLUSTER",
    help=f"On every broker group of a cluster (default: {DEFAULT_CLUSTER}).",
)
@cluster_options
def create(
    *,
    name: str,
    fewer: bool,
    broker: str | None,
    cluster: str | None,
    namesrv: str,
    output: Output,
    **given: Any,
) -> None:
    """Create a topic, or change its settings."""
    if broker and cluster:
        raise UsageError("-b and -c cannot be used together")

    async def work(admin: AdminClient) -> tuple[dict[str, TopicConfig], int, bool]:
        addresses = await leaders_of(admin, broker, cluster or DEFAULT_CLUSTER)
        return await make_or_change_topic(admin, name, addresses, _changes(given), fewer=fewer)

    configs, count, changed = run_on_leaders(namesrv, work)
    if output.document({"topic": name, "queues": count, "brokers": [*configs]}):
        return
    queues, where = counted(count, "queue"), ", ".join(configs)
    if not any(configs.values()):
        print(f"created {name} with {queues} on {where}")
    elif changed:
        print(f"changed {name} to {queues} on {where}")
    else:
        print(f"{name} already has {queues} on {where}")


@command.command(
    examples="""\
  dledger topic alter orders --queues 16
  dledger topic alter orders --perm r           takes no more messages; the present ones can be read
  dledger topic alter orders --retention 24h
  dledger topic alter orders --retention unset   as long as the log is kept
"""
)
@known_argument
@settings_options
@cluster_options
def alter(*, name: str, fewer: bool, namesrv: str, output: Output, **given: Any) -> None:
    """Change the settings of a topic; others stay."""
    changes = _changes(given)
    if not changes:
        raise UsageError("nothing is changed; name a setting")

    async def work(admin: AdminClient) -> dict[str, TopicConfig]:
        addresses = [*(await admin.route(name)).masters.values()]
        await make_or_change_topic(admin, name, addresses, changes, fewer=fewer)
        return await topic_configs(admin, name, addresses)

    configs = run_on_leaders(namesrv, work)
    if output.document({"topic": name, "brokers": configs}):
        return
    _print_settings(configs)


def _print_settings(configs: Mapping[str, TopicConfig]) -> None:
    """At each leader that has the topic, by address."""
    rows = [(address, *_told(config)) for address, config in configs.items() if config]
    print_table(("BROKER", *SETTINGS), rows)


SETTINGS = ("READ QUEUES", "WRITE QUEUES", "PERM", "ORDER", "TYPE", "RETENTION")


def _told(config: TopicConfig) -> tuple[object, ...]:
    """The cells of a topic in a table of settings."""
    return (
        config[READ_QUEUES],
        config[WRITE_QUEUES],
        permission_word(config["perm"]),
        "yes" if config["order"] else "no",
        config[MESSAGE_TYPE],
        retention_text(config),
    )


def _changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings, by RocketMQ's names."""
    changes = {}
    if given["queues"] is not None:
        changes = {READ_QUEUES: given["queues"], WRITE_QUEUES: given["queues"]}
    if given["perm"] is not None:
        changes["perm"] = PERMISSIONS[given["perm"]]
    if given["order"] is not None:
        changes["order"] = given["order"]
    if given["message_type"] is not None:
        changes[MESSAGE_TYPE] = given["message_type"]
    if given["retention"] is not None:
        changes[RETENTION_MS] = given["retention"]
    return changes


def retention_text(config: TopicConfig) -> str:
    """The retention of a topic, as text."""
    kept_ms = config.get(RETENTION_MS)
    return length_text(kept_ms) if kept_ms else "as the log"


@command.command(
    "list",
    examples="""\
  dledger topic list
  dledger topic list --long                     their settings on each broker group
""",
)
@click.option("--long", "with_settings", is_flag=True, help="Show the settings on each leader.")
@cluster_options
def list_topics(*, with_settings: bool, namesrv: str, output: Output) -> None:
    """The topics that the NameServer knows."""
    if with_settings:
        _list_settings(namesrv, output)
        return

    async def work(admin: AdminClient) -> tuple[list[str], list[str]]:
        return await topic_names(admin), await admin.unregistered()

    names, gone = run_admin(namesrv, work)
    if not output.document({"topics": names} | left_out(gone)):
        print("\n".join(names))
    tell_unregistered("topic list", gone)


def _list_settings(namesrv: str, output: Output) -> None:
    found = run_on_leaders(namesrv, all_topic_configs)
    topics = [{"broker": group, **config} for _, group, config in found]
    if output.document({"topics": topics}):
        return
    print_table(
        ("TOPIC", "BROKER", *SETTINGS), [(name, group, *_told(each)) for name, group, each in found]
    )


@command.command(examples="  dledger topic describe orders\n")
@known_argument
@cluster_options
def describe(name: str, namesrv: str, output: Output) -> None:
    """A topic's settings, its queues, and what they hold."""

    async def view(admin: AdminClient) -> tuple[list[QueueView], dict[str, TopicConfig]]:
        queues = await view_queues(admin, name)
        addresses = [*(await admin.route(name)).masters.values()]
        return queues, await topic_configs(admin, name, addresses)

    queues, configs = run_on_leaders(namesrv, view)
    document = {
        "topic": name,
        "brokers": configs,
        "queues": [asdict(queue) for queue in queues],
        "retention_ms": {
            address: config.get(RETENTION_MS) or None for address, config in configs.items()
        },
    }
    if output.document(document):
        return
    _print_settings(configs)
    print()
    print_table(
        ("BROKER", "QUEUE", "MIN", "MAX", "MESSAGES"),
        [
            (q.broker, q.queue_id, q.min_offset, q.max_offset, q.max_offset - q.min_offset)
            for q in queues
        ],
    )


@command.command(examples="  dledger topic delete orders\n")
@known_argument
@yes_option
@cluster_options
def delete(name: str, yes: bool, namesrv: str, output: Output) -> None:
    """Delete a topic and its messages."""
    ask_first(f"Delete the topic {name} and all its messages", yes=yes)
    brokers = run_on_leaders(namesrv, lambda admin: delete_topic(admin, name))
    if not output.document({"topic": name, "brokers": brokers}):
        print(f"deleted {name} on {', '.join(brokers)}")
