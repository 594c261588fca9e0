"""``dledger consume``: prints the messages of a topic."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from itertools import islice

import orjson

from broker.cli.terminal.client_session import run_session
from broker.cli.terminal.command_error import CommandError
from broker.cli.terminal.name_arguments import checked, group_name, topic_name
from broker.cli.terminal.options import (
    add_json,
    add_namesrv,
    positive,
    seconds,
)
from broker.cli.terminal.progress import Progress
from broker.cli.terminal.standard_streams import drop_output
from broker.cli.terminal.time_arguments import TIME, TIME_HELP, place_in_time
from broker.client.consumer.consumer import Consumer
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", type=topic_name)
    parser.add_argument(
        "--group",
        metavar="G",
        type=group_name,
        required=True,
        help="the consumer group: its members share queues and offsets",
    )
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument(
        "--tags",
        metavar='"A||B"',
        type=checked(tag_codes, ExpressionError),
        default="*",
        help="only messages with these tags",
    )
    wanted.add_argument(
        "--sql",
        metavar="EXPRESSION",
        type=_sql,
        help="only messages whose properties satisfy this SQL92 expression",
    )
    parser.add_argument(
        "--from",
        dest="start_from",
        metavar=f"earliest|latest|{TIME}",
        type=place_in_time,
        default="earliest",
        help="where to begin queues of which the group has no offset: earliest (default), latest, "
        f"or a time; {TIME_HELP}",
    )
    parser.add_argument("--count", metavar="N", type=positive, help="end after this many messages")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        help="end after this many seconds without a message, with 1 if the topic was not reached",
    )
    parser.add_argument(
        "--broadcast",
        action="store_true",
        help="get the messages of all queues, as every member does; no offset is kept",
    )
    add_namesrv(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    try:
        return run_session("consume", lambda: _consume(args))
    except BrokenPipeError:  # the reader (head, say) has enough
        drop_output()
        return 0


async def _consume(args: argparse.Namespace) -> int:
    progress = Progress("messages", asyncio.get_running_loop().time, args.count)
    async with Consumer(
        args.namesrv,
        args.group,
        {args.topic: args.sql or args.tags},
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
                _print(batch, count, as_json=args.json)
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


def _print(batch: PulledBatch, count: int, *, as_json: bool) -> None:
    try:
        lines = _lines(batch, count, as_json=as_json)
    except UndecodableBodyError:
        lines = _lines_one_by_one(batch, count, as_json=as_json)
    except CorruptRecordError as error:
        queue = batch.queue
        raise CommandError(f"{queue.broker}, queue {queue.queue_id}: {error}") from error
    sys.stdout.buffer.write(b"\n".join([*lines, b""]))
    sys.stdout.buffer.flush()


def _lines(batch: PulledBatch, count: int, *, as_json: bool) -> list[Bytes]:
    if as_json:
        return [
            orjson.dumps(message_json(message.record, message.body))
            for message in islice(batch, count)
        ]
    return list(islice(batch.bodies(), count))


def _lines_one_by_one(batch: PulledBatch, count: int, *, as_json: bool) -> list[Bytes]:
    """As :func:`_lines`, with the stored bytes of bodies that cannot be decompressed."""
    lines: list[Bytes] = []
    for message in islice(batch, count):
        shown = message
        try:
            shown.body  # noqa: B018 - decompresses it
        except UndecodableBodyError as error:
            logger.warning("message %s: %s; printed as stored", message.message_id, error)
            shown = message.undecoded()
        lines.append(
            orjson.dumps(message_json(shown.record, shown.body)) if as_json else shown.body
        )
    return lines


def _sql(text: str) -> Sql:
    try:
        return Sql(text)
    except ExpressionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
