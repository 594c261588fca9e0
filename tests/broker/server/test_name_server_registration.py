"""A broker keeps itself known at every NameServer, whatever happens to them."""

from __future__ import annotations

import asyncio
import gc
import logging
import string
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from broker.nameserver.registrations import Registration
from broker.nameserver.route_table import RegisterResult
from broker.nameserver.server import NameServer
from broker.remoting.protocol.frame import FRAME_SIZE_MAX
from broker.remoting.protocol.java_json import encode_json
from broker.server.name_server_registration import Announcement, Registrar
from broker.topics_and_groups import TopicConfig
from tests.support.virtual_network import NetworkedLoop, turns

FIRST, SECOND = "10.0.0.1:9876", "10.0.0.1:9877"
N0, N1 = "10.0.0.1:10911", "10.0.0.2:10911"
TOPIC = {"perm": 6, "readQueueNums": 4, "topicName": "T", "writeQueueNums": 4}
LEADER = Announcement(
    cluster="c",
    broker_name="broker-a",
    broker_id=0,
    address=N0,
    http_address="10.0.0.1:8080",
    term=3,
    data_version={"counter": 1, "timestamp": 5},
    topics={"T": TOPIC},
)


class Member:
    """A broker that announces what the test says."""

    def __init__(self, loop: NetworkedLoop, *nameservers: str) -> None:
        self.announcement = LEADER
        self.asked = 0
        self.registrar = Registrar(loop, nameservers or (FIRST,), self._announce)

    def _announce(self) -> Announcement:
        self.asked += 1
        return self.announcement


async def nameserver(loop: NetworkedLoop, port: int = 9876) -> NameServer:
    server = NameServer(loop, "10.0.0.1", port)
    await server.start()
    return server


async def test_a_broker_registers_with_every_nameserver_at_once(loop: NetworkedLoop) -> None:
    servers = [await nameserver(loop, 9876), await nameserver(loop, 9877)]
    member = Member(loop, FIRST, SECOND)
    member.registrar.start()
    await turns(10)
    assert [server.routes.topics() for server in servers] == [["T"], ["T"]]
    assert member.registrar.states == {FIRST: "registered", SECOND: "registered"}
    assert servers[0].routes.cluster_info()["httpAddrTable"] == {N0: "10.0.0.1:8080"}
    await member.registrar.stop()


async def test_a_leader_tells_who_is_left_of_its_group(loop: NetworkedLoop) -> None:
    server = await nameserver(loop)
    leader, removed = Member(loop), Member(loop)
    leader.announcement = LEADER._replace(members=(N0,))
    removed.announcement = LEADER._replace(address=N1, broker_id=2)
    for member in (leader, removed):
        member.registrar.start()
        await turns(10)
    for member in (removed, leader):
        await member.registrar.stop()
    assert server.routes.gone.as_json()["broker-a"]["members"] == {N0: 0}


async def test_a_broker_registers_again_every_30_seconds(loop: NetworkedLoop) -> None:
    await nameserver(loop)
    member = Member(loop)
    member.registrar.start()
    await asyncio.sleep(95)
    assert member.asked == 4
    await member.registrar.stop()


async def test_registering_twice_in_a_turn_is_registering_once(loop: NetworkedLoop) -> None:
    await nameserver(loop)
    member = Member(loop)
    member.registrar.register_now()
    member.registrar.register_now()
    await turns(10)
    assert member.asked == 1
    member.registrar.register_now()
    await turns(10)
    assert member.asked == 2
    await asyncio.sleep(29)
    assert member.asked == 2
    await member.registrar.stop()


async def test_only_what_nameservers_go_by_is_told_at_once(loop: NetworkedLoop) -> None:
    server = await nameserver(loop)
    new_table = {"topics": {}, "data_version": {"counter": 2, "timestamp": 6}}
    cases: list[tuple[int, dict[str, Any], int]] = [
        (0, {}, 0),
        (0, {"term": 4}, 1),
        (0, new_table, 1),
        (0, {"broker_id": 2}, 1),
        (2, {"term": 4, **new_table}, 0),
        (2, {"members": (N0, N1)}, 1),
        (2, {"broker_id": 0}, 1),
    ]
    seen = _count_registrations(server)
    for broker_id, change, told in cases:
        member = Member(loop)
        member.announcement = LEADER._replace(broker_id=broker_id)
        member.registrar.start()
        await turns(10)
        seen.clear()
        member.announcement = member.announcement._replace(**change)
        member.registrar.register_now()
        await turns(10)
        assert len(seen) == told, (broker_id, change)
        await asyncio.sleep(31)
        assert len(seen) == told + 1, (broker_id, change)
        await member.registrar.stop()
        server.routes.unregister("broker-a", N0, server.server.connections[0].number)


