"""``dledger produce``: one message for each line of stdin."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
import orjson

from broker.cli.terminal.client_session import run_session
from broker.cli.terminal.command_error import CommandError
from broker.cli.terminal.line_reader import LineReader
from broker.cli.terminal.name_arguments import topic_name
from broker.cli.terminal.numbers import COUNT, seconds
from broker.cli.terminal.options import json_option, namesrv_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from broker.cli.terminal.standard_streams import drop_output, unwritable
from broker.client.config import ProducerConfig
from broker.client.errors import ClientError
from broker.client.message import BODY_SIZE_MAX, Message, SendResult
from broker.client.producer.pipeline import BATCH_MESSAGES, Pipeline
from broker.client.producer.producer import Producer
from broker.remoting.protocol.errors import CallError
from store.message.properties import encode_properties

EXAMPLES = """\
  printf 'one\\ntwo\\n' | dledger produce orders
  dledger produce orders --tag paid --key 4711 < lines.txt
  dledger produce orders --order-by customer --json < orders.jsonl
"""

TIMEOUT_SECONDS = 60.0
DELAY_LEVEL_MAX = 18


def _property(text: str) -> str:
    try:
        encode_properties({"": text})
    except ValueError:
        raise ValueError(
            f"{text!r} cannot be stored: it has the character 0x01 or 0x02, or is not UTF-8"
        ) from None
    return text


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be sent, and how, as the options say."""

    topic: str
    tag: str
    key: str
    delay_level: int
    order_by: str | None
    batch: int
    timeout: float
    namesrv: str


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("topic", type=topic_name)
@click.option("--tag", metavar="T", type=_property, default="", help="The tag of every message.")
@click.option(
    "--key", metavar="K", type=_property, default="", help="Its key, or several with spaces."
)
@click.option(
    "--delay-level",
    metavar="N",
    type=click.IntRange(1, DELAY_LEVEL_MAX),
    help="Deliver later: 1 is 1 s, 4 is 30 s, 18 is 2 h.",
)
@click.option(
    "--order-by",
    metavar="FIELD",
    help="Lines are JSON objects, and those with the same value of FIELD stay in order.",
)
@click.option(
    "--batch",
    metavar="N",
    type=COUNT,
    default=BATCH_MESSAGES,
    help=f"The most messages in a request (default: {BATCH_MESSAGES}).",
)
@click.option(
    "--timeout",
    metavar="S",
    type=seconds,
    default=TIMEOUT_SECONDS,
    help=f"Give up a message after this many seconds (default: {TIMEOUT_SECONDS:g}).",
)
@namesrv_option
@json_option
def command(*, delay_level: int | None, output: Output, **options: Any) -> int:
    request = Request(delay_level=delay_level or 0, **options)
    return run_session("produce", lambda: _produce(request, output))


async def _produce(args: Request, output: Output) -> int:
    progress = Progress("messages acknowledged", asyncio.get_running_loop().time)

    def stored(result: SendResult, messages: Sequence[Message]) -> None:
        progress.add(len(messages))
        if output is not Output.TABLE:
            sys.stdout.buffer.write(b"".join(map(output.encode, _acknowledgements(result))))
            sys.stdout.buffer.flush()

    reader = LineReader(sys.stdin.fileno(), BODY_SIZE_MAX)
    config = ProducerConfig(deadline_seconds=args.timeout)
    async with Producer(args.namesrv, config) as producer:
        pipeline = Pipeline(
            producer,
            await producer.queues(args.topic),
            stored,
            ordered_by_key=args.order_by is not None,
            batch_messages=args.batch,
        )
        try:
            await _feed(args, reader, pipeline)
        except BrokenPipeError as error:
            drop_output()
            raise _incomplete(progress, reader, "nobody reads what is printed") from error
        except OSError as error:
            drop_output()
            raise _incomplete(progress, reader, unwritable(error) or str(error)) from error
        except asyncio.CancelledError:
            print(f"dledger produce: {_acknowledged(progress, reader)}", file=sys.stderr)
            raise
        except (CallError, ClientError, CommandError) as error:
            raise _incomplete(progress, reader, str(error)) from error
        finally:
            progress.end()
    print(
        f"{progress.count} messages acknowledged in {progress.seconds:.2f} s "
        f"({progress.rate:,.0f}/s)",
        file=sys.stderr,
    )
    return 0


def _incomplete(progress: Progress, reader: LineReader, why: str) -> CommandError:
    return CommandError(f"{_acknowledged(progress, reader)}, then: {why}")


def _acknowledged(progress: Progress, reader: LineReader) -> str:
    return f"{progress.count} of {reader.count} lines are acknowledged"


async def _feed(args: Request, reader: LineReader, pipeline: Pipeline) -> None:
    """Puts all lines in. If one fails, those before it are sent all the same."""
    kind = Message(args.topic, b"", tags=args.tag, keys=args.key, delay_level=args.delay_level)
    try:
        while lines := await reader.read():
            if args.order_by is None:
                await pipeline.put([kind.with_body(line) for line in lines])
                continue
            for number, line in enumerate(lines, reader.count - len(lines) + 1):
                key = _order_key(line, args.order_by, number)
                await pipeline.put_ordered(kind.with_body(line), key)
    except CommandError:
        await pipeline.drain()
        raise
    await pipeline.drain()


def _order_key(line: bytes, field: str, number: int) -> str:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise CommandError(f"line {number} is not JSON ({error}), as --order-by wants it") from None
    if not isinstance(document, dict) or field not in document:
        raise CommandError(f"line {number} is not a JSON object with the field {field}")
    value = document[field]
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _acknowledgements(result: SendResult) -> Iterator[dict[str, object]]:
    """One document for each message of an acknowledged request.

    Brokers of other makes may give only the id of the first message. Then the unique key stands in
    for the others' ids, by which they can be found as well.
    """
    message_ids = result.message_ids
    if len(message_ids) < result.message_count:
        message_ids += result.unique_keys[len(message_ids) :]
    for offset, message_id in enumerate(message_ids, result.queue_offset):
        yield {
            "msg_id": message_id,
            "queue_id": result.queue.queue_id,
            "queue_offset": offset,
            "broker": result.queue.broker,
        }
