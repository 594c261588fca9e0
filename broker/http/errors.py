"""Errors over HTTP: a status, and ``{"error": "..."}`` with the reason.

Only this module turns the broker's own errors into answers of the HTTP port. Handlers and flows
raise them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from http import HTTPStatus

import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from broker.errors import (
    ANSWERED,
    NOT_HERE,
    UNKNOWN,
    AccessDeniedError,
    Answered,
    BodyTooLargeError,
    ForbiddenError,
    NothingToRecallError,
    UnauthenticatedError,
    UnavailableError,
    UnknownGroupError,
    UnknownQueueError,
    UnknownTopicError,
    refused,
)
from broker.quotas.quota import OverQuotaError
from dledger.errors import ProposeError
from store.errors import EntryTooLargeError, SnapshotError, StoreError
from store.quoting import shortened

_STATUS: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (OverQuotaError, HTTPStatus.TOO_MANY_REQUESTS),
    (ProposeError, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnknownTopicError, HTTPStatus.NOT_FOUND),
    (UnknownQueueError, HTTPStatus.NOT_FOUND),
    (UnknownGroupError, HTTPStatus.NOT_FOUND),
    (ForbiddenError, HTTPStatus.FORBIDDEN),
    (UnauthenticatedError, HTTPStatus.UNAUTHORIZED),
    (AccessDeniedError, HTTPStatus.FORBIDDEN),
    (BodyTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (EntryTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (NothingToRecallError, HTTPStatus.NOT_FOUND),
    (SnapshotError, HTTPStatus.CONFLICT),
    (StoreError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""The first matching row counts; any other error is a bad request."""


OUTCOME = "outcome"
MAYBE_DONE = "unknown"
NOTHING_DONE = "not_leader"
"""A field of refusals: the request may have been carried out, or was not because another node
leads."""


class HttpRefusedError(Exception):
    """The HTTP port itself refuses a request, before the broker sees it. It is counted as
    ``counted_as``, by default by its status."""

    def __init__(self, status: int, reason: str, counted_as: str = "") -> None:
        self.status = status
        self.counted_as = counted_as or f"http_{int(status)}"
        self.reason = reason = shortened(reason)
        super().__init__(reason)


def bad_request(reason: str) -> HttpRefusedError:
    """A refusal with 400."""
    return HttpRefusedError(HTTPStatus.BAD_REQUEST, reason)


def json_response(document: object, status: int = HTTPStatus.OK) -> web.Response:
    """An answer of one line of JSON."""
    return web.Response(
        body=orjson.dumps(document) + b"\n", status=status, content_type="application/json"
    )


def refusal_response(error: HttpRefusedError) -> web.Response:
    """The answer to a request that the port itself refuses."""
    return json_response({"error": error.reason}, error.status)


def refuse_as_json(leader: Callable[[], str | None], refusals: Counter[str]) -> Middleware:
    """Turns errors of the broker and of aiohttp into JSON.

    ``leader`` gives the HTTP address of the leader, or None if this node leads or no leader is
    known; an answer 503 has it. ``"outcome": "unknown"`` means that the message may have been
    stored. ``refusals`` counts refusals by reason.
    """

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except HttpRefusedError as error:
            refusals[error.counted_as] += 1
            return refusal_response(error)
        except ANSWERED as error:
            return _answer(error, refused(error, refusals), leader())
        except web.HTTPException as error:
            # Unknown paths, methods, and bodies over the limit.
            refusals[f"http_{error.status}"] += 1
            return json_response({"error": error.reason}, error.status)

    return refuse


def _answer(error: Answered, reason: str, leader: str | None) -> web.Response:
    status = next(
        (status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.BAD_REQUEST
    )
    document = {"error": reason}
    if leader is not None and status is HTTPStatus.SERVICE_UNAVAILABLE:
        document["leader"] = leader
    if isinstance(error, UNKNOWN):
        document[OUTCOME] = MAYBE_DONE
    elif isinstance(error, NOT_HERE):
        document[OUTCOME] = NOTHING_DONE
    response = json_response(document, status)
    if isinstance(error, OverQuotaError):
        response.headers[hdrs.RETRY_AFTER] = str(error.retry_seconds)
    if status is HTTPStatus.UNAUTHORIZED:
        response.headers[hdrs.WWW_AUTHENTICATE] = 'Basic realm="dledger", charset="UTF-8"'
    return response
