"""The calls of producers: SendMessage, EndTransaction and RecallMessage."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice

from google.protobuf.message import Message as AnyMessage

from broker.context import BrokerContext
from broker.errors import ANSWERED, NOT_HERE, TransactionMismatchError
from broker.grpc.access import caller_of, publishes
from broker.grpc.call import Call, name_of
from broker.grpc.protocol.definition_pb2 import Code, Status, TransactionResolution
from broker.grpc.protocol.service_pb2 import (
    EndTransactionRequest,
    EndTransactionResponse,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from broker.grpc.received_messages import Received, received_messages
from broker.grpc.remote_client import parse_transaction_id, transaction_id
from broker.grpc.statuses import OK, BadCallError, PartlyStoredError, refusal_status
from broker.ingest.awaited_send import AwaitedSend
from broker.limits import GRPC
from broker.quotas.held_sends import HeldSends
from broker.quotas.throttle import FindCaller
from broker.security.authorize import Access
from broker.topics_and_groups import check_topic_name
from dledger.errors import OutcomeUnknownError
from dledger.settle import settle


class SendCalls:
    """Handles the calls of producers."""

    def __init__(self, context: BrokerContext, refusals: Counter[str]) -> None:
        """``refusals`` counts refused messages by reason."""
        self._context = context
        self._refusals = refusals
        self._held = HeldSends(GRPC.held_sends_max, GRPC.held_bytes_max)

    async def send(self, call: Call, request: SendMessageRequest) -> Sequence[AnyMessage]:
        """Each message is stored or refused separately; the common status is set if all are the
        same. An invalid call is refused as a whole."""
        if not 0 < len(request.messages) <= GRPC.batch_max:
            raise BadCallError(
                Code.BAD_REQUEST,
                f"a send has 1 to {GRPC.batch_max} messages, not {len(request.messages)}",
            )
        context = self._context
        now_ms, size_max = context.wall_clock(), context.config.max_message_size
        received = await received_messages(request.messages, now_ms, size_max, call.hold)
        caller = partial(caller_of, call)
        owes = self._owes(received, caller)
        with self._held.holding(_size(request, received)) if owes else nullcontext():
            sends = [self._submitted(each, call.born_host, caller) for each in received]
            results = await asyncio.gather(*(each.done for each in sends), return_exceptions=True)
        self._check_whole(results)
        entries = [self._entry(*each) for each in zip(received, sends, results, strict=True)]
        codes = {entry.status.code for entry in entries}
        status = entries[0].status if len(codes) == 1 else Status(code=Code.MULTIPLE_RESULTS)
        return [SendMessageResponse(status=status, entries=entries)]

    def _check_whole(self, results: Sequence[tuple[int, int] | BaseException]) -> None:
        """Raises if the call is to be retried as a whole: with the refusal of a leader that went if
        no message is stored, and otherwise so that the outcome counts as unknown. Messages that are
        stored must be recognised then."""
        unknown = [each for each in results if isinstance(each, OutcomeUnknownError)]
        not_here = [each for each in results if isinstance(each, NOT_HERE)]
        if not_here and not unknown and not any(isinstance(each, tuple) for each in results):
            raise not_here[0]
        if self._context.config.dedup_window_seconds:
            if unknown:
                raise unknown[0]
            if not_here:
                raise PartlyStoredError

    def _owes(self, messages: Iterable[Received], caller: FindCaller) -> bool:
        quotas = self._context.ingest.quotas
        if quotas is None:
            return False
        topics = {each.request.topic for each in messages}
        owes = [quotas.owes(caller(), topic) for topic in topics]  # each may raise
        return any(owes)

    def _submitted(self, message: Received, born_host: bytes, caller: FindCaller) -> AwaitedSend:
        send = AwaitedSend(self._context.loop, caller)
        try:
            self._context.ingest.submit(message.request, message.body, born_host, send)
        except ANSWERED as error:
            send.done.set_exception(error)
        return send

    def _entry(
        self, message: Received, send: AwaitedSend, result: tuple[int, int] | BaseException
    ) -> SendResultEntry:
        if isinstance(result, ANSWERED):
            status = refusal_status(result, self._refusals)
            return SendResultEntry(status=status, message_id=message.message_id)
        if isinstance(result, BaseException):
            raise result
        offset, position = result
        entry = SendResultEntry(status=OK, message_id=message.message_id, offset=offset)
        if send.recall_handle is not None:
            entry.recall_handle = send.recall_handle.at(position)
        if message.half:
            entry.transaction_id = transaction_id(offset, position)
        return entry

    async def end_transaction(
        self, _call: Call, request: EndTransactionRequest
    ) -> Sequence[AnyMessage]:
        """Commits or rolls back. Without a decision a check-back asks the producer again."""
        check_topic_name(name_of(request.topic))
        if request.resolution not in TransactionResolution.values():
            raise BadCallError(Code.BAD_REQUEST, f"there is no resolution {request.resolution}")
        named = parse_transaction_id(request.transaction_id)
        if named is None:
            raise TransactionMismatchError("the transaction id is not of this broker")
        if request.resolution == TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED:
            return [EndTransactionResponse(status=OK)]
        ended: asyncio.Future[None] = self._context.loop.create_future()
        self._context.transactions.end(
            *named,
            name_of(request.topic),
            request.message_id,
            commit=request.resolution == TransactionResolution.COMMIT,
            ended=partial(settle, ended, None),
            may=lambda topic: topic == name_of(request.topic),  # the permission was checked for it
        )
        await ended
        return [EndTransactionResponse(status=OK)]

    async def recall(self, _call: Call, request: RecallMessageRequest) -> Sequence[AnyMessage]:
        """Recalls a timed message."""
        check_topic_name(name_of(request.topic))
        recalled: asyncio.Future[str] = self._context.loop.create_future()
        self._context.recalls.recall(
            name_of(request.topic), request.recall_handle, partial(settle, recalled)
        )
        return [RecallMessageResponse(status=OK, message_id=await recalled)]


def _size(request: SendMessageRequest, received: Iterable[Received]) -> int:
    """The bytes of a send, after decompression."""
    pairs = zip(request.messages, received, strict=True)
    return request.ByteSize() + sum(len(made.body) - len(sent.body) for sent, made in pairs)


def send_access(request: SendMessageRequest) -> Iterable[Access]:
    """The permissions that a send needs. A send of more messages is refused anyway."""
    return publishes(message.topic for message in islice(request.messages, GRPC.batch_max))


def topic_access(request: EndTransactionRequest | RecallMessageRequest) -> Iterable[Access]:
    """The permissions that a producer of that topic needs."""
    return publishes([request.topic])
