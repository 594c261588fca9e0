"""Transactions: a message is published only if the program's own work succeeded.

The message is stored first, as a half message that no consumer sees. Then the program does its work
and sends the outcome (request 37). If the outcome does not arrive, because the program died or
there was no leader, the broker asks any producer of the group by check-backs (39).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from random import Random
from types import TracebackType
from typing import NamedTuple
from weakref import WeakValueDictionary

from broker.client.client_identity import ClientIdentity
from broker.client.config import ProducerConfig
from broker.client.errors import (
    AccessDeniedError,
    ClientError,
    IllegalMessageError,
    RefusedError,
    TransactionEndedError,
    refusal,
)
from broker.client.message import Message, MessageQueue, SendResult
from broker.client.producer.producer import Producer
from broker.client.producer.send_outcome_query import find_stored
from broker.client.received_message import ReceivedMessage
from broker.client.route.leader_calls import until_answered
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError, RequestError
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.system.wall_clock import system_clock_ms
from store.errors import StoreError
from store.message.properties import encode_properties

logger = logging.getLogger("dledger.client")

SYS_FLAG_PREPARED = 0x4
NOT_OPEN = "Find prepared transaction message failed"
"""The beginning of RocketMQ's remark about a transaction that is not open, or no longer."""


class Outcome(IntEnum):
    """The outcome of a transaction; the values are RocketMQ's bits of the system flag."""

    UNKNOWN = 0
    """Not decided yet; the broker asks again later."""
    COMMIT = 8
    ROLLBACK = 12


Check = Callable[[ReceivedMessage], Awaitable[Outcome]]
"""Returns the outcome of a half message's transaction, from the program's own records. The message
may be of another producer of the group. If this raises, the broker asks again later. It is not
called twice at the same time for one message."""


class _Handle(NamedTuple):
    """Identifies a half message; producers in other languages may send none with a unique key."""

    broker: str
    position: str


class Transaction:
    """One message of a :class:`TransactionProducer`. As a context manager it begins, and commits at
    the end of the block, or rolls back if the block raises an error.
    """

    def __init__(
        self, producer: TransactionProducer, message: Message, queue: MessageQueue | None
    ) -> None:
        self._producer = producer
        self.message = message
        self.queue = queue
        self.result: SendResult | None = None
        """The result of storing the half message, once it is stored."""
        self.outcome: Outcome | None = None
        """The program's decision."""

    async def begin(self) -> None:
        """Stores the half message. Raises as :meth:`Producer.send`. After an error nothing is
        published, unless the half message was stored and ``check`` commits it."""
        self.result = await self._producer.begin(self)

    async def commit(self) -> None:
        """Publishes the message. Raises :class:`TransactionEndedError` if it was rolled back, and
        another :class:`ClientError` if the outcome is unknown. Then the broker will ask; the call
        may also be repeated.
        """
        await self._end(Outcome.COMMIT)

    async def rollback(self) -> None:
        """Drops the message. Raises as :meth:`commit`."""
        await self._end(Outcome.ROLLBACK)

    async def __aenter__(self) -> Transaction:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.outcome is not None:
            return
        if kind is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except (CallError, ClientError) as failure:  # the block's own error is raised
            logger.warning("a transaction was not rolled back, the broker will ask: %s", failure)

    async def _end(self, outcome: Outcome) -> None:
        if self.result is None:
            raise TransactionEndedError("the transaction was not begun")
        if self.outcome not in {None, outcome}:
            raise TransactionEndedError("the transaction has already ended with the other outcome")
        self.outcome = outcome
        await self._producer.end(self, self.result, outcome)


