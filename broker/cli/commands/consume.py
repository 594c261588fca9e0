"""``dledger consume``: prints the messages of a topic, for a group or without one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import click

from broker.cli.commands.name_completion import groups, topics
from broker.cli.terminal.client_session import run_session
from broker.cli.terminal.message_printer import (
    TOGETHER,
    Limits,
    MessageFormat,
    MessagePrinter,
    format_option,
    print_messages,
)
from broker.cli.terminal.name_arguments import checked, group_name, topic_name
from broker.cli.terminal.numbers import COUNT, WholeRange, seconds
from broker.cli.terminal.options import cluster_options
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from broker.cli.terminal.standard_streams import drop_output
from broker.cli.terminal.time_arguments import TIME, TIME_HELP, place_in_time, timestamp_ms
from broker.client.consumer.consumer import Consumer
from broker.client.consumer.fetcher import StartFrom
from broker.client.consumer.message_selector import Sql
from broker.client.received_message import PulledBatch
from broker.cluster_admin.admin_client import AdminClient, run_admin
from broker.cluster_admin.peeking import Peek, Window
from broker.command_error import CommandError, UsageError
from broker.filter.subscription import ALL, ExpressionError, tag_codes
from broker.remoting.protocol.ext_fields import INT64_MAX
from store.errors import CorruptRecordError

EXAMPLES = """\
  dledger consume orders --group printers --from earliest --count 2
  dledger consume orders --group billing --tags "paid || refunded" --timeout 5 --json
  dledger consume orders --group watchers --broadcast --from latest
  dledger consume orders --group large --sql "amount > 100 AND TAGS <> 'test'"
  dledger consume orders --last 10                    only looks, and leaves no trace
  dledger consume orders --since 1h --until 30m --format '%t %q %o %T: %s\\n'
  dledger consume orders --queue 3 --offset 4711 --count 1 --json
  dledger consume orders --from latest --follow
"""


def _sql(text: str) -> Sql:
    try:
        return Sql(text)
    except ExpressionError as error:
        raise ValueError(str(error)) from None


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("topic", type=topic_name, shell_complete=topics)
@click.option(
    "--group",
    metavar="G",
    type=group_name,
    shell_complete=groups,
    help="The consumer group: its members share queues and offsets. Without a group the command "
    "prints the present messages and ends; brokers keep no trace of it.",
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
    "--since",
    "start_from",
    metavar=f"earliest|latest|{TIME}",
    type=place_in_time,
    default="earliest",
    help="Where to begin; with a group, in queues without its offset: earliest (default), "
    f"latest, or a time; {TIME_HELP}.",
)
@click.option("--count", metavar="N", type=COUNT, help="End after this many messages.")
@click.option(
    "--timeout",
    metavar="S",
    type=seconds,
    help="End after this many seconds without a message; exit code 1 if the topic was not reached.",
)
@click.option(
    "--broadcast",
    is_flag=True,
    help="Get all messages, as every member then does; no offset is kept.",
)
@click.option(
    "--until", "until_ms", metavar=TIME, type=timestamp_ms, help="Without a group: the last time."
)
@click.option(
    "--last", metavar="N", type=COUNT, help="Without a group: the last N messages, before filters."
)
@click.option(
    "--queue", metavar="N", type=WholeRange(0), help="Without a group: only queues of this id."
)
@click.option(
    "--offset",
    metavar="N",
    type=WholeRange(0, INT64_MAX),
    help="Without a group: the first offset in each queue.",
)
@click.option("--follow", is_flag=True, help="Without a group: wait for more messages.")
@format_option
@cluster_options
def command(
    *,
    topic: str,
    group: str | None,
    tags: str | None,
    sql: Sql | None,
    start_from: StartFrom,
    count: int | None,
    timeout: float | None,
    broadcast: bool,
    follow: bool,
    layout: MessageFormat | None,
    namesrv: str,
    output: Output,
    **place: int | None,
) -> int:
    if tags is not None and sql is not None:
        raise UsageError("--tags and --sql cannot be used together")
    wanted = sql or tags or ALL
    printer = MessagePrinter(output, layout)
    try:
        if group is not None:
            if follow or any(each is not None for each in place.values()):
                raise UsageError(
                    "--queue, --offset, --last, --until and --follow work without a group: omit "
                    "--group or these"
                )
            subscribed, limits = {topic: wanted}, Limits(count, timeout)
            join = partial(
                Consumer, namesrv, group, subscribed, start_from=start_from, broadcast=broadcast
            )
            return run_session("consume", lambda: _consume(join, limits, printer))
        if broadcast:
            raise UsageError("--broadcast needs --group")
        if place["offset"] is not None and place["last"] is not None:
            raise UsageError("--offset and --last cannot be used together")
        if follow and (place["last"] or place["until_ms"]) is not None:
            raise UsageError("--follow has no end: omit --last and --until")
        window = Window(
            start_from, place["offset"], place["last"], place["until_ms"], place["queue"], wanted
        )

        limits = Limits(count, timeout if follow else None)

        async def peek(admin: AdminClient) -> None:
            looked = Peek(admin, topic, window)
            if follow:
                await print_messages(looked.follow(), printer, limits, at_once=1)
            else:
                await print_messages(looked.messages(), printer, limits, at_once=TOGETHER)

        run_admin(namesrv, peek)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        drop_output()
    return 0


async def _consume(join: Callable[[], Consumer], limits: Limits, printer: MessagePrinter) -> int:
    progress = Progress("messages", asyncio.get_running_loop().time, limits.count)
    async with join() as consumer:
        obstacle = None
        with progress:
            while limits.count is None or progress.count < limits.count:
                try:
                    async with asyncio.timeout(limits.timeout):
                        batch = await consumer.next_batch()
                except TimeoutError:
                    obstacle = consumer.obstacle
                    break
                count = len(batch)
                if limits.count is not None:
                    count = min(count, limits.count - progress.count)
                _print(batch, count, printer)
                # Only now: after a crash, printing twice is better than not at all.
                consumer.acknowledge(batch.queue, batch.offset_after(count))
                progress.add(count)
        if not await consumer.commit():
            raise CommandError(
                "the offsets could not be committed: the group will get these messages again"
            )
    if obstacle is not None:
        raise obstacle
    return 0


def _print(batch: PulledBatch, count: int, printer: MessagePrinter) -> None:
    try:
        printer.print_batch(batch, count)
    except CorruptRecordError as error:
        queue = batch.queue
        raise CommandError(f"{queue.broker}, queue {queue.queue_id}: {error}") from error
