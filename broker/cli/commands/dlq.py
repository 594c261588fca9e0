"""``dledger dlq``: the dead letters of a consumer group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from broker.cli.commands.missing_groups import left_out, tell_unregistered
from broker.cli.commands.name_completion import groups
from broker.cli.terminal.client_session import run_session
from broker.cli.terminal.message_printer import (
    TOGETHER,
    Limits,
    MessageFormat,
    MessagePrinter,
    format_option,
    print_messages,
)
from broker.cli.terminal.name_arguments import group_name, topic_name
from broker.cli.terminal.numbers import COUNT
from broker.cli.terminal.options import (
    ask_first,
    cluster_options,
    dry_run_option,
    options,
    yes_option,
)
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Group
from broker.cli.terminal.progress import Progress
from broker.cli.terminal.time_arguments import TIME, TIME_HELP, timestamp_ms
from broker.client.message import PROPERTY_RETRY_TOPIC
from broker.client.producer.producer import Producer
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.admin_client import (
    AdminClient,
    NoTopicError,
    run_admin,
    run_on_leaders,
)
from broker.cluster_admin.dead_letters import (
    dead_letter_counts,
    find_dead_letters,
    send_again,
)
from broker.cluster_admin.peeking import Peek, Window
from broker.cluster_admin.topics import delete_topic
from broker.command_error import CommandError
from broker.topics_and_groups import dead_letter_topic, retry_topic
from store.counted import counted

command = Group()
group_argument = click.argument("group", type=group_name, shell_complete=groups)


window_options = options(
    click.option(
        "--since",
        "start",
        metavar=TIME,
        type=timestamp_ms,
        help=f"Dead letters from then on; {TIME_HELP}.",
    ),
    click.option("--until", "until_ms", metavar=TIME, type=timestamp_ms, help="... until then."),
    click.option("--last", metavar="N", type=COUNT, help="The last N."),
)
"""Options that select dead letters: the parameters of a :class:`Window`."""


def _window(place: Mapping[str, int | None]) -> Window:
    start = place["start"]
    return Window(
        "earliest" if start is None else start, last=place["last"], until_ms=place["until_ms"]
    )


@command.command("list", examples="  dledger dlq list\n  dledger dlq list billing\n")
@click.argument("group", type=group_name, required=False, shell_complete=groups)
@cluster_options
def list_groups(group: str | None, namesrv: str, output: Output) -> None:
    """The groups with dead letters, or only this one, and how many they have."""

    async def work(admin: AdminClient) -> tuple[list[dict[str, object]], list[str]]:
        return await dead_letter_counts(admin), await admin.unregistered()

    found, gone = run_on_leaders(namesrv, work)
    found = [each for each in found if group in (None, each["group"])]
    tell_unregistered("dlq list", gone)
    if output.document({"groups": found} | left_out(gone)):
        return
    if not found:
        print(f"{group} has no dead letters" if group else "no group has dead letters")
        return
    print_table(("GROUP", "MESSAGES"), [(each["group"], each["messages"]) for each in found])


@command.command(
    examples="""\
  dledger dlq show billing --last 5
  dledger dlq show billing --since 1d --format '%i %{RETRY_TOPIC} %s\\n'
"""
)
@group_argument
@window_options
@format_option
@cluster_options
def show(
    *, group: str, layout: MessageFormat | None, namesrv: str, output: Output, **place: int | None
) -> None:
    """Print dead letters; nothing is consumed."""

    async def work(admin: AdminClient) -> None:
        messages = Peek(admin, dead_letter_topic(group), _window(place)).messages()
        printer = MessagePrinter(output, layout)
        await print_messages(messages, printer, Limits(None, None), at_once=TOGETHER)

    _run(namesrv, group, work)


@command.command(
    examples="""\
  dledger dlq resend billing --dry-run
  dledger dlq resend billing --since 1d
  dledger dlq resend billing --id 7F00000100002A9F0000000000001000 --to bills
"""
)
@group_argument
@click.option(
    "--id", "ids", metavar="ID", multiple=True, help="Only this one; several may be given."
)
@window_options
@click.option(
    "--to",
    "topic",
    metavar="TOPIC",
    type=topic_name,
    help="Send them to this topic, for all groups that consume it (default: to the group "
    "alone, as a retry).",
)
@dry_run_option
@yes_option
@cluster_options
def resend(
    *,
    group: str,
    ids: tuple[str, ...],
    topic: str | None,
    dry_run: bool,
    yes: bool,
    namesrv: str,
    output: Output,
    **place: int | None,
) -> int:
    """Send dead letters to their group again. The dead letters stay until a purge."""

    messages: list[ReceivedMessage] = _run(
        namesrv, group, lambda admin: find_dead_letters(admin, group, _window(place), ids)
    )
    target = topic or retry_topic(group)
    if not dry_run and messages:
        ask_first(f"Send {counted(len(messages), 'message')} to {target}", yes=yes)
        run_session("dlq", lambda: _send(namesrv, target, messages))
    document = {
        "group": group,
        "topic": target,
        "messages": [message.message_id for message in messages],
        "dry_run": dry_run,
    }
    if not output.document(document):
        rows = [
            (
                message.message_id,
                message.properties.get(PROPERTY_RETRY_TOPIC),
                len(message.raw_body),
            )
            for message in messages
        ]
        print_table(("MESSAGE", "TOPIC", "BYTES"), rows)
        sent = "would be sent" if dry_run else "sent"
        print(f"{counted(len(messages), 'message')} {sent} to {target}")
    return 0


async def _send(namesrv: str, topic: str, messages: Sequence[ReceivedMessage]) -> int:
    progress = Progress("messages sent again", total=len(messages))
    async with Producer(namesrv) as producer:
        try:
            async for _ in send_again(producer, topic, messages):
                progress.add()
        finally:
            progress.end()
            if progress.count < len(messages):
                print(f"dledger dlq: {progress.count} of {len(messages)} are sent", file=sys.stderr)
    return 0


@command.command(examples="  dledger dlq purge billing\n")
@group_argument
@yes_option
@cluster_options
def purge(*, group: str, yes: bool, namesrv: str, output: Output) -> None:
    """Delete all dead letters of a group."""
    ask_first(f"Delete all dead letters of {group}", yes=yes)
    topic = dead_letter_topic(group)
    brokers = _run(namesrv, group, lambda admin: delete_topic(admin, topic))
    if not output.document({"group": group, "topic": topic, "brokers": brokers}):
        print(f"deleted the dead letters of {group} on {', '.join(brokers)}")


def _run(namesrv: str, group: str, work: Callable[[AdminClient], Any]) -> Any:
    try:
        return run_admin(namesrv, work)
    except NoTopicError as error:
        if error.gone:
            raise
        raise CommandError(
            f"{group} has no dead letters; `dledger dlq list` shows groups that have"
        ) from None
