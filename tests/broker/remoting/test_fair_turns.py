"""Connections take turns, whoever asks much."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from broker.limits import RemotingLimits
from broker.remoting.connection import Connection
from broker.remoting.protocol.frame import (
    Frame,
)
from broker.remoting.server import RemotingServer
from tests.broker.remoting.raw_peer import Peer
from tests.support.virtual_network import NetworkedLoop, turns


async def connect_to(loop: NetworkedLoop, server: RemotingServer) -> Peer:
    peer = Peer()
    loop.join(peer, server.accept())
    await turns()
    return peer


async def connect_light(loop: NetworkedLoop, server: RemotingServer) -> Peer:
    """One that has been heard before."""
    peer = await connect_to(loop, server)
    peer.request(opaque=0)
    await asyncio.sleep(1)
    return peer


async def test_who_sends_many_requests_at_once_leaves_turns_to_others(loop: NetworkedLoop) -> None:
    """Of all connections together, however the requests are spread over them."""
    in_turn = [0]

    def next_turn() -> None:
        in_turn.append(0)
        if len(in_turn) < 60:
            loop.call_soon(next_turn)

    def dispatch(connection: Connection, request: Frame) -> None:
        in_turn[-1] += 1
        connection.respond(request)

    limits = RemotingLimits(turn_frames=10)
    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, limits)
    peers = [await connect_to(loop, server) for _ in range(4)]
    loop.call_soon(next_turn)
    for peer in peers:
        for opaque in range(95):
            peer.request(opaque=opaque)
    peers[3].transport.close()  # what it sent before is handled all the same
    await turns(70)
    assert max(in_turn) <= 2 * limits.turn_frames  # what was left of one count, and another
    assert sum(in_turn) == 4 * 95
    for peer in peers[:3]:
        assert [frame.opaque for frame in peer.frames] == list(range(95))
        peer.request(opaque=95)  # it is read again
    await turns()
    assert all(peer.frames[-1].opaque == 95 for peer in peers[:3])


async def test_who_is_cut_off_while_its_requests_wait_disturbs_nobody(loop: NetworkedLoop) -> None:
    handled: list[int] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        handled.append(request.opaque)

    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, RemotingLimits(turn_frames=10))
    gone, other = [await connect_to(loop, server) for _ in range(2)]
    for opaque in range(100):
        gone.request(opaque=opaque)
    for opaque in range(1000, 1030):
        other.request(opaque=opaque)
    await turns(3)
    gone.far.abort()
    await turns(20)
    assert gone.lost
    assert [opaque for opaque in handled if opaque >= 1000] == list(range(1000, 1030))
    assert not other.lost


async def test_large_requests_leave_turns_to_others_sooner(loop: NetworkedLoop) -> None:
    handled: list[int] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        handled.append(request.opaque)

    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch)
    peer = await connect_to(loop, server)
    for opaque in range(4):
        peer.request(opaque=opaque, body=bytes(1 << 20))
    counts = []
    for _ in range(12):
        await turns(1)
        counts.append(len(handled))
    assert all(after - before <= 1 for before, after in pairwise(counts))
    assert handled == [0, 1, 2, 3]


class StallingClock:
    """Time that passes as requests are handled."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_who_asks_little_waits_for_few_turns_however_many_ask_much(
    loop: NetworkedLoop,
) -> None:
    handled: list[int] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        handled.append(request.opaque)

    limits = RemotingLimits(turn_frames=40)
    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, limits)
    busy = [await connect_to(loop, server) for _ in range(10)]
    quiet = await connect_to(loop, server)
    await asyncio.sleep(1)
    for peer in busy:
        for _ in range(200):
            peer.request(opaque=1)
    await turns(4)
    before = len(handled)
    quiet.request(opaque=2)
    await turns(8)
    assert 2 in handled[before : before + 4 * limits.turn_frames]
    await turns(100)
    assert handled.count(1) == 2000  # nobody is left out