class TransactionProducer(Producer):
    """A producer whose messages may be transactions::

        async with TransactionProducer("127.0.0.1:9876", check, config) as producer:
            async with producer.transaction(Message("payments", b"12 EUR")):
                book()  # published if this raises nothing

    The producers of a group answer for each other's transactions. So all producers of
    ``config.group`` should have the same records. While the work of another producer may still run,
    ``check`` returns :attr:`Outcome.UNKNOWN`. For its own blocks that still run, this producer does
    not answer. Brokers roll a transaction back after ``transaction_check_max`` check-backs without
    an answer (15, 30 s apart), so a block should not run longer.
    """

    def __init__(
        self,
        name_servers: str,
        check: Check,
        config: ProducerConfig | None = None,
        *,
        wall_clock: Callable[[], int] = system_clock_ms,
        rng: Random | None = None,
        identity: ClientIdentity | None = None,
    ) -> None:
        super().__init__(name_servers, config, wall_clock=wall_clock, rng=rng, identity=identity)
        self._check = check
        self._open: WeakValueDictionary[str, Transaction] = WeakValueDictionary()
        """Transactions with work in progress, by unique key: only that work decides. The references
        are weak: if the program drops a transaction, ``check`` decides."""
        self._checks: dict[_Handle, asyncio.Task[None]] = {}
        """The half messages for which ``check`` runs."""
        self._handlers[int(RequestCode.CHECK_TRANSACTION_STATE)] = self._asked

    def transaction(self, message: Message, queue: MessageQueue | None = None) -> Transaction:
        """A transaction for ``message``, to ``queue`` or to the next queue in turn."""
        return Transaction(self, message, queue)

    async def close(self) -> None:
        """As :meth:`Producer.close`; the broker will ask about open transactions."""
        checks = list(self._checks.values())
        for task in checks:
            task.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        await super().close()

    # Called by transactions.

    async def begin(self, transaction: Transaction) -> SendResult:
        """Stores the half message."""
        message = transaction.message
        if message.delay_level > 0:
            raise IllegalMessageError("the message of a transaction cannot have a delay level")
        added = encode_properties({"TRAN_MSG": "true", "PGROUP": self._config.group})
        delivery = self._delivery(
            message.with_properties(added), transaction.queue, sys_flag=SYS_FLAG_PREPARED
        )
        self._open[delivery.first_key] = transaction
        self._send_dispatcher.begin(delivery)
        try:
            result = await delivery.future
            leader = {result.queue.broker: delivery.address}
            await self._heartbeats.join(message.topic, leader, self._config.request_seconds)
        except (asyncio.CancelledError, CallError, ClientError):
            self._open.pop(delivery.first_key, None)
            raise
        return result

    async def end(self, transaction: Transaction, result: SendResult, outcome: Outcome) -> None:
        """Sends the outcome until the leader has committed it."""
        topic, broker = transaction.message.topic, result.queue.broker
        queue = result.queue._replace(topic=topic)
        message_id = result.message_ids[0]
        try:
            ext = {
                "producerGroup": self._config.group,
                "tranStateTableOffset": str(result.queue_offset),
                "commitLogOffset": str(int(message_id[-16:], 16)),
                "commitOrRollback": str(int(outcome)),
                "fromTransactionCheck": "false",
                "msgId": result.first_unique_key,
                "transactionId": result.first_unique_key,
            }
            await self._end(queue, ext, outcome, result.first_unique_key)
        finally:
            self._open.pop(result.first_unique_key, None)
        logger.debug("%s: the transaction at %d has ended", broker, result.queue_offset)

    async def _end(
        self, queue: MessageQueue, ext: dict[str, str], outcome: Outcome, key: str
    ) -> None:
        await until_answered(
            self._routes,
            queue,
            lambda address: self._say(address, queue.topic, ext, outcome, key),
            seconds=self._config.deadline_seconds,
            operation=f"the end of a transaction of {queue.topic}",
        )

    async def _say(
        self, address: str, topic: str, ext: dict[str, str], outcome: Outcome, key: str
    ) -> None:
        answer = await self._remoting.invoke(
            address, RequestCode.END_TRANSACTION, ext, timeout=self._config.request_seconds
        )
        if answer.code == ResponseCode.SUCCESS:
            return
        refused = refusal(address, answer.code, answer.remark)
        if answer.code != ResponseCode.SYSTEM_ERROR or NOT_OPEN not in (answer.remark or ""):
            raise refused
        await self._check_ended(address, topic, outcome, key, refused)

    async def _check_ended(
        self, address: str, topic: str, outcome: Outcome, key: str, refused: RefusedError
    ) -> None:
        """The transaction is not open any more: an earlier try without an answer, or the answer to
        a check-back, has ended it. A look-up of the published message shows the outcome."""
        try:
            found = await find_stored(
                self._remoting,
                address,
                topic,
                key,
                record_sizes=(0,),
                seconds=self._config.request_seconds,
            )
        except AccessDeniedError:
            raise refused from None  # the account may send but not read
        if (found is not None) is not (outcome is Outcome.COMMIT):
            how = "rolled back" if found is None else "committed"
            raise TransactionEndedError(f"the transaction was {how} already: {refused}")

    # Requests of brokers.

    def _asked(self, connection: Connection, request: Frame) -> None:
        """Request 39. It has the half message as consumers would see it."""
        ext = {
            "producerGroup": self._config.group,
            "tranStateTableOffset": ext_str(request, "tranStateTableOffset"),
            "commitLogOffset": ext_str(request, "commitLogOffset"),
            "fromTransactionCheck": "true",
            "msgId": ext_str(request, "msgId"),
            "transactionId": ext_str(request, "transactionId", ""),
        }
        broker = self._heartbeats.broker_at(connection.remote_address)
        half = _received(broker, request.body)
        handle = _Handle(broker, ext["commitLogOffset"])
        if half.unique_key in self._open or handle in self._checks:
            return
        task = self._loop.create_task(self._answer(connection, half, ext))
        self._checks[handle] = task
        task.add_done_callback(partial(self._answered, handle, half))

    async def _answer(
        self, connection: Connection, half: ReceivedMessage, ext: dict[str, str]
    ) -> None:
        outcome = await self._check(half)
        told = {**ext, "commitOrRollback": str(int(outcome))}
        if not connection.is_closed:
            connection.push(RequestCode.END_TRANSACTION, told)
        elif outcome is not Outcome.UNKNOWN:  # its broker may lead no more
            with suppress(CallError, ClientError):  # then the leader asks again
                await self._end(half.queue, told, outcome, half.unique_key)

    def _answered(self, handle: _Handle, half: ReceivedMessage, task: asyncio.Task[None]) -> None:
        del self._checks[handle]
        if not task.cancelled() and (fault := task.exception()) is not None:
            key = half.unique_key
            logger.error("the check of transaction %s failed", key, exc_info=fault)


def _received(broker: str, body: bytes) -> ReceivedMessage:
    """The half message in a request 39. Raises
    :class:`~broker.remoting.protocol.errors.RequestError`.
    """
    try:
        first = ReceivedMessage(MessageQueue("", broker, 0), 0, memoryview(body), 0)
        record = first.record
    except StoreError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"the half message cannot be read: {error}"
        ) from None
    queue = MessageQueue(record.topic, broker, record.queue_id)
    return ReceivedMessage(queue, record.queue_offset, memoryview(body), 0)
