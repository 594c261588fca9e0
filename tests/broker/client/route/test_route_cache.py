"""The route cache: what it keeps, whom it asks, and when it asks again."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.client.errors import (
    BadAnswerError,
    NameServersUnreachableError,
    NoLeaderError,
    TopicNotFoundError,
)
from broker.client.message import MessageQueue
from broker.client.route.route_cache import Routes
from broker.client.route.topic_route import TopicRoute
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from tests.broker.client.fake_cluster import NAME_SERVER
from tests.broker.client.route.routes_of_a_cluster import start
from tests.support.virtual_network import NetworkedLoop


async def test_queues_are_new_that_the_first_answer_did_not_show(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    known, added = (MessageQueue("T", "broker-a", queue_id) for queue_id in (1, 2))
    await routes.refresh("T")
    cluster.topics["T"] = 3
    await routes.refresh("T")
    assert (routes.is_new(known), routes.is_new(added)) == (False, True)
    first = MessageQueue("other", "broker-a", 0)
    with pytest.raises(TopicNotFoundError):
        await routes.refresh("other")
    cluster.topics["other"] = 1
    await asyncio.sleep(1)
    await routes.refresh("other")
    assert routes.is_new(first)
    await cluster.close()


async def test_no_answer_shows_no_queue_to_be_new(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    await cluster.stop_name_server()
    with pytest.raises(NameServersUnreachableError):
        await routes.refresh("T")
    await cluster._name_server.start()
    await routes.refresh("T")
    assert not routes.is_new(MessageQueue("T", "broker-a", 1))
    await cluster.close()


async def test_lookups_at_the_same_time_are_one(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    found = await asyncio.gather(*(routes.get("T") for _ in range(50)))
    assert all(route is found[0] for route in found)
    assert cluster.lookups == ["T"]
    routes.close()
    await cluster.close()


async def test_known_topics_are_looked_up_every_thirty_seconds(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    changes: list[TopicRoute] = []
    routes.start()
    await routes.get("T")
    routes.on_change(changes.append)
    cluster.topics["T"] = 3
    await asyncio.sleep(31)
    assert [len(route.write_queues) for route in changes] == [3]
    await asyncio.sleep(30)
    assert len(cluster.lookups) == 3
    assert len(changes) == 1
    routes.close()
    await cluster.close()


async def test_another_name_server_is_asked_when_one_is_dead(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop, "10.0.0.1:9000", "10.0.0.1:9001")
    route = await routes.get("T")
    assert route.leader("broker-a") == "10.0.0.1:10911"
    assert routes.name_servers[0] == NAME_SERVER
    routes.close()
    await cluster.close()


async def test_a_name_server_that_was_just_started_is_not_believed_alone(
    loop: NetworkedLoop,
) -> None:
    def know_nothing(connection: Connection, request: Frame) -> None:
        connection.respond(request, ResponseCode.TOPIC_NOT_EXIST, "what?")

    empty = RemotingServer(loop, "10.0.0.1", 9000, know_nothing)
    await empty.start()
    cluster, _, routes = await start(loop, "10.0.0.1:9000")
    assert (await routes.get("T")).leaders()
    with pytest.raises(TopicNotFoundError):
        await routes.get("U")
    routes.close()
    await empty.stop()
    await cluster.close()


async def test_all_dead_name_servers_are_named(loop: NetworkedLoop) -> None:
    routes = Routes(loop, RemotingClient(loop), ["10.0.0.1:1", "10.0.0.1:2"], Random(1))
    with pytest.raises(NameServersUnreachableError) as caught:
        await routes.get("T")
    assert list(caught.value.causes) == ["10.0.0.1:1", "10.0.0.1:2"]
    assert caught.value.retriable
    routes.close()


async def test_nonsense_for_a_route_is_a_bad_answer(loop: NetworkedLoop) -> None:
    def babble(connection: Connection, request: Frame) -> None:
        connection.respond(request, body=(b'{"brokerDatas":7}',))

    server = RemotingServer(loop, "10.0.0.1", 9000, babble)
    await server.start()
    routes = Routes(loop, RemotingClient(loop), ["10.0.0.1:9000"], Random(1))
    with pytest.raises(NameServersUnreachableError, match="cannot be read") as caught:
        await routes.get("T")
    assert not isinstance(caught.value, BadAnswerError)
    routes.close()
    await server.stop()


async def test_a_topic_whose_brokers_are_all_down_keeps_its_queues(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    before = await routes.get("T")
    del cluster.topics["T"]
    with pytest.raises(TopicNotFoundError):
        await routes.refresh("T")
    route = routes.cached("T")
    assert route is not None
    assert route.write_queues == before.write_queues
    with pytest.raises(NoLeaderError):
        routes.leader(MessageQueue("T", "broker-a", 0))
    routes.close()
    await cluster.close()


async def test_who_is_cancelled_leaves_the_look_up_to_the_others(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    first, second = (asyncio.ensure_future(routes.get("T")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).leaders()
    assert first.cancelled()
    routes.close()
    await cluster.close()
