"""When a client closes its connections to brokers that lead no more."""

from __future__ import annotations

import asyncio
from random import Random

from broker.client.route.route_cache import LEAVE_SECONDS, Routes
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.client.fake_cluster import NAME_SERVER, Cluster
from tests.support.virtual_network import NetworkedLoop


async def test_connections_to_brokers_that_lead_no_more_are_closed_once_nothing_waits_there(
    loop: NetworkedLoop,
) -> None:
    cluster = Cluster(loop)
    cluster.topics["T"] = 1
    (old, other) = await cluster.start(2)
    remoting = RemotingClient(loop)
    routes = Routes(loop, remoting, [NAME_SERVER], Random(1))
    routes.start()
    await routes.get("T")
    queue = {"topic": "T", "queueId": "0"}
    for broker in (old, other):
        await remoting.invoke(broker.address, RequestCode.GET_MAX_OFFSET, queue)
    pull = {**queue, "queueOffset": "0", "maxMsgNums": "1"}
    waiting = remoting.invoke_nowait(old.address, RequestCode.PULL_MESSAGE, pull, timeout=90)
    old.leading = False
    await asyncio.sleep(31)  # nobody leads its group, and it may lead it again
    assert old.server.connections
    new = await cluster.add(old.group)
    await asyncio.sleep(35)
    assert old.server.connections
    old.store("T", 0, b"x")
    assert (await waiting).code == ResponseCode.SUCCESS
    await remoting.invoke(new.address, RequestCode.GET_MAX_OFFSET, queue)
    await asyncio.sleep(LEAVE_SECONDS + 0.1)
    assert not old.server.connections
    assert other.server.connections
    assert new.server.connections
    routes.close()
    await remoting.close()
    await cluster.close()


async def test_an_older_route_of_another_topic_keeps_no_connection_to_the_old_leader(
    loop: NetworkedLoop,
) -> None:
    """It would hold a broker that drains until that topic is looked up, for up to 30 s."""
    cluster = Cluster(loop)
    cluster.topics.update({"T": 1, "U": 1})
    (old,) = await cluster.start(1)
    remoting = RemotingClient(loop)
    routes = Routes(loop, remoting, [NAME_SERVER], Random(1))
    for topic in ("T", "U"):
        await routes.get(topic)
    queue = {"topic": "T", "queueId": "0"}
    await remoting.invoke(old.address, RequestCode.GET_MAX_OFFSET, queue)
    old.leading = False
    new = await cluster.add(old.group)
    await routes.refresh("T")
    await remoting.invoke(new.address, RequestCode.GET_MAX_OFFSET, queue)
    await asyncio.sleep(LEAVE_SECONDS + 0.1)
    assert not old.server.connections
    assert new.server.connections
    routes.close()
    await remoting.close()
    await cluster.close()


async def test_a_connection_is_left_a_second_after_the_last_change_of_a_route(
    loop: NetworkedLoop,
) -> None:
    """An earlier change, of another topic, brings that no forward: a new leader needs the time to
    learn of this client."""
    cluster = Cluster(loop)
    cluster.topics.update({"T": 1, "U": 1})
    (old,) = await cluster.start(1)
    remoting = RemotingClient(loop)
    routes = Routes(loop, remoting, [NAME_SERVER], Random(1))
    await routes.get("T")
    queue = {"topic": "T", "queueId": "0"}
    await remoting.invoke(old.address, RequestCode.GET_MAX_OFFSET, queue)
    await asyncio.sleep(2 * LEAVE_SECONDS)
    await routes.get("U")
    await asyncio.sleep(LEAVE_SECONDS - 0.1)
    old.leading = False
    await cluster.add(old.group)
    for topic in ("T", "U"):
        await routes.refresh(topic)
    await asyncio.sleep(LEAVE_SECONDS - 0.1)
    assert old.server.connections
    await asyncio.sleep(0.2)
    assert not old.server.connections
    routes.close()
    await remoting.close()
    await cluster.close()
