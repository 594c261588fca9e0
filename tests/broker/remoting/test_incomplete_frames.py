"""Frames that arrive in part: how long they may take, and what is kept of them."""

from __future__ import annotations

import asyncio

import pytest

from broker.limits import RemotingLimits
from broker.remoting.protocol.frame import encode_request
from broker.remoting.server import RemotingServer
from tests.broker.remoting.raw_peer import Peer, connect, echo
from tests.support.virtual_network import NetworkedLoop, turns


def begun(size: int, kept: int) -> bytes:
    """So many bytes of the body of a frame that has ``size``, with its header."""
    return encode_request(310, 1, None, size) + bytes(kept)


async def test_a_frame_that_does_not_go_on_ends_its_connection(loop: NetworkedLoop) -> None:
    peer, quiet = await connect(loop, echo), await connect(loop, echo)
    peer.transport.write(begun(1_000_000, 20_000))
    await asyncio.sleep(14)
    assert not peer.lost
    await asyncio.sleep(2)
    assert (peer.lost, quiet.lost) == (True, False)


@pytest.mark.parametrize("kept", [1, 7, 30])
async def test_so_does_one_whose_prefix_or_header_does_not_go_on(
    loop: NetworkedLoop, kept: int
) -> None:
    peer = await connect(loop, echo)
    peer.transport.write(begun(10, 0)[:kept])
    await asyncio.sleep(16)
    assert peer.lost


async def test_a_slow_link_may_take_its_time(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    peer.transport.write(begun(100_000, 0))
    for _ in range(100):  # 8,000 bit/s
        await asyncio.sleep(1)
        peer.transport.write(bytes(1_000))
    await turns()
    assert [len(frame.body) for frame in peer.frames] == [100_000]


async def test_a_link_that_trickles_is_cut(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    peer.transport.write(begun(100_000, 0))
    for _ in range(20):
        await asyncio.sleep(1)
        peer.transport.write(b"x")
    assert peer.lost


async def test_one_frame_after_the_other_in_pieces_is_progress(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    frame = begun(10, 10)
    peer.transport.write(frame[:5])
    for _ in range(20):
        await asyncio.sleep(5)
        peer.transport.write(frame[5:] + frame[:5])
    await turns()
    assert len(peer.frames) == 20


async def test_who_is_not_read_need_not_make_progress(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo, RemotingLimits(write_buffer_high=10_000))
    peer.transport.pause_reading()
    peer.request(opaque=1, body=bytes(20_000))
    await turns()
    peer.connection.data_received(begun(10, 3))  # came before reading was paused
    await asyncio.sleep(60)
    assert not peer.lost
    peer.transport.resume_reading()
    await turns(10)
    peer.transport.write(bytes(7))
    await turns()
    assert [len(frame.body) for frame in peer.frames] == [20_000, 10]


async def test_a_process_that_stood_still_reads_before_it_judges(loop: NetworkedLoop) -> None:
    peer = await connect(loop, echo)
    peer.connection.data_received(begun(10, 3))
    loop.call_soon(loop.stall, 40.0)
    await turns()
    peer.transport.write(bytes(7))
    await turns()
    assert len(peer.frames) == 1


async def test_all_connections_share_what_is_kept_of_unfinished_frames(loop: NetworkedLoop) -> None:
    limits = RemotingLimits(unhandled_max=100_000, unhandled_each=1_000)
    server = RemotingServer(loop, "10.0.0.1", 10911, echo, limits)
    peers = [Peer() for _ in range(6)]
    for peer in peers:
        loop.join(peer, server.accept())
    for peer in peers:
        peer.transport.write(begun(60_000, 30_000))
        await turns()
    # Three of them fit, which were begun last.
    assert [peer.lost for peer in peers] == [True, True, True, False, False, False]
    for peer in peers[3:]:
        peer.transport.write(bytes(30_000))
        await turns()
    assert [len(peer.frames) for peer in peers[3:]] == [1, 1, 1]


async def test_who_needs_little_goes_on_while_others_use_all(loop: NetworkedLoop) -> None:
    limits = RemotingLimits(unhandled_max=20_000, unhandled_each=1_000)
    server = RemotingServer(loop, "10.0.0.1", 10911, echo, limits)
    honest, greedy = Peer(), Peer()
    for peer in (honest, greedy):
        loop.join(peer, server.accept())
    honest.transport.write(begun(900, 800))
    for _ in range(5):
        greedy.transport.write(begun(60_000, 10_000))
        await turns()
    assert greedy.lost
    honest.transport.write(bytes(100))
    await turns()
    assert len(honest.frames) == 1


async def test_what_was_kept_is_given_back(loop: NetworkedLoop) -> None:
    limits = RemotingLimits(unhandled_max=50_000, unhandled_each=0)
    server = RemotingServer(loop, "10.0.0.1", 10911, echo, limits)
    for number in range(10):
        peer = Peer()
        loop.join(peer, server.accept())
        peer.transport.write(begun(60_000, 40_000))
        await turns()
        if number % 2:
            peer.transport.abort()  # not the end of a frame, but of its connection
        else:
            peer.transport.write(bytes(20_000))
        await turns()
        assert number % 2 or len(peer.frames) == 1