async def test_a_turn_ends_when_it_has_lasted_too_long(loop: NetworkedLoop) -> None:
    """And who made it so gives way to others afterwards."""
    clock = StallingClock()
    handled: list[int] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        clock.now += 0.05 if request.opaque == 1 else 0.0001
        handled.append(request.opaque)

    limits = RemotingLimits(turn_seconds=0.01)
    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, limits, clock=clock)
    heavy = [await connect_to(loop, server) for _ in range(5)]
    light = await connect_light(loop, server)
    for peer in heavy:
        for _ in range(20):
            peer.request(opaque=1)
    await turns(12)  # each of them is known for what it is
    before = len(handled)
    assert 5 <= before <= 2 * 12  # of 100
    light.request(opaque=2)
    await turns(6)
    assert 2 in handled[before : before + 4]
    await turns(300)
    assert handled.count(1) == 100


async def test_who_comes_again_and_again_is_not_taken_for_somebody_light(
    loop: NetworkedLoop,
) -> None:
    handled: list[int] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        handled.append(request.opaque)

    limits = RemotingLimits(turn_frames=4)
    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, limits)
    light = await connect_light(loop, server)
    newest = [await connect_to(loop, server) for _ in range(60)]
    await asyncio.sleep(2)  # only what is heard of them counts
    for peer in newest:
        for _ in range(5):
            peer.request(opaque=1)
    light.request(opaque=2)
    await turns(8)
    assert 2 in handled
    assert handled.count(1) < 60  # not all of them were served once


async def test_who_is_light_stays_so_while_its_requests_take_several_turns(
    loop: NetworkedLoop,
) -> None:
    handled: list[int] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        handled.append(request.opaque)

    limits = RemotingLimits(turn_frames=4)
    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, limits)
    light = await connect_light(loop, server)
    others = [await connect_to(loop, server) for _ in range(60)]
    for peer in others:
        for _ in range(5):
            peer.request(opaque=1)
    await turns(2)
    for _ in range(8):
        light.request(opaque=2)
    await turns(10)
    assert handled.count(2) == 8
    assert handled.count(1) < 60


class Asking(Peer):
    """It sends the next request when it has an answer to one of number 2."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.frames[-1].opaque == 2:
            self.request(opaque=2, body=self.body)


@pytest.mark.parametrize("body_size", [0, 1 << 20], ids=["small", "larger than a turn"])
async def test_who_asks_much_has_half_of_the_time_however_many_ask_little(
    loop: NetworkedLoop, body_size: int
) -> None:
    """A connection with many clients behind it would stand still."""
    clock = StallingClock()
    seconds = [0.0, 0.0, 0.0]

    def dispatch(connection: Connection, request: Frame) -> None:
        cost = 0.003 if request.opaque == 1 else 0.002
        clock.now += cost
        seconds[request.opaque] += cost
        connection.respond(request)

    limits = RemotingLimits(turn_seconds=0.01)
    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, limits, clock=clock)
    light = [Asking(bytes(body_size)) for _ in range(40)]
    for peer in light:
        loop.join(peer, server.accept())
    await turns()
    for peer in light:
        peer.request(opaque=0)
    await asyncio.sleep(1)  # they have been heard before
    heavy = await connect_to(loop, server)
    for _ in range(1000):
        heavy.request(opaque=1)
    await turns(10)  # it is known for what it is
    for peer in light:
        peer.request(opaque=2, body=peer.body)
    before = seconds[1]
    await turns(200)
    assert seconds[1] - before > seconds[2] / 2 > 0.1


async def test_a_thread_that_stands_still_makes_nobody_heavy(loop: NetworkedLoop) -> None:
    """Which happens to any of them on a busy machine."""
    clock, cpu_clock = StallingClock(), StallingClock()
    handled: list[int] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        clock.now += 0.05
        cpu_clock.now += 0.02 if request.opaque == 1 else 0.0001
        handled.append(request.opaque)

    limits = RemotingLimits(turn_seconds=0.01)
    server = RemotingServer(
        *(loop, "10.0.0.1", 10911, dispatch, limits), clock=clock, cpu_clock=cpu_clock
    )
    heavy = [await connect_to(loop, server) for _ in range(20)]
    light = await connect_light(loop, server)
    for peer in heavy:
        for _ in range(20):
            peer.request(opaque=1)
    for opaque in range(2, 8):  # the first of them makes it no heavy one for the next
        light.request(opaque=opaque)
        before = len(handled)
        await turns(6)
        assert opaque in handled[before : before + 4]
