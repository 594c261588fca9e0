"""Errors of the client library.

``retriable`` says whether the same call may succeed later. Failures of single requests
(:class:`~broker.remoting.protocol.errors.CallError`) have it too. Producer and consumer retry those
themselves, and raise the errors below when they give up.
"""

from __future__ import annotations

from typing import ClassVar

from broker.remoting.protocol.codes import UNAVAILABLE_CODES, ResponseCode, refusal_words
from broker.remoting.protocol.errors import CallError, ClientClosedError
from broker.remoting.protocol.frame import Frame

DOUBTFUL_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""A retry may succeed, but probably will not. With ``UNAVAILABLE_CODES`` these are the codes that
RocketMQ retries."""

_OUTCOME_UNKNOWN_CODES = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE})

ACCESS_DENIED, ACCESS_DENIED_WITHIN = "AclException", 80
"""The remarks of RocketMQ's brokers and of this project's have this word at or near the
beginning."""


class ClientError(Exception):
    """Base of the client's errors."""

    retriable: ClassVar[bool] = False
    perhaps_stored = False
    """Whether messages may be stored all the same: the outcome of a try is unknown."""


class TopicNotFoundError(ClientError):
    """No running broker has the topic, and a message does not create it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"no running broker has topic {topic}; `dledger status` shows the brokers, "
            f"`dledger topic create {topic}` creates it"
        )


class NameServersUnreachableError(ClientError):
    """No NameServer answered."""

    retriable = True

    def __init__(self, causes: dict[str, str]) -> None:
        self.causes = causes
        reasons = "; ".join(causes.values())
        super().__init__(f"no NameServer answers ({reasons})")


class NoLeaderError(ClientError):
    """The broker group of the queue has no leader at the moment."""

    retriable = True

    def __init__(self, broker: str) -> None:
        self.broker = broker
        super().__init__(f"{broker} has no leader at the moment")


class NoQueueError(ClientError):
    """The topic has no queue that may be written to (or read from)."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic} has no queue with the permission for this")


class RefusedError(ClientError):
    """A server refused the request."""

    def __init__(self, address: str, code: int, remark: str | None) -> None:
        self.address = address
        self.code = code
        self.remark = remark
        super().__init__(f"{address} refused: {refusal_words(code, remark)}")


class UnavailableError(RefusedError):
    """Refused for now: the node does not lead, or is overloaded."""

    retriable = True


class AccessDeniedError(RefusedError):
    """The server does not know the account, or the account lacks the permission. Nothing was
    done."""


class DoubtfulRefusalError(RefusedError):
    """Refused with a code of no clear meaning; worth a few more tries."""


class DeadlineError(ClientError):
    """Retried until the deadline; ``last`` is the error of the last try."""

    retriable = True

    def __init__(self, operation: str, seconds: float, last: Exception | None) -> None:
        self.last = last
        super().__init__(f"{operation}: given up after {seconds:g} s; last: {last}")


class TransactionEndedError(ClientError):
    """The transaction has ended with the other outcome."""


class NoReplyError(ClientError):
    """No reply came in time, or the reply did not reach the client that asked."""

    retriable = True


class IllegalMessageError(ClientError):
    """A message that every broker would refuse; it was not sent."""


class UndecodableBodyError(ClientError):
    """A compressed body cannot be decompressed; the message's ``raw_body`` has its bytes."""


class BadAnswerError(ClientError):
    """An answer without a necessary field, or with a wrong one."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")


class ClosedError(ClientError):
    """The producer or consumer has been closed."""


NOT_YET = "the brokers have not answered yet"
"""The text for a client that waits for its first answer."""

Failure = CallError | ClientError
"""The errors of one try."""


def refusal(address: str, code: int, remark: str | None) -> RefusedError:
    """The error of a response code; its class says what to do next."""
    if code == ResponseCode.SYSTEM_ERROR and ACCESS_DENIED in (remark or "")[:ACCESS_DENIED_WITHIN]:
        return AccessDeniedError(address, code, remark)
    if code in UNAVAILABLE_CODES:
        return UnavailableError(address, code, remark)
    if code in DOUBTFUL_CODES:
        return DoubtfulRefusalError(address, code, remark)
    return RefusedError(address, code, remark)


def check_success(address: str, answer: Frame) -> None:
    """Raises the :func:`refusal` of an answer with another code than success."""
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(address, answer.code, answer.remark)


def perhaps_stored(failure: Failure) -> bool:
    """Whether a message with this error may be stored: the answer was lost, or leaves the outcome
    open. Then only its broker group can recognise a retry."""
    if isinstance(failure, RefusedError):
        return failure.perhaps_stored
    return outcome_unknown(failure)


def outcome_unknown(failure: Failure) -> bool:
    """Whether a request with this error, or an earlier try of it, may have been carried out.

    A broker that loses its leadership answers 14 for messages that the next leader may still have.
    Apache's brokers answer 1 if the quorum was late.
    """
    if isinstance(failure, ClientError) and failure.perhaps_stored:
        return True
    if isinstance(failure, RefusedError):
        return failure.code in _OUTCOME_UNKNOWN_CODES and not isinstance(failure, AccessDeniedError)
    if isinstance(failure, ClientClosedError):
        return False
    return isinstance(failure, CallError) and failure.was_sent
