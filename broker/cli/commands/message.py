"""``dledger message``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import zip_longest

import click

from broker.cli.commands.name_completion import topics
from broker.cli.terminal.name_arguments import topic_name
from broker.cli.terminal.numbers import COUNT
from broker.cli.terminal.options import cluster_options
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Group
from broker.cli.terminal.time_arguments import TIME, TIME_HELP, timestamp_ms
from broker.client.errors import UndecodableBodyError
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.admin_client import run_on_leaders
from broker.cluster_admin.message_lookup import (
    EVENTS,
    MESSAGE_ID,
    OUTCOMES,
    QUERY_MESSAGES,
    find_by_id,
    find_by_key,
    find_by_unique_key,
    trace_events,
)
from broker.command_error import CommandError, UsageError
from broker.delivery.message_json import message_json
from broker.remoting.protocol.ext_fields import INT64_MAX
from store.quoting import quoted

command = Group()


@command.command(
    examples="""\
  dledger message get 7F00000100002A9F0000000000001000
  dledger message get 7F0000010A5C2B1D4E8F000001020304 --topic orders      a producer's unique key
"""
)
@click.argument("message_id", metavar="ID", help="32 hexadecimal digits.")
@click.option(
    "--topic", metavar="T", type=topic_name, help="ID is a producer's unique key, in this topic."
)
@cluster_options
def get(*, message_id: str, topic: str | None, namesrv: str, output: Output) -> None:
    """Print one message by the id of its acknowledgement."""
    if not MESSAGE_ID.fullmatch(message_id):
        raise UsageError(
            f"{quoted(message_id)} is not a message id of 32 hexadecimal digits; "
            "`dledger message query` looks for other keys"
        )
    message_id = message_id.upper()
    missing = f"no message has the id {message_id}"
    if topic is None:
        messages = run_on_leaders(namesrv, lambda admin: find_by_id(admin, message_id))
        missing += "; if it is a producer's unique key, name its topic with --topic"
    else:
        messages = run_on_leaders(
            namesrv, lambda admin: find_by_unique_key(admin, topic, message_id)
        )
    _print_all(messages, missing, output)


@command.command(
    examples="""\
  dledger message query --topic orders --key 4711
  dledger message query --topic orders --key 4711 --since 1790000000000    (milliseconds)
"""
)
@click.option(
    "--topic",
    metavar="T",
    type=topic_name,
    required=True,
    shell_complete=topics,
    help="The topic.",
)
@click.option("--key", metavar="K", required=True, help="A key, or the unique key.")
@click.option(
    "--count",
    type=COUNT,
    default=QUERY_MESSAGES,
    metavar="N",
    help="At most this many (default: 64).",
)
@click.option(
    "--since",
    type=timestamp_ms,
    default="0",
    metavar=TIME,
    help=f"Stored at this time or later; {TIME_HELP}.",
)
@click.option(
    "--until",
    type=timestamp_ms,
    default=str(INT64_MAX),
    metavar=TIME,
    help="Stored at this time or earlier.",
)
@cluster_options
def query(
    *, topic: str, key: str, count: int, since: int, until: int, namesrv: str, output: Output
) -> None:
    """Print the messages of a topic with a key."""
    messages = run_on_leaders(
        namesrv,
        lambda admin: find_by_key(admin, topic, key, count=count, since=since, until=until),
    )
    _print_all(messages, f"topic {topic} has no message with key {key}", output)


@command.command(examples="  dledger message trace 7F0000010A5C2B1D4E8F000001020304\n")
@click.argument("message_id", metavar="ID", help="The message's unique key.")
@cluster_options
def trace(*, message_id: str, namesrv: str, output: Output) -> None:
    """Print the trace of a message, from clients whose message trace is on."""
    events = run_on_leaders(namesrv, lambda admin: trace_events(admin, message_id))
    if not events:
        raise CommandError(
            f"no client has sent a trace of a message with the unique key {message_id}; "
            "a msg_id is another name: `dledger message get` shows the unique key for it"
        )
    if output.document({"id": message_id, "events": [asdict(event) for event in events]}):
        return
    rows = [
        (
            None if event.time_ms is None else _iso(event.time_ms),
            EVENTS[event.kind],
            event.group,
            event.cost_ms,
            event.outcome or OUTCOMES[event.success],
            event.retries,
        )
        for event in events
    ]
    print_table(("TIME", "EVENT", "GROUP", "MS", "OUTCOME", "RETRIES"), rows)


def _iso(milliseconds: int) -> str:
    """The time as ISO 8601, for any number that a client sent."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def _print_all(messages: list[ReceivedMessage], missing: str, output: Output) -> None:
    if not messages:
        raise CommandError(missing)
    for message in messages:
        _print(message, output)


def _print(message: ReceivedMessage, output: Output) -> None:
    try:
        document = message_json(message.record, message.body)
    except UndecodableBodyError as error:
        raise CommandError(f"message {message.message_id}: {error}") from error
    if output.document(document):
        return
    body = document.pop("body", None)
    document["keys"] = " ".join(document["keys"])
    for key, value in document.items():
        lines = (
            [f"{name}={each}" for name, each in value.items()] if key == "properties" else [value]
        )
        for name, line in zip_longest([key], lines, fillvalue=""):
            print(f"{name:<16} {line}")
    print("body             ", end="", flush=True)
    if body is None:
        body = f"(base64) {document['body_base64']}"
    sys.stdout.write(f"{body}\n")
