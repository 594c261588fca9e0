"""Ingest and delivery with tracing, otherwise as :mod:`broker.ingest.ingest` and
:mod:`broker.delivery.fetch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.trace import Span

from broker.delivery.fetch import Delivery, Done, Fetch, Fetched, FetchRequest
from broker.errors import REFUSALS, RefusedError
from broker.group_commit.pending_batch import StoredEarlier
from broker.ingest.ingest import Ingest
from broker.ingest.send_request import Sender, SendRequest
from broker.quotas.throttle import Caller
from broker.scheduled.recall_handle import RecallHandle
from broker.tracing.message_tracer import MessageTracer, fail
from dledger.errors import ProposeError
from store.errors import StoreError
from store.io.filesystem import Bytes


class TracedIngest(Ingest):
    """Makes a span for each request with a traced message."""

    def __init__(self, tracer: MessageTracer, **parts: Any) -> None:
        super().__init__(**parts)
        self._tracer = tracer

    def submit(self, request: SendRequest, body: Bytes, born_host: bytes, waiter: Sender) -> float:
        """See :class:`~broker.ingest.ingest.Ingest`."""
        send = self._tracer.begin_send(request.topic, request.properties)
        if send is None:
            return super().submit(request, body, born_host, waiter)
        traced = TracedSender(self._tracer, send, waiter)
        try:
            return super().submit(request, body, born_host, traced)
        except REFUSALS as error:
            traced.refused(error)
            raise

    def submit_batch(
        self, request: SendRequest, body: bytes, born_host: bytes, waiter: Sender
    ) -> float:
        """See :class:`~broker.ingest.ingest.Ingest`."""
        send = self._tracer.begin_send_batch(request.topic, body)
        if send is None:
            return super().submit_batch(request, body, born_host, waiter)
        traced = TracedSender(self._tracer, send, waiter)
        try:
            return super().submit_batch(request, body, born_host, traced)
        except REFUSALS as error:
            traced.refused(error)
            raise


class TracedSender:
    """A waiter that ends the spans; see :class:`~broker.ingest.send_request.Sender`."""

    __slots__ = ("_commit", "_send", "_waiter")

    def __init__(self, tracer: MessageTracer, send: Span, waiter: Sender) -> None:
        self._send = send
        self._commit = tracer.begin_commit(send)
        self._waiter = waiter

    @property
    def queue_id(self) -> int:
        """See :class:`~broker.ingest.send_request.Sender`."""
        return self._waiter.queue_id

    @queue_id.setter
    def queue_id(self, queue_id: int) -> None:
        self._waiter.queue_id = queue_id
        self._send.set_attribute("messaging.destination.partition.id", str(queue_id))

    @property
    def recall_handle(self) -> RecallHandle | None:
        """See :class:`~broker.ingest.send_request.Sender`."""
        return self._waiter.recall_handle

    @recall_handle.setter
    def recall_handle(self, handle: RecallHandle | None) -> None:
        self._waiter.recall_handle = handle

    def caller(self) -> Caller:
        """See :class:`~broker.ingest.send_request.Sender`."""
        return self._waiter.caller()

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None:
        """See :class:`~broker.group_commit.pending_batch.SendWaiter`."""
        self._commit.end()
        self._waiter.stored(first_offset, positions, earlier)
        self._send.set_attribute("messaging.rocketmq.queue_offset", first_offset)
        self._send.end()

    def failed(self, error: ProposeError) -> None:
        """See :class:`~broker.group_commit.pending_batch.Waiter`."""
        self._waiter.failed(error)
        self.refused(error)

    def refused(self, error: Exception) -> None:
        """Ends the spans."""
        fail(self._commit, error)
        fail(self._send, error)


class TracedDelivery(Delivery):
    """Makes a span for each delivery of a traced message."""

    def __init__(self, tracer: MessageTracer, **parts: Any) -> None:
        super().__init__(**parts)
        self._tracer = tracer

    def fetch(self, request: FetchRequest, done: Done) -> Fetch:
        """See :class:`~broker.delivery.fetch.Delivery`."""

        def traced(fetched: Fetched | None, error: RefusedError | StoreError | None) -> None:
            if fetched is not None and fetched.parts:
                group, topic, queue_id = request.group, request.topic, request.queue_id
                self._tracer.delivered(group, topic, queue_id, fetched.parts)
            done(fetched, error)

        return super().fetch(request, traced)
