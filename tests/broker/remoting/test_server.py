"""What a connection of the server does, seen by a peer that reads and writes raw frames."""

from __future__ import annotations

import asyncio
import logging

import pytest

import broker.remoting.protocol.frame_reader
from broker.limits import RemotingLimits
from broker.remoting.connection import Connection
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.protocol.codes import FLAG_ONE_WAY, FLAG_RESPONSE, RequestCode, ResponseCode
from broker.remoting.protocol.errors import ConnectionLostError, RequestError
from broker.remoting.protocol.ext_fields import ext_int
from broker.remoting.protocol.frame import (
    FRAME_BODY_SIZE_MAX,
    Frame,
    encode_request,
    encode_response,
)
from broker.remoting.server import RemotingServer
from tests.broker.remoting.raw_peer import Peer, connect, echo
from tests.support.virtual_network import NetworkedLoop, turns


class Kept:
    """A dispatch that keeps the requests, to answer them later."""

    def __init__(self) -> None:
        self.requests: list[tuple[Connection, Frame]] = []

    def __call__(self, connection: Connection, request: Frame) -> None:
        self.requests.append((connection, request))


async def test_a_request_is_answered(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    peer.request(opaque=77, body=b"hello")
    await turns()
    (answer,) = peer.frames
    assert answer.is_response
    assert (answer.code, answer.opaque, answer.body) == (0, 77, b"hello")
    assert answer.ext == {"heard": "true"}


async def test_a_binary_request_gets_a_binary_answer(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    peer.transport.write(encode_request(310, 5, {"b": "T"}, serialization=1))
    await turns()
    assert [(f.opaque, f.serialization) for f in peer.frames] == [(5, 1)]


async def test_requests_may_be_answered_later_and_in_any_order(loop: NetworkedLoop) -> None:
    kept = Kept()
    peer = await connect(loop, kept)
    for opaque in (1, 2, 3):
        peer.request(opaque=opaque)
    await turns()
    for connection, request in reversed(kept.requests):
        connection.respond(request)
        await turns()
    assert [frame.opaque for frame in peer.frames] == [3, 2, 1]


async def test_the_answers_of_one_turn_leave_in_one_write(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    for opaque in range(50):
        peer.request(opaque=opaque)
    await turns()
    assert len(peer.frames) == 50
    assert len(peer.far.writes) == 1


async def test_a_body_in_parts_arrives_as_one(loop: NetworkedLoop) -> None:
    def pull(connection: Connection, request: Frame) -> None:
        connection.respond(request, body=(b"one ", memoryview(b"two "), bytearray(b"three")))

    peer = await connect(loop, pull)
    peer.request()
    await turns()
    assert peer.frames[0].body == b"one two three"


async def test_a_large_body_is_not_joined_before_it_is_written(loop: NetworkedLoop) -> None:
    part = bytes(100_000)

    def pull(connection: Connection, request: Frame) -> None:
        connection.respond(request, body=(part, part))

    peer = await connect(loop, pull)
    peer.request()
    await turns()
    assert peer.frames[0].body == part + part


async def test_an_answer_that_no_frame_holds_is_told_as_such(loop: NetworkedLoop) -> None:
    def large(connection: Connection, request: Frame) -> None:
        half = bytes(ext_int(request, "half"))
        connection.respond(request, ext={"of": "body"}, body=(half, half))

    peer = await connect(loop, large)
    for half in (FRAME_BODY_SIZE_MAX // 2, FRAME_BODY_SIZE_MAX // 2 + 1):
        peer.request(opaque=half, ext={"half": str(half)})
        await turns(5)
    fits, refused = peer.frames
    assert (fits.code, len(fits.body)) == (ResponseCode.SUCCESS, FRAME_BODY_SIZE_MAX)
    assert (refused.code, refused.body, refused.ext) == (ResponseCode.SYSTEM_ERROR, b"", {})
    assert refused.remark == ("the answer has 16711682 bytes, no frame holds more than 16711680")
    assert not peer.lost


async def test_a_one_way_request_gets_no_answer_whatever_happens(loop: NetworkedLoop) -> None:
    def refuse(connection: Connection, request: Frame) -> None:
        connection.respond(request)
        raise RequestError(ResponseCode.NO_PERMISSION, "no")

    peer = await connect(loop, refuse)
    peer.request(flag=FLAG_ONE_WAY)
    await turns()
    assert peer.frames == []


async def test_a_code_without_a_handler_is_answered_with_3(loop: NetworkedLoop) -> None:
    peer = await connect(loop, dispatch_by_code({310: echo}))
    peer.request(code=4711)
    peer.request(code=310)
    await turns()
    assert [frame.code for frame in peer.frames] == [3, 0]
    assert peer.frames[0].remark == "request code 4711 is not supported"


async def test_a_missing_field_is_answered_with_1_and_its_name(loop: NetworkedLoop) -> None:
    def handler(connection: Connection, request: Frame) -> None:
        ext_int(request, "queueId")

    peer = await connect(loop, handler)
    peer.request()
    await turns()
    assert [(f.code, f.remark) for f in peer.frames] == [(1, "missing field queueId")]


async def test_a_handler_fault_is_answered_with_1_and_logged(
    loop: NetworkedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(connection: Connection, request: Frame) -> None:
        raise KeyError("offsets")

    with caplog.at_level(logging.ERROR):
        peer = await connect(loop, dispatch_by_code({1: fault, 2: echo}))
        peer.request(code=1, opaque=1)
        peer.request(code=2, opaque=2)
        await turns()
        assert [(f.opaque, f.code) for f in peer.frames] == [(1, 1), (2, 0)]
        assert peer.frames[0].remark == "KeyError: 'offsets'"
    assert "10.0.0.2:40001: Frame(request code=1" in caplog.text


async def test_a_broken_invariant_is_not_taken_for_a_bad_request(loop: NetworkedLoop) -> None:
    def broken(connection: Connection, request: Frame) -> None:
        raise AssertionError("two leaders in one term")

    seen: list[object] = []
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    peer = await connect(loop, broken)
    peer.request()
    await turns()
    assert [str(error) for error in seen] == ["two leaders in one term"]
    assert peer.frames == []


async def test_bytes_that_are_no_frame_close_the_connection(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    peer.transport.write(b"GET / HTTP/1.1\r\n\r\n")
    await turns()
    assert peer.lost


async def test_a_frame_over_which_its_reader_stumbles_closes_its_connection_alone(
    loop: NetworkedLoop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise ValueError("unforeseen")

    peer, other = await connect(loop, echo), await connect(loop, echo)
    with monkeypatch.context() as patch:
        patch.setattr(broker.remoting.protocol.frame_reader, "decode_header", stumble)
        peer.request()
        await turns()
    assert peer.lost
    other.request()
    await turns()
    assert len(other.frames) == 1
    assert "ValueError: unforeseen" in caplog.text


async def test_a_half_frame_delays_nobody_else(loop: NetworkedLoop) -> None:
    server = RemotingServer(loop, "10.0.0.1", 10911, echo)
    slow, quick = Peer(), Peer()
    loop.join(slow, server.accept())
    loop.join(quick, server.accept())
    slow.transport.write(encode_request(310, 1, None, 1000) + b"half")
    quick.request(opaque=2)
    await turns()
    assert [frame.opaque for frame in quick.frames] == [2]
    slow.transport.write(b"x" * 996)
    await turns()
    assert slow.frames[0].body == b"half" + b"x" * 996


async def test_an_answer_to_a_closed_connection_is_dropped(loop: NetworkedLoop) -> None:
    kept = Kept()
    peer = await connect(loop, kept)
    peer.request()
    await turns()
    peer.transport.abort()
    await turns()
    ((connection, request),) = kept.requests
    connection.respond(request)
    connection.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    await turns()
    assert connection.is_closed
    assert peer.far.writes == []


async def test_requests_are_not_read_while_the_peer_does_not_read_answers(
    loop: NetworkedLoop,
) -> None:
    limits = RemotingLimits(write_buffer_high=10_000)
    peer = await connect(loop, echo, limits)
    peer.transport.pause_reading()
    peer.request(opaque=1, body=bytes(20_000))
    await turns()
    peer.request(opaque=2)
    await turns()
    assert not peer.far.reading
    peer.transport.resume_reading()
    await turns(10)
    assert [frame.opaque for frame in peer.frames] == [1, 2]
    assert peer.far.reading


async def test_requests_that_came_wait_while_the_peer_does_not_read_answers(
    loop: NetworkedLoop,
) -> None:
    handled: list[int] = []

    def answer(connection: Connection, request: Frame) -> None:
        handled.append(request.opaque)
        connection.respond(request, body=(bytes(20_000),))

    peer = await connect(loop, answer, RemotingLimits(write_buffer_high=50_000))
    peer.transport.pause_reading()
    for opaque in range(64):
        peer.request(opaque=opaque)
    await turns(20)
    assert handled == [0, 1, 2]
    assert not peer.lost
    peer.transport.resume_reading()
    await turns(100)
    assert handled == list(range(64))
    assert [frame.opaque for frame in peer.frames] == handled


async def test_a_peer_that_lets_too_much_wait_is_cut(loop: NetworkedLoop) -> None:
    limits = RemotingLimits(write_buffer_high=1_000, write_buffer_max=50_000)
    peer = await connect(loop, echo, limits)
    peer.transport.pause_reading()
    for _ in range(4):
        peer.connection.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, body=(bytes(20_000),))
        await turns()
    assert peer.lost


async def test_an_idle_connection_is_closed_after_two_minutes(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    await asyncio.sleep(100)
    peer.request(flag=FLAG_ONE_WAY)
    await asyncio.sleep(119)
    assert not peer.lost
    await asyncio.sleep(17)
    assert peer.lost


async def test_a_connection_beyond_the_limit_is_closed_at_once(loop: NetworkedLoop) -> None:
    server = RemotingServer(loop, "10.0.0.1", 10911, echo, RemotingLimits(connections_max=1))
    first, second = Peer(), Peer()
    loop.join(first, server.accept())
    loop.join(second, server.accept())
    await turns()
    assert second.lost
    assert not first.lost
    assert len(server.connections) == 1


async def test_a_closed_connection_is_told_to_who_asked(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    connection = peer.connection
    closed: list[str] = []
    connection.on_close(lambda it: closed.append(f"before {it.remote_address}"))
    peer.transport.close()
    await turns()
    connection.on_close(lambda it: closed.append(f"after {it.remote_address}"))
    await turns()
    assert closed == ["before 10.0.0.2:40001", "after 10.0.0.2:40001"]


async def test_the_peers_address_is_known_as_a_record_stores_it(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    assert peer.connection.remote_host_bytes == bytes([10, 0, 0, 2]) + (40_001).to_bytes(4, "big")


async def test_a_pushed_request_is_one_way(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    peer.connection.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"})
    await turns()
    (frame,) = peer.frames
    assert (frame.code, frame.flag, frame.ext) == (40, FLAG_ONE_WAY, {"consumerGroup": "G"})


async def test_the_server_asks_its_client_and_gets_the_answer(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    answer = peer.connection.invoke(RequestCode.GET_CONSUMER_RUNNING_INFO, timeout=3)
    await turns()
    (asked,) = peer.frames
    assert asked.flag & FLAG_RESPONSE == 0
    peer.transport.write(encode_response(asked, 0, body_size=2) + b"{}")
    assert (await answer).body == b"{}"


async def test_what_the_server_asked_fails_with_the_connection(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    answer = peer.connection.invoke(RequestCode.GET_CONSUMER_RUNNING_INFO, timeout=3)
    peer.transport.abort()
    with pytest.raises(ConnectionLostError):
        await answer
    with pytest.raises(ConnectionLostError):
        await peer.connection.invoke(RequestCode.GET_CONSUMER_RUNNING_INFO, timeout=3)


async def test_a_handler_that_closes_is_the_last_and_its_answer_leaves(loop: NetworkedLoop) -> None:
    def answer_and_close(connection: Connection, request: Frame) -> None:
        seen.append(request.opaque)
        connection.respond(request)
        connection.close()

    seen: list[int] = []
    peer = await connect(loop, answer_and_close)
    peer.request(opaque=1)
    peer.request(opaque=2)
    await turns()
    assert seen == [1]
    assert [frame.opaque for frame in peer.frames] == [1]
    assert peer.lost


async def test_stopping_lets_answers_leave_and_closes_all(loop: NetworkedLoop) -> None:
    server = RemotingServer(loop, "10.0.0.1", 10911, echo)
    await server.start()
    peer = Peer()
    await loop.create_connection(lambda: peer, "10.0.0.1", 10911)
    peer.request(opaque=9)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await server.stop()
    assert peer.lost
    assert [frame.opaque for frame in peer.frames] == [9]
    assert server.connections == []
    assert loop.listening == {}


async def test_stopping_does_not_wait_for_a_peer_that_does_not_read(loop: NetworkedLoop) -> None:
    server = RemotingServer(loop, "10.0.0.1", 10911, echo)
    peer = Peer()
    loop.join(peer, server.accept())
    peer.transport.pause_reading()
    peer.request(body=bytes(1000))
    await turns()
    begin = loop.time()
    await server.stop()
    assert peer.lost
    assert loop.time() - begin == pytest.approx(RemotingLimits().stop_seconds)
