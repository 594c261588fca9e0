"""Refusals as HTTP says them: a status, and {"error": "..."} with what was wrong."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from broker.remoting.error_responses import REFUSALS, Refusal, remark_of, response_code_of
from broker.remoting.protocol.codes import ResponseCode
from store.quoting import shortened

_STATUS: Mapping[int, HTTPStatus] = {
    ResponseCode.SYSTEM_BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    ResponseCode.SERVICE_NOT_AVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST: HTTPStatus.NOT_FOUND,
    ResponseCode.NO_PERMISSION: HTTPStatus.FORBIDDEN,
}


class HttpRefusedError(Exception):
    """A request is refused; becomes the answer in :func:`refuse_as_json`."""

    def __init__(self, status: int, what: str, leader: str | None = None) -> None:
        self.status = status
        self.what = what = shortened(what)
        self.leader = leader
        super().__init__(what)


def refused_with_code(code: int, remark: str, leader: str | None = None) -> HttpRefusedError:
    """The refusal that a remoting client would be told with ``code``."""
    status = _STATUS.get(code, HTTPStatus.BAD_REQUEST)
    unavailable = status is HTTPStatus.SERVICE_UNAVAILABLE
    return HttpRefusedError(status, remark, leader if unavailable else None)


def refused_by_error(error: Refusal, leader: str | None = None) -> HttpRefusedError:
    """The refusal of one of our own errors."""
    return refused_with_code(response_code_of(error), remark_of(error), leader)


def json_response(document: object, status: int = HTTPStatus.OK) -> web.Response:
    """An answer, one line of JSON."""
    return web.Response(
        body=orjson.dumps(document) + b"\n", status=status, content_type="application/json"
    )


def refusal_response(error: HttpRefusedError) -> web.Response:
    """What a refused request is answered."""
    document = {"error": error.what}
    if error.leader is not None:
        document["leader"] = error.leader
    return json_response(document, error.status)


@web.middleware
async def refuse_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns refusals, ours and aiohttp's, into JSON."""
    try:
        return await handler(request)
    except HttpRefusedError as error:
        return refusal_response(error)
    except REFUSALS as error:
        return refusal_response(refused_by_error(error))
    except web.HTTPException as error:
        # Unknown paths, methods, and bodies over the limit.
        return json_response({"error": error.reason}, error.status)
