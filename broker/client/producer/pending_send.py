"""One request of a producer, from the call until it is acknowledged or has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from broker.client.errors import (
    BadAnswerError,
    ClientError,
    Failure,
    outcome_unknown,
    perhaps_stored,
    refusal,
)
from broker.client.message import (
    SEND_STATUS_BY_CODE,
    Bytes,
    MessageQueue,
    SendResult,
    SendStatus,
)
from broker.client.producer.queue_selection import Target
from broker.client.producer.send_outcome_query import APPLIED_SECONDS_FIRST
from broker.remoting.protocol.codes import LEADER, OUTCOME, OUTCOME_UNKNOWN
from broker.remoting.protocol.fixed_headers import RequestTemplate, TemplateValues
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.header_templates import TemplatedFrame
from store.message.record import record_size

_BATCHED_SIZE = Struct(">i")
_BATCHED_FIXED_SIZE = 22
_NOWHERE: Mapping[str, str] = MappingProxyType({})

# The constructor that ``NamedTuple`` makes is a function of Python around this one.
_new = tuple.__new__


class _Common(NamedTuple):
    """What acknowledgements of one header template share."""

    status: SendStatus
    forwarded: bool
    recall_handle: str


def _common(broker: str, frame: Frame) -> _Common:
    status, ext = SEND_STATUS_BY_CODE.get(frame.code), frame.ext
    if status is None:
        refused = refusal(broker, frame.code, frame.remark)
        refused.perhaps_stored = ext.get(OUTCOME) == OUTCOME_UNKNOWN
        raise refused
    return _Common(status, LEADER in ext, str(ext.get("recallHandle") or ""))


class PendingSend:
    """A request and its waiter. A retry sends the same bytes."""

    __slots__ = (
        "applied_seconds",
        "asked",
        "body",
        "count",
        "deadline",
        "doubtful_at",
        "first_key",
        "forwarded",
        "future",
        "perhaps_stored",
        "pinned",
        "properties_size",
        "template",
        "topic",
        "tried",
        "tries",
        "values",
    )

    def __init__(  # noqa: PLR0917 - by position in the hot path
        self,
        topic: str,
        template: RequestTemplate,
        values: TemplateValues,
        body: Bytes,
        first_key: str,
        pinned: MessageQueue | None,
        deadline: float,
        future: asyncio.Future[SendResult],
        *,
        properties_size: int = 0,
        count: int = 0,
    ) -> None:
        """``count`` is the number of messages of a batch. It is 0 for a single message; then
        ``properties_size`` is the size of its properties in bytes."""
        self.topic = topic
        self.template = template
        self.values = values
        """The values for the template, without the queue id."""
        self.body = body
        self.count = count
        self.properties_size = properties_size
        self.first_key = first_key
        self.pinned = pinned
        """The required queue; None: any."""
        self.deadline = deadline
        self.future = future
        self.tried: Target | None = None
        """The target of the latest try."""
        self.tries = 0
        self.applied_seconds = APPLIED_SECONDS_FIRST
        self.asked: Target | None = None
        """Who was asked last, by a try or whether an earlier one is stored."""
        self.forwarded = False
        """Whether that broker leads no more, and has forwarded the request."""
        self.perhaps_stored = False
        """Whether the outcome of an earlier try is unknown."""
        self.doubtful_at: Mapping[str, str] = _NOWHERE
        """Broker groups that may have stored it without an answer, with the address of the leader
        that was asked."""

    @property
    def queue(self) -> MessageQueue | None:
        """The queue of the latest try, or the one that is required."""
        return self.pinned if self.tried is None else self.tried.queue

    @property
    def address(self) -> str:
        """The leader to which the latest try was sent."""
        return "" if self.tried is None else self.tried.address

    def acknowledgement(self, frame: Frame, queue: MessageQueue) -> SendResult:
        """The result of ``frame`` for a request to ``queue``; raises the error of a refusal."""
        try:
            if type(frame) is TemplatedFrame:
                common = frame.template.cached
                if type(common) is not _Common:
                    common = frame.template.cached = _common(queue.broker, frame)
                _, ids, queue_text, offset_text = frame.values
                queue_id = int(queue_text)
                offset = int(offset_text)
                message_ids = ids.decode()
            else:
                common, ext = _common(queue.broker, frame), frame.ext
                queue_id = int(ext["queueId"])  # type: ignore[arg-type]  # None raises, as it should
                offset = int(ext["queueOffset"])  # type: ignore[arg-type]  # as above
                message_ids = str(ext["msgId"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadAnswerError(queue.broker, f"an acknowledgement without {error}") from None
        status, self.forwarded, handle = common
        if queue_id != queue.queue_id:
            queue = queue._replace(queue_id=queue_id)
        return _new(
            SendResult,
            (status, queue, offset, self.count or 1, message_ids, self.first_key, handle),
        )

    def note(self, failure: Failure) -> None:
        """Records the broker group that may have stored it."""
        self.perhaps_stored |= perhaps_stored(failure)
        if self.queue is not None and outcome_unknown(failure):
            self.doubtful_at = {**self.doubtful_at, self.queue.broker: self.address}

    def succeed(self, result: SendResult) -> None:
        if not self.future.done():  # its caller may have cancelled it
            self.future.set_result(result)

    def fail(self, failure: BaseException) -> None:
        # The refusal of a later try does not tell what became of an earlier one.
        if self.perhaps_stored and isinstance(failure, ClientError):
            failure.perhaps_stored = True
        if not self.future.done():
            self.future.set_exception(failure)

    def record_sizes(self) -> list[int]:
        """The sizes of the records that a broker makes of its messages."""
        fixed = record_size(self.topic, 0, 0)
        if not self.count:
            return [fixed + len(self.body) + self.properties_size]
        sizes: list[int] = []
        position = 0
        while position < len(self.body):
            (size,) = _BATCHED_SIZE.unpack_from(self.body, position)
            sizes.append(fixed + size - _BATCHED_FIXED_SIZE)
            position += size
        return sizes