def _count_registrations(server: NameServer) -> list[Registration]:
    seen: list[Registration] = []
    register = server.routes.register

    def counted(registration: Registration, channel: int, host: str = "") -> RegisterResult:
        seen.append(registration)
        return register(registration, channel, host)

    server.routes.register = counted  # type: ignore[method-assign]  # a double
    return seen


async def test_a_new_topic_is_known_as_soon_as_the_broker_says_so(loop: NetworkedLoop) -> None:
    server = await nameserver(loop)
    member = Member(loop)
    member.registrar.start()
    await turns(10)
    member.announcement = LEADER._replace(
        data_version={"counter": 2, "timestamp": 6},
        topics={"T": TOPIC, "U": TOPIC},
    )
    member.registrar.register_now()
    await turns(10)
    assert server.routes.topics() == ["T", "U"]
    await member.registrar.stop()


async def test_a_dead_nameserver_does_not_keep_the_others_from_knowing(loop: NetworkedLoop) -> None:
    server = await nameserver(loop, 9877)
    member = Member(loop, FIRST, SECOND)
    member.registrar.start()
    await turns(10)
    assert server.routes.topics() == ["T"]
    assert member.registrar.states == {
        FIRST: "unreachable: 10.0.0.1:9876: nobody listens on 9876",
        SECOND: "registered",
    }
    await member.registrar.stop()


async def test_a_nameserver_that_comes_back_soon_knows_the_broker(loop: NetworkedLoop) -> None:
    first_life = await nameserver(loop)
    member = Member(loop)
    member.registrar.start()
    await turns(10)
    await first_life.stop()
    await asyncio.sleep(5)
    second_life = await nameserver(loop)
    await asyncio.sleep(2)
    assert second_life.routes.topics() == ["T"]
    await member.registrar.stop()


async def test_a_lost_connection_is_made_again_soon(loop: NetworkedLoop) -> None:
    server = await nameserver(loop)
    member = Member(loop)
    member.registrar.start()
    await turns(10)
    server.server.connections[0].abort()
    await turns()
    assert server.routes.topics() == []
    await asyncio.sleep(2)
    assert server.routes.topics() == ["T"]
    await member.registrar.stop()


async def test_a_refused_leader_waits_for_its_next_turn(loop: NetworkedLoop) -> None:
    server = await nameserver(loop)
    new_leader, deposed = Member(loop), Member(loop)
    new_leader.announcement = LEADER._replace(address=N1, term=4)
    new_leader.registrar.start()
    await turns(10)
    deposed.registrar.start()
    await asyncio.sleep(20)
    assert deposed.asked == 1
    assert deposed.registrar.states[FIRST] == (
        "refused: broker-a: a leader of term 4 is known, not 3 (request failed)"
    )
    deposed.announcement = LEADER._replace(broker_id=1, term=4)
    deposed.registrar.register_now()
    await turns(10)
    info = server.routes.cluster_info()["brokerAddrTable"]
    assert info["broker-a"]["brokerAddrs"] == {0: N1, 1: N0}
    await new_leader.registrar.stop()
    await deposed.registrar.stop()


async def test_a_stopped_broker_is_gone_at_once_and_stays_gone(loop: NetworkedLoop) -> None:
    server = await nameserver(loop)
    member = Member(loop, FIRST, SECOND)
    member.registrar.start()
    await turns(10)
    begin = loop.time()
    await member.registrar.stop()
    assert loop.time() == pytest.approx(begin)
    assert server.routes.topics() == []
    member.registrar.register_now()
    await asyncio.sleep(60)
    assert server.routes.topics() == []


