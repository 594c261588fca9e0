"""A request that no frame can hold fails alone: the peer would close the connection for it."""

from __future__ import annotations

import asyncio

import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.protocol.codes import OUTCOME, OUTCOME_NOT_LEADER, ResponseCode
from broker.remoting.protocol.errors import RequestTooLargeError
from broker.remoting.protocol.frame import (
    FRAME_SIZE_MAX,
    HEADER_SIZE_MAX,
    PREFIX,
    Frame,
    encode_request,
    fits_frame,
    frame_sizes,
)
from broker.remoting.server import RemotingServer
from tests.broker.remoting.test_forwarder import SEND, Group, address
from tests.support.virtual_network import NetworkedLoop

ECHO = 10


@pytest.mark.parametrize("body_size", [0, 1000, FRAME_SIZE_MAX // 2])
def test_what_fits_is_what_a_peer_takes(body_size: int) -> None:
    frame = encode_request(ECHO, 7, {"x": ""}, body_size)
    header = HEADER_SIZE_MAX - (len(frame) - PREFIX.size)
    body = FRAME_SIZE_MAX - len(frame)
    for more, added, fits in ((header, 0, True), (header + 1, 0, False), (0, body, True)):
        size = added or body_size
        head = encode_request(ECHO, 7, {"x": "x" * more}, size)
        assert fits_frame(head, size) == fits
        if fits:
            assert frame_sizes(head)[2] == size
    assert not fits_frame(frame, body + 1)


@pytest.mark.parametrize("ext", [{"x": "x" * HEADER_SIZE_MAX}, {}])
async def test_a_request_that_is_too_large_leaves_the_others_alone(
    loop: NetworkedLoop, ext: dict[str, str]
) -> None:
    def echo(connection: Connection, request: Frame) -> None:
        loop.call_later(1, connection.respond, request)

    server = RemotingServer(loop, "10.0.0.1", 1, dispatch_by_code({ECHO: echo}))
    await server.start()
    client = RemotingClient(loop)
    other = client.invoke_nowait("10.0.0.1:1", ECHO)
    body = bytes(0 if ext else FRAME_SIZE_MAX)
    with pytest.raises(RequestTooLargeError):
        await client.invoke("10.0.0.1:1", ECHO, ext, (body,))
    client.push("10.0.0.1:1", ECHO, ext, (body,))
    assert (await other).code == ResponseCode.SUCCESS
    assert len(server.connections) == 1
    await client.close()
    await server.stop()


async def test_a_request_that_cannot_be_encoded_waits_for_no_answer(loop: NetworkedLoop) -> None:
    client = RemotingClient(loop)
    told: list[object] = []

    def done(answer: object, failure: object) -> None:
        told.append((answer, failure))

    with pytest.raises(TypeError, match="surrogates"):
        client.call("10.0.0.1:1", ECHO, {"x": "\ud800"}, (), timeout=1.0, done=done)
    assert client.oldest_request("10.0.0.1:1") is None
    await client.close()
    assert told == []


@pytest.mark.parametrize("junk", ["header", "body"])
async def test_who_sends_a_follower_what_cannot_be_forwarded_is_refused_alone(
    loop: NetworkedLoop, junk: str
) -> None:
    """It is a legal frame, and larger once its fields are packed into another."""
    async with Group(loop) as group:
        group.hear(2)
        leader = group.members[2]
        leader.silent = True
        other = group.send(1)
        await asyncio.sleep(0.1)
        assert len(leader.stored) == 1
        ext = {"b": "T", "x": '"' * 330_000} if junk == "header" else {"b": "T"}
        room = FRAME_SIZE_MAX - len(encode_request(SEND, 1000, ext, FRAME_SIZE_MAX))
        body = bytes(room if junk == "body" else 1)
        answer = await group.client.invoke(address(1), SEND, ext, (body,), timeout=1)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.ext[OUTCOME] == OUTCOME_NOT_LEADER
        assert len(leader.server.connections) == 1
        assert not other.done()
        leader.silent = False
        assert (await group.send(1)).code == ResponseCode.SUCCESS
        other.cancel()
