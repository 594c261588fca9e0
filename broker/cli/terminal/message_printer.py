"""Prints messages: bodies, documents, or lines in the user's format."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice

import click

from broker.cli.terminal.output import Output
from broker.cli.terminal.progress import Progress
from broker.client.errors import UndecodableBodyError
from broker.client.message import Bytes
from broker.client.received_message import PulledBatch, ReceivedMessage
from broker.delivery.message_json import message_json
from store.quoting import quoted

TOGETHER = 256
"""The number of present messages that are printed at once."""

logger = logging.getLogger("dledger.consume")

FIELDS: dict[str, tuple[str, Callable[[ReceivedMessage], object]]] = {
    "t": ("topic", lambda message: message.topic),
    "b": ("broker", lambda message: message.queue.broker),
    "q": ("queue", lambda message: message.queue.queue_id),
    "o": ("offset", lambda message: message.queue_offset),
    "i": ("message id", lambda message: message.message_id),
    "u": ("unique key", lambda message: message.unique_key),
    "k": ("keys", lambda message: " ".join(message.keys)),
    "g": ("tags", lambda message: message.tags),
    "h": ("properties", lambda message: ",".join(map("=".join, message.properties.items()))),
    "T": ("store time in ms", lambda message: message.store_timestamp),
    "B": ("born time in ms", lambda message: message.born_timestamp),
    "r": ("number of earlier attempts", lambda message: message.reconsume_times),
    "S": ("size of the body in bytes", lambda message: len(message.body)),
    "s": ("body", lambda message: message.body),
}
"""The fields by letter behind `%`. Letters that kcat also has mean the same."""

FORMAT_HELP = (
    "Print each message in this format. "
    + " ".join(f"%{letter} is its {what}." for letter, (what, _) in FIELDS.items())
    + " %{NAME} is a property, %% a percent sign. \\n, \\t, \\0 and \\\\ are as in C."
)
_TOKEN = re.compile(r"%(?:\{(?P<property>[^}]*)\}|(?P<letter>.?))|\\(?P<escape>.?)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class MessageFormat:
    """A layout such as ``%t %q %o: %s\\n``. Raises ``ValueError`` for an unknown field."""

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | Callable[[ReceivedMessage], object]] = []
        end = 0
        for token in _TOKEN.finditer(text):
            self._parts += (text[end : token.start()].encode(), _part(token))
            end = token.end()
        self._parts.append(text[end:].encode())

    def render(self, message: ReceivedMessage) -> bytes:
        """The message in this format. Raises
        :class:`~broker.client.errors.UndecodableBodyError`."""
        return b"".join(
            part if isinstance(part, bytes) else _as_bytes(part(message)) for part in self._parts
        )


def _part(token: re.Match[str]) -> bytes | Callable[[ReceivedMessage], object]:
    name, letter, escape = token["property"], token["letter"], token["escape"]
    if name is not None:
        return lambda message: message.properties.get(name, "")
    if letter is not None and letter in FIELDS:
        return FIELDS[letter][1]
    if letter == "%":
        return b"%"
    if escape is not None and escape in _ESCAPES:
        return _ESCAPES[escape].encode()
    known = ", ".join(f"%{each}" for each in FIELDS)
    raise ValueError(f"{quoted(token[0])} is not a field: there are {known}, %{{NAME}} and %%")


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


format_option = click.option(
    "--format", "layout", metavar="TEXT", type=MessageFormat, help=FORMAT_HELP
)


class MessagePrinter:
    """Prints messages in the form of the options."""

    def __init__(self, output: Output, layout: MessageFormat | None) -> None:
        self._output = output
        self._layout = layout

    def print_batch(self, batch: PulledBatch, count: int) -> None:
        """Prints the first ``count`` messages. Raises
        :class:`~store.errors.CorruptRecordError`."""
        if self._output is Output.TABLE and self._layout is None:
            try:  # much faster than message by message
                _write(b"\n".join((*islice(batch.bodies(), count), b"")))
            except UndecodableBodyError:
                pass
            else:
                return
        self.print_all(islice(batch, count))

    def print_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Prints the messages; a body that cannot be decompressed is printed as stored."""
        _write(b"".join(map(self._encode, messages)))

    def _encode(self, message: ReceivedMessage) -> bytes:
        try:
            message.body  # noqa: B018 - decompresses it
        except UndecodableBodyError as error:
            logger.warning("message %s: %s; printed as stored", message.message_id, error)
            message = message.undecoded()
        if self._layout is not None:
            return self._layout.render(message)
        if self._output is Output.TABLE:
            return message.body + b"\n"
        return self._output.encode(message_json(message.record, message.body))


@dataclass(frozen=True, slots=True)
class Limits:
    """The command ends after so many messages, or after so many seconds without one."""

    count: int | None
    timeout: float | None


async def print_messages(
    messages: AsyncGenerator[ReceivedMessage],
    printer: MessagePrinter,
    limits: Limits,
    *,
    at_once: int,
) -> None:
    """Prints messages, ``at_once`` at a time."""
    progress = Progress("messages", asyncio.get_running_loop().time, limits.count)
    together: list[ReceivedMessage] = []
    async with aclosing(messages):
        try:
            while limits.count is None or progress.count < limits.count:
                async with asyncio.timeout(limits.timeout):
                    message = await anext(messages)
                together.append(message)
                progress.add()
                if len(together) >= at_once:
                    printer.print_all(together)
                    together.clear()
        except (TimeoutError, StopAsyncIteration):
            pass
        finally:
            progress.end()
            printer.print_all(together)


def _write(text: Bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
