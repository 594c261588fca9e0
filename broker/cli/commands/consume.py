"""``dledger consume``: prints the messages of a topic."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from broker.cli.terminal.client_session import run_session
from broker.cli.terminal.command_error import CommandError, UsageError
from broker.cli.terminal.name_arguments import checked, group_name, topic_name
from broker.cli.terminal.numbers import COUNT, seconds
from broker.cli.terminal.options import json_option, namesrv_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from broker.cli.terminal.standard_streams import drop_output
from broker.cli.terminal.time_arguments import TIME, TIME_HELP, place_in_time
from broker.client.consumer.consumer import Consumer
from broker.client.consumer.fetcher import StartFrom
from broker.client.consumer.message_selector import Sql
from broker.client.errors import UndecodableBodyError
from broker.client.message import Bytes
from broker.client.received_message import PulledBatch
from broker.delivery.message_json import message_json
from broker.filter.subscription import ExpressionError, tag_codes
from store.errors import CorruptRecordError

logger = logging.getLogger("dledger.consume")

EXAMPLES = """\
  dledger consume orders --group printers --from earliest --count 2
  dledger consume orders --group billing --tags "paid || refunded" --timeout 5 --json
  dledger consume orders --group watchers --broadcast --from latest
  dledger consume orders --group large --sql "amount > 100 AND TAGS <> 'test'"
"""


def _sql(text: str) -> Sql:
    try:
        return Sql(text)
    except ExpressionError as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be consumed, and how, as the options say."""

    topic: str
    group: str
    tags: str | None
    sql: Sql | None
    start_from: StartFrom
    count: int | None
    timeout: float | None
    broadcast: bool
    namesrv: str


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("topic", type=topic_name)
@click.option(
    "--group",
    metavar="G",
    type=group_name,
    required=True,
    help="The consumer group: its members share queues and offsets.",
)
@click.option(
    "--tags",
    metavar='"A||B"',
    type=checked(tag_codes, ExpressionError),
    help="Only messages with these tags.",
)
@click.option(
    "--sql",
    metavar="EXPRESSION",
    type=_sql,
    help="Only messages whose properties satisfy this SQL92 expression.",
)
@click.option(
    "--from",
    "start_from",
    metavar=f"earliest|latest|{TIME}",
    type=place_in_time,
    default="earliest",
    help="Where to begin queues of which the group has no offset: earliest (default), latest, "
    f"or a time; {TIME_HELP}.",
)
@click.option("--count", metavar="N", type=COUNT, help="End after this many messages.")
@click.option(
    "--timeout",
    metavar="S",
    type=seconds,
    help="End after this many seconds without a message, with 1 if the topic was not reached.",
)
@click.option(
    "--broadcast",
    is_flag=True,
    help="Get the messages of all queues, as every member does; no offset is kept.",
)
@namesrv_option
@json_option
def command(*, output: Output, **options: Any) -> int:
    request = Request(**options)
    if request.tags is not None and request.sql is not None:
        raise UsageError("--tags and --sql cannot stand together")
    try:
        return run_session("consume", lambda: _consume(request, output))
    except BrokenPipeError:  # the reader (head, say) has enough
        drop_output()
        return 0


async def _consume(args: Request, output: Output) -> int:
    progress = Progress("messages", asyncio.get_running_loop().time, args.count)
    async with Consumer(
        args.namesrv,
        args.group,
        {args.topic: args.sql or args.tags or "*"},
        start_from=args.start_from,
        broadcast=args.broadcast,
    ) as consumer:
        obstacle = None
        try:
            while args.count is None or progress.count < args.count:
                try:
                    async with asyncio.timeout(args.timeout):
                        batch = await consumer.next_batch()
                except TimeoutError:
                    obstacle = consumer.obstacle
                    break
                count = len(batch)
                if args.count is not None:
                    count = min(count, args.count - progress.count)
                _print(batch, count, output)
                # Only now: printing twice after a crash is better than not at all.
                consumer.acknowledge(batch.queue, batch.offset_after(count))
                progress.add(count)
        finally:
            progress.end()
        if not await consumer.commit():
            raise CommandError(
                "the offsets could not be committed: the group will get these messages again"
            )
    if obstacle is not None:
        raise obstacle
    return 0


def _print(batch: PulledBatch, count: int, output: Output) -> None:
    try:
        lines = _lines(batch, count, output)
    except UndecodableBodyError:
        lines = _lines_one_by_one(batch, count, output)
    except CorruptRecordError as error:
        queue = batch.queue
        raise CommandError(f"{queue.broker}, queue {queue.queue_id}: {error}") from error
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()


def _lines(batch: PulledBatch, count: int, output: Output) -> bytes:
    if output is not Output.TABLE:
        return b"".join(
            output.encode(message_json(message.record, message.body))
            for message in islice(batch, count)
        )
    return b"\n".join((*islice(batch.bodies(), count), b""))


def _lines_one_by_one(batch: PulledBatch, count: int, output: Output) -> bytes:
    """As :func:`_lines`, with the stored bytes of bodies that cannot be decompressed."""
    lines: list[Bytes] = []
    for message in islice(batch, count):
        shown = message
        try:
            shown.body  # noqa: B018 - decompresses it
        except UndecodableBodyError as error:
            logger.warning("message %s: %s; printed as stored", message.message_id, error)
            shown = message.undecoded()
        if output is Output.TABLE:
            lines += (shown.body, b"\n")
        else:
            lines.append(output.encode(message_json(shown.record, shown.body)))
    return b"".join(lines)
