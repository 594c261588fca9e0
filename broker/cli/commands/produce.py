"""``dledger produce``: one message for each line of stdin."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from broker.cli.commands.name_completion import topics
from broker.cli.terminal.client_session import run_session
from broker.cli.terminal.line_reader import LineReader
from broker.cli.terminal.name_arguments import topic_name
from broker.cli.terminal.numbers import COUNT, WholeRange, seconds
from broker.cli.terminal.options import DIRECTORY, cluster_options
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from broker.cli.terminal.standard_streams import drop_output, unwritable
from broker.cli.terminal.time_arguments import TIME_HELP, future_ms
from broker.client.config import ProducerConfig
from broker.client.errors import ClientError
from broker.client.message import (
    BODY_SIZE_MAX,
    PROPERTY_DELAY,
    PROPERTY_DELIVER_AT,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    Message,
    MessageQueue,
    SendResult,
)
from broker.client.producer.pipeline import BATCH_MESSAGES, Pipeline
from broker.client.producer.producer import Producer
from broker.command_error import CommandError, UsageError
from broker.remoting.protocol.errors import CallError
from store.counted import counted
from store.message.properties import encode_properties
from store.quoting import quoted

EXAMPLES = """\
  printf 'one\\ntwo\\n' | dledger produce orders
  dledger produce orders --tag paid --key 4711 < lines.txt
  dledger produce orders --order-by customer --key-from id --json < orders.jsonl
  dledger produce orders --property region=eu --deliver-at 10m --file letter.pdf
