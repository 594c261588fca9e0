"""Telemetry: a stream of each client in which both sides send commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from broker.context import BrokerContext
from broker.errors import ANSWERED, QuotaExceededError
from broker.grpc.call import Call
from broker.grpc.call_budget import CallBudget
from broker.grpc.clients import Clients, Session
from broker.grpc.dispatcher import Dispatcher
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.protocol.service_pb2 import TelemetryCommand
from broker.grpc.settings import answered_settings, settings_access
from broker.grpc.statuses import OK, BadCallError
from broker.limits import GRPC
from broker.security.authorize import DESCRIBE
from dledger.errors import BusyError

HEAR_OUT_SECONDS = 1.0
"""Pace: how long a client with a refused stream may take for its first command."""


class Telemetry:
    """Serves the streams of one broker."""

    def __init__(self, context: BrokerContext, dispatcher: Dispatcher, clients: Clients) -> None:
        self._context = context
        self._dispatcher = dispatcher
        self._clients = clients
        self._streams = 0
        self._refused = 0
        """Refused streams, which end after the client's first command."""

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return self._streams

    async def serve(
        self, call: Call, said: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Serves one stream to its end. A refusal is its last command.

        ``write`` is not called concurrently, and never after the end: grpcio would fail.
        """
        commands = _Commands(self._dispatcher.budget)
        session = Session(call, commands.send)
        self._streams += 1
        writer = self._context.loop.create_task(commands.write_all(write))
        try:
            begun = False
            try:
                session.call = self._checked(call)
                begun = True
                async for each in said:
                    await self._take(session, each)
            except ANSWERED as error:
                commands.refuse(TelemetryCommand(status=self._dispatcher.refused(error)))
                if not begun:
                    await self._hear_out(said)
            self._clients.closed(session)
            commands.end()
            await writer
        finally:
            self._streams -= 1
            writer.cancel()
            commands.close()
            self._clients.closed(session)

    async def _hear_out(self, said: AsyncIterator[bytes]) -> None:
        """Reads a refused stream until the client has sent its first command: a client that writes
        to an ended stream sees a failed write instead of the refusal."""
        if self._refused >= GRPC.refused_streams_max:
            return
        self._refused += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEAR_OUT_SECONDS):
                    await anext(aiter(said), None)
        finally:
            self._refused -= 1

    def _checked(self, call: Call) -> Call:
        if self._streams > GRPC.streams_max:
            raise QuotaExceededError(f"{GRPC.streams_max} clients are connected to this broker")
        if not call.client_id:
            raise BadCallError(Code.CLIENT_ID_REQUIRED, "x-mq-client-id is missing")
        return self._dispatcher.checked(call, lambda: DESCRIBE)

    async def _take(self, session: Session, body: bytes) -> None:
        """Handles a command; ends once the leader has it, so that a busy client is not read
        faster."""
        said = self._dispatcher.decoded(TelemetryCommand, body)
        assert isinstance(said, TelemetryCommand)  # noqa: S101 - as asked
        if said.HasField("settings"):
            if len(body) > GRPC.settings_bytes_max:
                raise BadCallError(
                    Code.BAD_REQUEST,
                    f"the settings have {len(body)} bytes, at most {GRPC.settings_bytes_max} fit",
                )
            settings = said.settings
            told = answered_settings(self._context, settings)
            session.call = self._dispatcher.checked(session.call, lambda: settings_access(settings))
            session.settings = body
            self._clients.opened(session)
            session.send(lambda: TelemetryCommand(status=OK, settings=told))
        elif self._clients.session_of(session.call) is None:
            return  # only who is known here was asked anything
        await self._clients.pass_on(session, body)


class _Commands:
    """The commands that wait for one client."""

    def __init__(self, budget: CallBudget) -> None:
        self._budget = budget
        self._waiting: asyncio.Queue[tuple[bytes, int] | None] = asyncio.Queue()
        """Each encoded, with its bytes that count in the budget."""
        self._bytes = 0
        self._unread = 0
        """Bytes that count, also of the command that is being written."""
        self._is_closed = False

    def send(self, command: Callable[[], TelemetryCommand]) -> None:
        """Sends a command; but a client that does not read gets no more, because commands are
        repeated, or not needed."""
        is_full = (
            self._waiting.qsize() >= GRPC.commands_max or self._bytes >= GRPC.command_bytes_max
        )
        if not is_full and not self._is_closed:
            encoded = command().SerializeToString()
            with suppress(BusyError):
                counted = self._budget.keep(len(encoded))
                self._unread += counted
                self._put(encoded, counted)

    def refuse(self, refusal: TelemetryCommand) -> None:
        """Sends the last command."""
        self._put(refusal.SerializeToString(), 0)

    def end(self) -> None:
        """No command follows."""
        self._waiting.put_nowait(None)

    async def write_all(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Writes the commands until the end."""
        while (each := await self._waiting.get()) is not None:
            encoded, counted = each
            self._bytes -= len(encoded)
            await write(encoded)
            self._give_back(counted)

    def close(self) -> None:
        """The client is gone. What the leader still sends is dropped: nobody would give it back."""
        self._is_closed = True
        self._give_back(self._unread)

    def _put(self, encoded: bytes, counted: int) -> None:
        self._bytes += len(encoded)
        self._waiting.put_nowait((encoded, counted))

    def _give_back(self, counted: int) -> None:
        self._unread -= counted
        self._budget.unread -= counted
