"""Sending: request codes 10, 310 and 320 (RocketMQ's ``SendMessageProcessor``).

A codec: it reads the header and passes the message to :mod:`broker.ingest.ingest` in the turn in
which the frame arrives. The answer is written once the entry of the message is committed and
applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from broker.context import BrokerContext
from broker.group_commit.pending_batch import StoredEarlier
from broker.limits import QUOTAS
from broker.quotas.quota import OverQuotaError
from broker.quotas.throttle import Caller, Throttle
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_refusal
from broker.remoting.forwarded_frame import client_host_bytes
from broker.remoting.processors.callers import Callers, hold
from broker.remoting.processors.send_message_header import (
    LONG_NAMES,
    SHORT_NAMES,
    HeaderNames,
    read_header,
    read_templated_header,
)
from broker.remoting.protocol.ext_fields import ext_bool
from broker.remoting.protocol.fixed_headers import SuccessAnswer
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.header_templates import TemplatedFrame
from broker.scheduled.recall_handle import RecallHandle
from dledger.errors import ProposeError

_STORED_FIELDS = {
    "msgId": "%b",
    "queueId": "%d",
    "queueOffset": "%d",
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
}
STORED = SuccessAnswer(_STORED_FIELDS)
STORED_TIMED = SuccessAnswer({**_STORED_FIELDS, "recallHandle": "%b"})


class SendMessageProcessor:
    """Handles the messages of producers."""

    def __init__(self, context: BrokerContext) -> None:
        self._ingest = context.ingest
        self.callers = Callers(context)
        self.store_host_hex = context.store_host.hex().upper().encode()

    def send(self, connection: Connection, request: Frame) -> None:
        """Code 10."""
        self._send(connection, request, LONG_NAMES)

    def send_v2(self, connection: Connection, request: Frame) -> None:
        """Code 310."""
        self._send(connection, request, SHORT_NAMES)

    def send_batch(self, connection: Connection, request: Frame) -> None:
        """Code 320."""
        self._send_batch(connection, request, SHORT_NAMES)

    def _send(self, connection: Connection, request: Frame, names: HeaderNames) -> None:
        sent = read_templated_header(request, names) if type(request) is TemplatedFrame else None
        if sent is None:
            # C++ core 1.0 sends a batch with code 10; only this field shows it.
            if names.batch in request.ext and ext_bool(request, names.batch):
                self._send_batch(connection, request, names)
                return
            sent = read_header(request, names)
        answer = _Answer(self, connection, request)
        if self._ingest.quotas is not None:
            self._admit(self._ingest.quotas, sent.topic, answer)
        host = client_host_bytes(connection, request)
        waits = self._ingest.submit(sent, request.body, host, answer)
        if waits:
            hold(connection, request, waits)

    def _send_batch(self, connection: Connection, request: Frame, names: HeaderNames) -> None:
        sent = read_header(request, names)
        answer = _Answer(self, connection, request)
        if self._ingest.quotas is not None:
            self._admit(self._ingest.quotas, sent.topic, answer)
        host = client_host_bytes(connection, request)
        waits = self._ingest.submit_batch(sent, request.body, host, answer)
        if waits:
            hold(connection, request, waits)

    def _admit(self, quotas: Throttle, topic: str, answer: _Answer) -> None:
        """Refuses a client far beyond its quota, and delays the refusal so that it waits before a
        retry. One-way requests are taken: their sender would not learn of the refusal."""
        if answer.request.is_one_way:
            return
        try:
            quotas.owes(answer.caller(), topic)
        except OverQuotaError:
            hold(answer.connection, answer.request, QUOTAS.debt_seconds_max)
            raise


class _Answer:
    """The future answer to one send request (see :class:`~broker.ingest.send_request.Sender`)."""

    __slots__ = ("connection", "processor", "queue_id", "recall_handle", "request")

    def __init__(
        self, processor: SendMessageProcessor, connection: Connection, request: Frame
    ) -> None:
        self.processor = processor
        self.connection = connection
        self.request = request
        self.queue_id = -1
        self.recall_handle: RecallHandle | None = None

    def caller(self) -> Caller:
        return self.processor.callers.of(self.connection, self.request)

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None:
        host = self.processor.store_host_hex
        if earlier is not None:
            host = earlier.host.hex().upper().encode()
            self.queue_id = earlier.queue_id
        if len(positions) == 1:
            message_ids = b"%b%016X" % (host, positions[0])
        else:
            # All at once: a fifth of the cost of formatting one by one.
            digits = pack(f">{len(positions)}q", *positions).hex(",", 8).upper().encode()
            message_ids = host + digits.replace(b",", b"," + host)
        request = self.request
        if self.recall_handle is None:
            answer = STORED.encode(request, message_ids, self.queue_id, first_offset)
        else:
            handle = self.recall_handle.at(positions[0]).encode()
            answer = STORED_TIMED.encode(request, message_ids, self.queue_id, first_offset, handle)
        self.connection.respond_encoded(request, answer)

    def failed(self, error: ProposeError) -> None:
        respond_refusal(self.connection, self.request, error)
