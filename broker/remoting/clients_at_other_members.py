"""Requests to clients that are connected to other members of the group.

A producer sends its heartbeats to the leader in its route. After a change of leader this is an
earlier leader for a while, and the new leader does not know the client. A request to such a client
goes to all other members at once. The member that has the client passes the request on, and the
client's answer comes back. A member that is asked looks only among its own clients. So there is one
hop, and there are no loops.

Wire: request code :data:`RequestCode.PASS_TO_CLIENT`. Its body is that of the request. The fields
``client`` and ``group`` name the client: ``group`` is a consumer group, or empty for a producer.
``request`` is the code of the request, ``milliseconds`` how long the client may take to answer, and
``fields`` a JSON object of the ext fields. The answer is 0 if the client has answered: ``answer``
is its code, remark and body are the client's. Any other answer means that the client is not there.
So does the answer 3 of a program that does not know this code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import orjson

from broker.remoting.client import RemotingClient
from broker.remoting.connected_clients import ClientConnection, ConnectedClients
from broker.remoting.connection import Connection
from broker.remoting.forwarded_frame import FIELDS, unpack_fields
from broker.remoting.pending_requests import Done
from broker.remoting.protocol.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from broker.remoting.protocol.errors import (
    CallError,
    ClientNotOnlineError,
    FieldError,
    RequestError,
)
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_int, ext_str
from broker.remoting.protocol.frame import ExtValue, Frame
from broker.security.credentials import NO_SECURITY, ClientSecurity
from store.io.filesystem import Bytes

CLIENT = "client"
GROUP = "group"
REQUEST = "request"
MILLISECONDS = "milliseconds"
ANSWER = "answer"

PASSED_ON = frozenset(
    (
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    )
)
"""Requests to one named client. No other request is passed on for another member."""

MILLISECONDS_MAX = 10_000
"""Pace: how long another broker waits for its client at most."""


class ClientsAtOtherMembers:
    """Calls clients of the other members, for one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clients: ConnectedClients,
        peers: Callable[[], Sequence[str]],
        *,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """``clients`` are the clients of this broker. ``peers`` gives the addresses of the other
        members as ``host:port``. ``security`` shows them that a broker of the cluster asks."""
        self._loop = loop
        self._clients = clients
        self._peers = peers
        self._client = RemotingClient(loop, security=security)

    def call(
        self,
        client_id: str,
        group: str,
        code: int,
        ext: Mapping[str, str],
        body: Sequence[Bytes],
        *,
        timeout: float,
        done: Done,
    ) -> None:
        """Sends a request to a client at another member. ``group`` is its consumer group, empty for
        a producer. ``timeout`` is in seconds.

        ``done`` gets :class:`~broker.remoting.protocol.errors.ClientNotOnlineError` if no other
        member has that client.
        """
        peers = self._peers()
        search = _Search(client_id, len(peers), done)
        if not peers:
            self._loop.call_soon(search.end)
        fields = {
            CLIENT: client_id,
            GROUP: group,
            REQUEST: str(int(code)),
            MILLISECONDS: str(int(timeout * 1000)),
            FIELDS: orjson.dumps(ext).decode(),
        }
        for peer in peers:
            self._client.call(
                peer,
                RequestCode.PASS_TO_CLIENT,
                fields,
                body,
                timeout=timeout,
                done=search.answered,
            )

    def serve(self, connection: Connection, request: Frame) -> None:
        """Code :data:`RequestCode.PASS_TO_CLIENT`. Raises
        :class:`~broker.remoting.protocol.errors.RequestError`: the client is not connected here, or
        requests of this code are not passed on."""
        code = ext_int(request, REQUEST, maximum=INT32_MAX)
        if code not in PASSED_ON:
            raise FieldError(f"requests of code {code} are not passed on to clients")
        client_id, group = ext_str(request, CLIENT), ext_str(request, GROUP)
        client = self._named(client_id, group)
        if client is None:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the client {client_id} is not connected here"
            )
        milliseconds = ext_int(request, MILLISECONDS, maximum=MILLISECONDS_MAX)

        def answered(answer: Frame | None, failure: CallError | None) -> None:
            if answer is None:
                connection.respond(request, ResponseCode.SYSTEM_ERROR, str(failure))
            else:
                told = {ANSWER: str(answer.code)}
                connection.respond(
                    request, ResponseCode.SUCCESS, answer.remark, told, (answer.body,)
                )

        fields, body = _texts(unpack_fields(request)), (request.body,)
        client.call(code, fields, body, timeout=milliseconds / 1000, done=answered)

    async def close(self) -> None:
        """Ends the connections to the other members. Open calls get no answer."""
        await self._client.close()

    def _named(self, client_id: str, group: str) -> ClientConnection | None:
        if group:
            return self._clients.member_named(group, client_id)
        return self._clients.producer_named(client_id)


class _Search:
    """One request at several members. The first answer from the client counts."""

    def __init__(self, client_id: str, members: int, done: Done) -> None:
        self._client_id = client_id
        self._waits_for = members
        self._done: Done | None = done
        self._failure: CallError | None = None
        """The failure of a member that may have passed the request on, or of a request that cannot
        be passed on."""

    def answered(self, answer: Frame | None, failure: CallError | None) -> None:
        """Takes the answer of one member."""
        self._waits_for -= 1
        passed_on = None if answer is None else _answer_of_client(answer)
        if passed_on is not None:
            self._end(passed_on, None)
        elif failure is not None and (failure.was_sent or not failure.retriable):
            self._failure = failure
        if self._waits_for == 0:
            self.end()

    def end(self) -> None:
        """All members have answered or failed."""
        self._end(None, self._failure or ClientNotOnlineError(self._client_id))

    def _end(self, answer: Frame | None, failure: CallError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(answer, failure)


def _answer_of_client(answer: Frame) -> Frame | None:
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        code = ext_int(answer, ANSWER, minimum=-INT32_MAX, maximum=INT32_MAX)
    except FieldError:
        return None
    return Frame(code, answer.opaque, FLAG_RESPONSE, remark=answer.remark, body=answer.body)


def _texts(fields: Mapping[str, ExtValue]) -> Mapping[str, str]:
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    if len(texts) < len(fields):
        raise FieldError(f"{FIELDS} is not a JSON object of texts")
    return texts