"""

TIMEOUT_SECONDS = 60.0
DELAY_LEVEL_MAX = 18
SYSTEM_PROPERTIES = {PROPERTY_DELAY, PROPERTY_KEYS, PROPERTY_TAGS}


def _property(text: str) -> str:
    try:
        encode_properties({"": text})
    except ValueError:
        raise ValueError(
            f"{text!r} cannot be stored: it has the character 0x01 or 0x02, or is not UTF-8"
        ) from None
    return text


def _key_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{quoted(text)} is not NAME=VALUE")
    if name in SYSTEM_PROPERTIES:
        raise ValueError(f"{name} has its own option")
    return _property(name), _property(value)


@dataclass(frozen=True, slots=True)
class Request:
    """The options: what to send, and how."""

    topic: str
    tag: str
    key: str
    delay_level: int
    order_by: str | None
    batch: int
    timeout: float
    namesrv: str
    properties: dict[str, str]
    key_from: str | None
    queue: int | None
    files: tuple[Path, ...]


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("topic", type=topic_name, shell_complete=topics)
@click.option("--tag", metavar="T", type=_property, default="", help="The tag of every message.")
@click.option(
    "--key", metavar="K", type=_property, default="", help="Its key, or keys separated by spaces."
)
@click.option(
    "--delay-level",
    metavar="N",
    type=WholeRange(1, DELAY_LEVEL_MAX),
    help="Deliver later: 1 is 1 s, 4 is 30 s, 18 is 2 h.",
)
@click.option(
    "--order-by",
    metavar="FIELD",
    help="Lines are JSON objects; those with the same value of FIELD stay in order.",
)
@click.option(
    "--key-from",
    metavar="FIELD",
    help="Lines are JSON objects; the value of FIELD is the key of the message.",
)
@click.option(
    "--property",
    "properties",
    metavar="K=V",
    type=_key_and_value,
    multiple=True,
    help="A property of every message; several may be given.",
)
@click.option(
    "--deliver-at",
    metavar="TIME",
    type=future_ms,
    help=f"Deliver at this time; {TIME_HELP.replace('as long ago as', 'in')}.",
)
@click.option("--queue", metavar="N", type=WholeRange(0), help="Send only to queues with this id.")
@click.option(
    "--file",
    "files",
    metavar="FILE",
    type=DIRECTORY,
    multiple=True,
    help="Send this file as one message instead of lines; several may be given.",
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
@cluster_options
def command(
    *,
    delay_level: int | None,
    deliver_at: int | None,
    properties: tuple[tuple[str, str], ...],
    output: Output,
    **options: Any,
) -> int:
    every = dict(properties)
    if deliver_at is not None:
        if delay_level is not None:
            raise UsageError("--delay-level and --deliver-at cannot be used together")
        every[PROPERTY_DELIVER_AT] = str(deliver_at)
    request = Request(delay_level=delay_level or 0, properties=every, **options)
    if request.key and request.key_from is not None:
        raise UsageError("--key and --key-from cannot be used together")
    for path in request.files:
        if not path.is_file():
            raise UsageError(f"{path} does not exist, or is not a file")
    if request.files and (request.order_by or request.key_from) is not None:
        raise UsageError("--file sends whole files: omit --order-by and --key-from")
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
            await _queues(producer, args),
            stored,
            ordered_by_key=args.order_by is not None,
            batch_messages=args.batch,
        )
        try:
            await _feed(args, reader, pipeline)
        except BrokenPipeError as error:
            drop_output()
            raise _incomplete(progress, reader, "the output is closed") from error
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
        f"{counted(progress.count, 'message')} acknowledged in {progress.seconds:.2f} s "
        f"({progress.rate:,.0f}/s)",
        file=sys.stderr,
    )
    return 0


def _incomplete(progress: Progress, reader: LineReader, why: str) -> CommandError:
    return CommandError(f"{_acknowledged(progress, reader)}, then: {why}")


def _acknowledged(progress: Progress, reader: LineReader) -> str:
    return f"{progress.count} of {reader.count} lines are acknowledged"


async def _queues(producer: Producer, args: Request) -> Sequence[MessageQueue]:
    queues = await producer.queues(args.topic)
    if args.queue is None:
        return queues
    chosen = [each for each in queues if each.queue_id == args.queue]
    if not chosen:
        raise UsageError(f"{args.topic} has no queue {args.queue} that can be written")
    return chosen


async def _feed(args: Request, reader: LineReader, pipeline: Pipeline) -> None:
    """Sends all lines. If one cannot be read, those before it are still sent."""
    kind = _message(args, args.key)
    try:
        if args.files:
            for path in args.files:
                reader.count += 1  # a file counts as a line
                await pipeline.put([kind.with_body(_read_file(path))])
        while not args.files and (lines := await reader.read()):
            if args.order_by is None and args.key_from is None:
                await pipeline.put([kind.with_body(line) for line in lines])
                continue
            for number, line in enumerate(lines, reader.count - len(lines) + 1):
                fields = _fields(line, number)
                message = kind.with_body(line)
                if args.key_from is not None:
                    message = _message(args, _field(fields, args.key_from, number), line)
                if args.order_by is None:
                    await pipeline.put([message])
                else:
                    await pipeline.put_ordered(message, _field(fields, args.order_by, number))
    except CommandError:
        await pipeline.drain()
        raise
    await pipeline.drain()


def _message(args: Request, key: str, body: bytes = b"") -> Message:
    return Message(
        args.topic,
        body,
        tags=args.tag,
        keys=key,
        delay_level=args.delay_level,
        properties=args.properties,
    )


def _read_file(path: Path) -> bytes:
    body = path.read_bytes()
    if len(body) > BODY_SIZE_MAX:
        raise CommandError(f"{path} has {len(body)} bytes, and a message may have {BODY_SIZE_MAX}")
    return body


def _fields(line: bytes, number: int) -> dict[str, Any]:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise CommandError(
            f"line {number} is not JSON ({error}), as --order-by and --key-from require"
        ) from None
    if not isinstance(document, dict):
        raise CommandError(f"line {number} is not a JSON object")
    return document


def _field(document: dict[str, Any], field: str, number: int) -> str:
    if field not in document:
        raise CommandError(f"line {number} is not a JSON object with the field {field}")
    value = document[field]
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _acknowledgements(result: SendResult) -> Iterator[dict[str, object]]:
    """One document for each message of an acknowledged request.

    Other brokers may give only the id of the first message. Then the unique keys replace the other
    ids: messages can be found by them, too.
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