async def test_stopping_while_a_nameserver_is_silent_leaves_no_error_unseen(
    loop: NetworkedLoop,
) -> None:
    complaints: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    await nameserver(loop)
    loop.unreachable.add(9876)
    member = Member(loop)
    member.registrar.start()
    await turns(10)
    await member.registrar.stop()
    await turns(10)
    gc.collect()
    assert complaints == []


async def test_who_is_no_member_of_its_group_is_not_registered(loop: NetworkedLoop) -> None:
    server = await nameserver(loop)
    member = Member(loop)
    member.announcement = LEADER._replace(broker_id=4, is_member=False)
    member.registrar.start()
    await asyncio.sleep(100)
    assert server.routes.cluster_info()["brokerAddrTable"] == {}
    member.announcement = LEADER._replace(broker_id=4)  # it is added
    member.registrar.register_now()
    await turns(10)
    assert server.routes.cluster_info()["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {4: N0}
    member.announcement = LEADER._replace(broker_id=4, is_member=False)  # and removed
    member.registrar.register_now()
    await turns(10)
    assert server.routes.cluster_info()["brokerAddrTable"] == {}
    await asyncio.sleep(100)
    assert server.routes.cluster_info()["brokerAddrTable"] == {}


def many_topics(count: int) -> dict[str, dict[str, object]]:
    """With the longest names, which do not compress."""
    rng = Random(1)
    letters = string.ascii_letters + string.digits
    names = ["".join(rng.choices(letters, k=127)) for _ in range(count)]
    return {name: TopicConfig(name, 8, 8).as_json() | {"topicSysFlag": 0} for name in sorted(names)}


@contextmanager
def logged() -> Iterator[list[str]]:
    """The lines that registration logs meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]  # notes the lines
    logger = logging.getLogger("dledger.registration")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


@pytest.mark.minutes
async def test_a_group_with_more_topics_than_a_frame_holds_as_json_is_registered(
    loop: NetworkedLoop,
) -> None:
    server = await nameserver(loop)
    member = Member(loop)
    topics = many_topics(60_000)
    member.announcement = LEADER._replace(topics=topics)
    assert len(encode_json(topics)) > FRAME_SIZE_MAX
    member.registrar.start()
    await asyncio.sleep(1)
    assert member.registrar.states == {FIRST: "registered"}
    assert len(server.routes.topics()) == 60_000
    route = server.routes.route(next(iter(topics)))
    assert route is not None
    assert route["queueDatas"][0]["writeQueueNums"] == 8
    await member.registrar.stop()


@pytest.mark.minutes
async def test_a_group_with_more_topics_than_any_frame_holds_says_those_that_fit(
    loop: NetworkedLoop,
) -> None:
    server = await nameserver(loop)
    member = Member(loop)
    member.announcement = LEADER._replace(topics=many_topics(120_000))
    with logged() as lines:
        member.registrar.start()
        await asyncio.sleep(1)
    assert member.registrar.states == {FIRST: "registered"}
    told = len(server.routes.topics())
    assert 80_000 < told < 120_000
    assert f"{120_000 - told} of 120000 topics have no room in a registration" in lines[0]
    await member.registrar.stop()


async def test_the_log_says_why_a_registration_is_refused(
    loop: NetworkedLoop,
) -> None:
    await nameserver(loop)
    member = Member(loop)
    member.announcement = LEADER._replace(topics={"T": TOPIC | {"perm": "x"}})
    with logged() as lines:
        member.registrar.start()
        await turns(10)
    assert lines == [f"NameServer {FIRST}: refused: perm is not an integer: 'x' (request failed)"]
    await member.registrar.stop()


async def test_a_large_table_is_not_told_again_for_each_topic(loop: NetworkedLoop) -> None:
    server = await nameserver(loop)
    member = Member(loop)
    topics = many_topics(10_000)
    member.announcement = LEADER._replace(topics=topics)
    member.registrar.start()
    await turns(10)
    seen = _count_registrations(server)
    for counter in range(2, 102):
        member.announcement = LEADER._replace(
            topics=dict(topics), data_version={"counter": counter, "timestamp": 5}
        )
        member.registrar.register_now()
        await asyncio.sleep(0.001)
    await asyncio.sleep(1)
    assert 1 <= len(seen) <= 2
    assert seen[-1].table.data_version.counter == 101
    await member.registrar.stop()
