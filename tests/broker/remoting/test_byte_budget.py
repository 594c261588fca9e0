"""What all connections make a server keep has a limit, and the oldest ones pay."""

from __future__ import annotations

import asyncio

from broker.limits import RemotingLimits
from broker.remoting.byte_budget import ByteBudget, Holder
from broker.remoting.connection import Connection
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from tests.broker.remoting.raw_peer import Peer, echo
from tests.support.virtual_network import NetworkedLoop, turns


class Fake:
    """A holder that remembers its refusal."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.refused = ""

    def refuse(self, why: str, *args: object) -> None:
        self.refused = why % args


def size_of(holder: Holder) -> int:
    return holder.size if isinstance(holder, Fake) else 0


def test_the_oldest_pays_for_what_exceeds_the_share_of_each() -> None:
    budget = ByteBudget("things", 100, 10)
    old, new, small = Fake(), Fake(), Fake()
    budget.keep(old, 60)
    budget.keep(new, 60)
    budget.keep(small, 10)
    assert budget.total == 100
    budget.keep(new, 61)
    assert old.refused == "more than 100 bytes of things are kept, and its own are the oldest"
    assert (new.refused, small.refused, budget.total) == ("", "", 51)


def test_who_was_done_meanwhile_is_the_newest() -> None:
    budget = ByteBudget("things", 100, 0)
    first, second, third = Fake(), Fake(), Fake()
    budget.keep(first, 40)
    budget.keep(second, 40)
    budget.keep(first, 0)
    budget.keep(first, 40)
    budget.keep(third, 40)
    assert (first.refused == "", second.refused != "", third.refused) == (True, True, "")


def test_whose_bytes_became_fewer_unseen_does_not_pay() -> None:
    budget = ByteBudget("things", 100, 0, size_of)
    reading, stuck, one, new = Fake(60), Fake(40), Fake(1), Fake(50)
    for holder in (reading, stuck):
        budget.keep(holder, holder.size)
    reading.size = 10
    budget.keep(new, new.size)
    assert [each.refused for each in (reading, stuck, new)] == ["", "", ""]
    assert budget.total == 100
    budget.keep(one, 1)
    assert (reading.refused, stuck.refused != "", new.refused) == ("", True, "")


async def test_answers_that_nobody_reads_are_bounded_over_all_connections(
    loop: NetworkedLoop,
) -> None:
    limits = RemotingLimits(unread_max=100_000, unread_each=1_000, write_buffer_high=50_000)
    server = RemotingServer(loop, "10.0.0.1", 10911, echo, limits)
    peers = [Peer() for _ in range(6)]
    for peer in peers:
        loop.join(peer, server.accept())
    for peer in peers[1:]:
        peer.transport.pause_reading()
    for peer in peers:
        peer.request(opaque=1, body=bytes(30_000))
        await turns()
    assert [peer.lost for peer in peers] == [False, True, True, False, False, False]
    for peer in peers[3:]:
        peer.transport.resume_reading()
    await turns(10)
    assert [len(peer.frames) for peer in peers] == [1, 0, 0, 1, 1, 1]


async def test_requests_that_wait_for_a_turn_are_bounded_over_all_connections(
    loop: NetworkedLoop,
) -> None:
    handled: list[int] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        handled.append(request.opaque)

    limits = RemotingLimits(turn_frames=4, unhandled_max=100_000, unhandled_each=1_000)
    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, limits)
    floods, honest = [Peer() for _ in range(6)], Peer()
    for peer in (*floods, honest):
        loop.join(peer, server.accept())
    for number, peer in enumerate(floods):
        peer.request(opaque=number)
    honest.request(opaque=100)
    for number, peer in enumerate(floods):
        for _ in range(300):
            peer.request(opaque=number, body=bytes(60))
    await turns(2000)
    lost = [peer.lost for peer in floods]
    assert any(lost)
    assert not all(lost)
    assert not honest.lost
    assert 100 in handled
    await asyncio.sleep(1)
    honest.request(opaque=101)
    await turns()
    assert handled[-1] == 101
