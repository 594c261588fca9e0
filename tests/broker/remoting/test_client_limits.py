"""What one client, or all of them, may hold on a broker, and what it costs when they leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from broker.delivery.long_polling import HeldPull, LongPolling
from broker.limits import CLIENTS, CONSUME, RemotingLimits
from broker.metrics.topic_metrics import TopicMetrics
from broker.remoting.client import RemotingClient
from broker.remoting.connected_clients import (
    NOTIFIED_PER_TURN,
    Client,
    ConnectedClients,
    ConsumerSettings,
)
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import LanguageCode, RequestCode, ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.frame import Frame
from tests.broker.single_broker import ADDRESS, SingleBroker, pull_ext
from tests.support.virtual_network import NetworkedLoop

CLIENT = Client("c", LanguageCode.JAVA, 409, 0.0)


async def beat(
    broker: SingleBroker,
    client: RemotingClient | None = None,
    *,
    client_id: str = "c",
    producers: Sequence[str] = (),
    consumers: Sequence[str] = (),
    topics: Sequence[str] = (),
) -> Frame:
    subscriptions = [{"topic": topic, "subString": "*"} for topic in topics]
    body = orjson.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": name} for name in producers],
            "consumerDataSet": [
                {"groupName": name, "subscriptionDataSet": subscriptions} for name in consumers
            ],
        }
    )
    asked = client or broker.client
    return await asked.invoke(ADDRESS, RequestCode.HEART_BEAT, {}, (body,))


def groups(count: int, first: int = 0) -> list[str]:
    return [f"g{number}" for number in range(first, first + count)]


async def test_a_heartbeat_of_too_many_groups_is_refused_as_a_whole(broker: SingleBroker) -> None:
    refused = await beat(broker, producers=groups(1000), consumers=groups(25))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "the heartbeat has 1025 groups, at most 1024 are allowed"
    assert broker.broker.context.machine.state.groups == {}
    assert (await beat(broker, producers=groups(1000), consumers=groups(24))).code == 0


async def test_several_heartbeats_bring_no_more_groups_than_one(broker: SingleBroker) -> None:
    for _ in range(2):
        assert (await beat(broker, producers=groups(1024))).code == ResponseCode.SUCCESS
    refused = await beat(broker, producers=["another"])
    assert refused.remark == "the connection is in 1025 groups, at most 1024 are allowed"
    leave = {"clientID": "c", "producerGroup": "g7"}
    await broker.ask(RequestCode.UNREGISTER_CLIENT, leave)
    assert (await beat(broker, producers=["another"])).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("limits", "heartbeat", "remark"),
    [
        ({"members_max": 1}, {"consumers": ["g0"]}, "the group g0 has 1 members, at most 1"),
        ({"members_max": 1}, {"producers": ["g1"]}, "the group g1 has 1 members, at most 1"),
        ({"memberships_max": 2}, {"producers": ["x"]}, "all groups have 2 members, at"),
    ],
)
async def test_groups_and_all_connections_have_a_limit_of_members(
    broker: SingleBroker,
    limits: dict[str, int],
    heartbeat: dict[str, list[str]],
    remark: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.remoting.connected_clients.CLIENTS", CLIENTS._replace(**limits))
    first, second = RemotingClient(broker.loop), RemotingClient(broker.loop)
    for _ in range(2):
        answer = await beat(broker, first, consumers=["g0"], producers=["g1"])
        assert answer.code == ResponseCode.SUCCESS
    refused = await beat(broker, second, **heartbeat)  # type: ignore[arg-type]  # lists
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert (refused.remark or "").startswith(remark)
    await first.close()
    await asyncio.sleep(0.1)
    answer = await beat(broker, second, **heartbeat)  # type: ignore[arg-type]  # lists
    assert answer.code == ResponseCode.SUCCESS
    await second.close()


async def test_names_ids_and_subscriptions_have_limits(broker: SingleBroker) -> None:
    long = "x" * (CLIENTS.name_size_max + 1)

    for answer, remark in (
        (await beat(broker, client_id=long), "the clientID has 513 characters, at most 512"),
        (await beat(broker, producers=[long]), "the name of a group has 513 characters"),
        (
            await beat(broker, consumers=["g"], topics=[long]),
            "a topic that is subscribed to has 513 characters",
        ),
        (
            await beat(broker, consumers=["g"], topics=["t"] * (CLIENTS.subscriptions_max + 1)),
            "a group has 1025 subscriptions, at most 1024 are allowed",
        ),
    ):
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(remark)
    for number in range(CLIENTS.ids_max):
        assert (await beat(broker, client_id=f"c{number}", producers=["p"])).code == 0
    refused = await beat(broker, client_id="another", producers=["p"])
    assert "the connection has used more client ids, at most 64" in (refused.remark or "")


class Counting(dict[str, object]):
    """Counts how often somebody goes through it, or looks something up."""

    steps = 0

    def __iter__(self):  # type: ignore[no-untyped-def]  # as dict has it
        for key in super().__iter__():
            self.steps += 1
            yield key

    def items(self):  # type: ignore[no-untyped-def]  # as dict has it
        self.steps += len(self)
        return super().items()

    def get(self, key, default=None):  # type: ignore[no-untyped-def]  # as dict has it
        self.steps += 1
        return super().get(key, default)


def connections(loop: NetworkedLoop, count: int) -> list[Connection]:
    return [Connection(loop, lambda *_: None, RemotingLimits()) for _ in range(count)]


def test_who_leaves_costs_steps_for_its_own_groups_alone() -> None:
    loop = NetworkedLoop()
    clients = ConnectedClients(loop, lambda _group: True)
    clients.producers, clients._by_name = Counting(), Counting()  # type: ignore[assignment]  # dicts that count steps
    one, *others = connections(loop, 200)
    for number, connection in enumerate(others):
        for group in groups(50, 50 * number):
            clients.add_producer(connection, group, replace(CLIENT, client_id=f"c{number}"))
    clients.add_producer(one, "mine", CLIENT)
    clients.producers.steps = clients._by_name.steps = 0  # type: ignore[attr-defined]  # as above
    one.connection_lost(None)
    assert clients.producers.steps + clients._by_name.steps < 10  # type: ignore[attr-defined]  # as above
    assert "mine" not in clients.producers
    assert clients.producer_named("c") is None
    assert len(clients.producers) == 199 * 50
    loop.close()


def test_a_client_that_came_back_under_its_id_is_found_when_its_old_connection_closes() -> None:
    loop = NetworkedLoop()
    clients = ConnectedClients(loop, lambda _group: True)
    old, new = connections(loop, 2)
    for connection in (old, new):
        clients.add_producer(connection, "g", CLIENT)
    old.connection_lost(None)
    assert clients.producer_named("c") is new
    loop.close()


def test_very_many_members_are_told_in_several_turns() -> None:
    loop = NetworkedLoop()
    clients = ConnectedClients(loop, lambda _group: True)
    members, names = connections(loop, NOTIFIED_PER_TURN // 2), groups(5)
    told: list[tuple[float, str]] = []
    turn = 0

    def push(_code: int, ext: dict[str, str]) -> None:
        told.append((turn, ext["consumerGroup"]))

    for connection in members:
        for group in names:
            clients.add_consumer(connection, group, CLIENT, ConsumerSettings(), ())
    # Slots of a connection cannot be replaced; those that are told are doubles from here on.
    for group in names:
        found = clients.consumers[group]
        found.members = {Told(push, member): client for member, client in found.members.items()}  # type: ignore[misc, arg-type]  # a double

    async def leave() -> None:
        nonlocal turn
        for _ in range(20):  # what was to be told of those who came
            await asyncio.sleep(0)
        told.clear()
        for group in names:
            clients._notify(group)
        while turn < 10:
            turn += 1
            await asyncio.sleep(0)

    loop.run_until_complete(leave())
    assert len(told) == len(names) * len(members)
    by_turn = Counter(at for at, _ in told).values()
    assert len(by_turn) > 1
    assert max(by_turn) <= NOTIFIED_PER_TURN
    loop.close()


class Told:
    """A member that counts."""

    def __init__(self, push: object, member: Connection) -> None:
        self.push = push
        self.member = member


def test_a_connection_has_its_share_of_held_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.delivery.long_polling.CLIENTS", CLIENTS._replace(held_pulls_max=2))
    loop = NetworkedLoop()
    holds = LongPolling(loop)
    one, other = connections(loop, 2)

    def held(connection: Connection) -> bool:
        return holds.hold(HeldPull("t", 0, None, lambda: None, connection), 9.0)

    assert [held(one) for _ in range(3)] == [True, True, False]
    assert held(other)
    one.connection_lost(None)
    assert len(holds) == 1
    holds.close()
    loop.close()


def test_what_held_pulls_want_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "broker.delivery.long_polling.CONSUME", CONSUME._replace(held_expressions_max=100)
    )
    loop = NetworkedLoop()
    holds = LongPolling(loop)
    (one,) = connections(loop, 1)

    def held(size: int) -> bool:
        pull = HeldPull("t", 0, frozenset((1,)), lambda: None, one, size)
        return holds.hold(pull, 9.0)

    assert [held(size) for size in (60, 60, 40, 0, 1)] == [True, False, True, True, False]
    one.connection_lost(None)
    (one,) = connections(loop, 1)
    assert held(100)
    holds.close()
    loop.close()


async def test_a_held_pull_keeps_nothing_of_a_request_but_what_its_answer_needs(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    ext = pull_ext("orders", 0, 0) | {"sysFlag": "6", "junk": "x" * 100_000}
    pulling = asyncio.ensure_future(broker.ask(RequestCode.PULL_MESSAGE, ext, bytes(100_000)))
    await asyncio.sleep(1)
    (held,) = (
        pull
        for pulls in broker.broker.context.delivery.long_polling._by_queue.values()
        for pull in pulls
    )
    (fetch,) = held.run.args  # type: ignore[attr-defined]  # a partial
    request = fetch.done.__self__.request  # of a bound method
    assert (request.ext, request.body) == ({}, b"")
    await broker.send("orders", 0, b"x")
    answer = await pulling
    assert (answer.code, answer.opaque) == (ResponseCode.SUCCESS, request.opaque)


def test_what_is_counted_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "broker.metrics.topic_metrics.CLIENTS", CLIENTS._replace(topic_metrics_max=2)
    )
    meters = TopicMetrics(lambda: 1.0)
    for group in groups(5):
        meters.got.of(("t", group)).add(1, 10)
        meters.returned("t", group, 10)
    assert (len(meters.got), len(meters.sent_back)) == (2, 2)
    meters.got.of(("t", "g0")).add(1, 10)
    assert meters.got["t", "g0"].messages == 2


def test_a_refused_heartbeat_has_changed_nothing() -> None:
    loop = NetworkedLoop()
    clients = ConnectedClients(loop, lambda _group: True)
    (one,) = connections(loop, 1)
    with pytest.raises(RequestError):
        clients.check_room(one, "c", groups(1025), ())
    assert not clients.producers
    loop.close()
