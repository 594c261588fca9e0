"""The route cache: what it reads, whom it asks, and when it asks again."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.client.errors import (
    BadAnswerError,
    ClosedError,
    NameServersUnreachableError,
    NoLeaderError,
    TopicNotFoundError,
)
from broker.client.message import MessageQueue
from broker.client.route.route_cache import (
    BACKOFF_MIN_SECONDS,
    LEAVE_SECONDS,
    OUTAGE_OVER_SECONDS,
    Routes,
)
from broker.client.route.topic_route import TopicRoute, decode_route
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.addresses import parse_name_servers
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from tests.broker.client.fake_cluster import NAME_SERVER, Broker, Cluster
from tests.support.virtual_network import NetworkedLoop

BARE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",2:"10.0.0.3:10911"},"brokerName":"b",'
    b'"cluster":"c"}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,'
    b'"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":2}]}'
)


@pytest.mark.parametrize("count", [b"-1", b"65537", b"2147483647", b"9223372036854775807"])
def test_a_route_with_more_queues_than_there_can_be_is_refused(count: bytes) -> None:
    with pytest.raises(ValueError, match=r"T has .* queues on b"):
        decode_route("T", BARE.replace(b'"writeQueueNums":2', b'"writeQueueNums":%b' % count))


async def start(loop: NetworkedLoop, *extra: str) -> tuple[Cluster, Broker, Routes]:
    cluster = Cluster(loop)
    cluster.topics["T"] = 2
    (broker,) = await cluster.start()
    routes = Routes(loop, RemotingClient(loop), [*extra, NAME_SERVER], Random(1))
    return cluster, broker, routes


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


def test_a_route_with_bare_keys_is_read() -> None:
    route = decode_route("T", BARE)
    assert route.brokers == {"b": {0: "10.0.0.1:10911", 2: "10.0.0.3:10911"}}
    assert [queue.queue_id for queue in route.write_queues] == [0, 1]
    assert [queue.queue_id for queue in route.read_queues] == [0]


@pytest.mark.parametrize(("perm", "writable", "readable"), [(6, 2, 1), (4, 0, 1), (2, 2, 0)])
def test_permissions_say_which_queues_there_are(perm: int, writable: int, readable: int) -> None:
    route = decode_route("T", BARE.replace(b'"perm":6', b'"perm":%d' % perm))
    assert (len(route.write_queues), len(route.read_queues)) == (writable, readable)


def test_name_servers_are_separated_by_semicolons() -> None:
    assert parse_name_servers("a:1; b:2;") == ["a:1", "b:2"]


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


async def test_waits_grow_with_the_outage_and_stay_bounded(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    await routes.get("T")
    waits: list[float] = []
    began = loop.time()
    while loop.time() - began < 20:
        before = loop.time()
        await routes.recover("T", "broker-a")
        waits.append(loop.time() - before)
    assert waits[0] == 0
    assert waits[1] < 0.03
    assert max(waits) <= 0.5 * 1.25
    assert all(wait >= 0.3 for wait in waits[-5:])
    routes.close()
    await cluster.close()


async def test_topics_of_one_outage_are_looked_up_in_turn(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    cluster.topics["U"] = 2
    for _ in range(20):
        await asyncio.gather(*(routes.recover(topic, "broker-a") for topic in "TU"))
    assert len(cluster.lookups) == 20 + 1  # the first failure looks its own topic up by itself
    assert abs(cluster.lookups.count("T") - cluster.lookups.count("U")) <= 3
    routes.close()
    await cluster.close()


async def test_a_new_leader_is_found_for_all_topics_at_once(loop: NetworkedLoop) -> None:
    cluster, broker, routes = await start(loop)
    cluster.topics["U"] = 2
    for topic in "TU":
        await routes.get(topic)
    for _ in range(20):
        await asyncio.gather(*(routes.recover(topic, "broker-a") for topic in "TU"))
    new = await cluster.fail_over(broker)
    cluster.lookups.clear()
    await asyncio.gather(*(routes.recover(topic, "broker-a") for topic in "TU"))
    assert sorted(cluster.lookups) == ["T", "U"]
    for topic in "TU":
        assert routes.leader(MessageQueue(topic, "broker-a", 0)) == new.address
    routes.close()
    await cluster.close()


async def test_a_topic_that_was_just_not_found_is_not_asked_for_again_at_once(
    loop: NetworkedLoop,
) -> None:
    cluster, _, routes = await start(loop)
    for _ in range(5):
        asked = len(cluster.lookups)
        await routes.recover("U", "U")
        with pytest.raises(TopicNotFoundError):
            await routes.get("U")
        assert len(cluster.lookups) == asked + 1
    cluster.topics["U"] = 1
    await asyncio.sleep(BACKOFF_MIN_SECONDS)
    assert (await routes.get("U")).leaders()
    routes.close()
    await cluster.close()


async def test_who_needs_a_leader_sleeps_until_there_is_one(loop: NetworkedLoop) -> None:
    cluster, broker, routes = await start(loop)
    await routes.get("T")
    topics = dict(cluster.topics)
    cluster.topics.clear()
    with pytest.raises(TopicNotFoundError):
        await routes.refresh("T")
    patient = asyncio.ensure_future(routes.recover("T", "broker-a", until_led=True))
    given_up = asyncio.ensure_future(routes.recover("T", "broker-a", until_led=True))
    for _ in range(20):
        await routes.recover("T", "broker-a")  # who does not need one is told of each look-up
        given_up.cancel()
    assert not patient.done()
    cluster.topics.update(topics)
    async with asyncio.timeout(1):
        await patient
    assert routes.leader(MessageQueue("T", "broker-a", 0)) == broker.address
    routes.close()
    await cluster.close()


async def test_who_sleeps_without_a_leader_keeps_the_look_ups_going(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    await routes.get("T")
    topics = dict(cluster.topics)
    cluster.topics.clear()
    with pytest.raises(TopicNotFoundError):
        await routes.refresh("T")
    asked = len(cluster.lookups)
    waiting = asyncio.ensure_future(routes.recover("T", "broker-a", until_led=True))
    await asyncio.sleep(10)
    assert 20 < len(cluster.lookups) - asked < 80
    cluster.topics.update(topics)
    async with asyncio.timeout(1):
        await waiting
    asked = len(cluster.lookups)
    await asyncio.sleep(10)
    assert len(cluster.lookups) == asked
    waiting = asyncio.ensure_future(routes.recover("T", "broker-a", until_led=True))
    cluster.topics.clear()
    await asyncio.sleep(5)
    assert not waiting.done()
    routes.close()
    with pytest.raises(ClosedError):
        await waiting
    await cluster.close()


async def test_closing_tells_who_waits_for_the_look_up_of_another_topic(
    loop: NetworkedLoop,
) -> None:
    loop.unreachable.add(9999)
    slow = Routes(loop, RemotingClient(loop), ["10.0.0.1:9999"], Random(1))
    early = asyncio.ensure_future(slow.recover("T", "broker-a"))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(slow.recover(topic, "broker-a")) for topic in "TU"]
    await asyncio.sleep(0.1)
    slow.close()
    async with asyncio.timeout(10):
        ended = await asyncio.gather(early, *waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [ClosedError] * 3


async def test_closing_tells_who_waits_that_it_is_closed_and_cancels_nobody(
    loop: NetworkedLoop,
) -> None:
    cluster, _, routes = await start(loop)
    await routes.get("T")
    for _ in range(20):
        await routes.recover("T", "broker-a")
    loop.unreachable.add(9999)
    slow = Routes(loop, RemotingClient(loop), ["10.0.0.1:9999"], Random(1))
    waiting = [
        asyncio.ensure_future(each)
        for each in (
            routes.recover("T", "broker-a"),
            slow.get("T"),
            slow.recover("T", "broker-a"),
        )
    ]
    await asyncio.sleep(0.01)
    routes.close()
    slow.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [ClosedError] * 3
    for late in (routes.recover("T", "broker-a"), routes.refresh("T")):
        with pytest.raises(ClosedError):
            await late
    await cluster.close()


async def test_closing_finds_who_waits_though_another_outage_might_have_begun(
    loop: NetworkedLoop,
) -> None:
    cluster, _, routes = await start(loop)
    await routes.recover("T", "broker-a")
    early = asyncio.ensure_future(routes.recover("T", "broker-a"))
    await asyncio.sleep(0)
    loop.stall(2 * OUTAGE_OVER_SECONDS)  # the end of the wait comes late
    late = asyncio.ensure_future(routes.recover("T", "broker-a"))
    await asyncio.sleep(0)
    routes.close()
    async with asyncio.timeout(10):
        ended = await asyncio.gather(early, late, return_exceptions=True)
    assert [type(each) for each in ended] == [ClosedError] * 2
    await cluster.close()


async def test_a_wait_that_ends_while_the_client_is_being_closed_is_told_so(
    loop: NetworkedLoop,
) -> None:
    loop.unreachable.add(9999)
    slow = Routes(loop, RemotingClient(loop), ["10.0.0.1:9999"], Random(1))
    waiting: list[asyncio.Future[None]] = []
    for _ in range(2):  # one for the look-up, one for the next
        waiting.append(asyncio.ensure_future(slow.recover("T", "broker-a")))
        await asyncio.sleep(0)
    slow.close()
    loop.stall(1)
    async with asyncio.timeout(10):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [ClosedError] * 2


async def test_who_is_cancelled_leaves_the_look_up_to_the_others(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    first, second = (asyncio.ensure_future(routes.get("T")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).leaders()
    assert first.cancelled()
    routes.close()
    await cluster.close()


async def test_after_quiet_times_a_failure_is_a_new_outage(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    for _ in range(20):
        await routes.recover("T", "broker-a")
    await asyncio.sleep(1)
    before = loop.time()
    await routes.recover("T", "broker-a")
    assert loop.time() == before
    routes.close()
    await cluster.close()


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
