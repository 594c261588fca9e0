"""What a command's calls to servers come to."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from broker.cluster_admin.admin_client import (
    ANSWER_SECONDS,
    ASK_AGAIN_SECONDS,
    LEADER_SECONDS,
    NAMESRV_SECONDS,
    AdminClient,
    NoLeaderError,
    NoTopicError,
    RefusedError,
    TopicRoute,
    run_admin,
    when_led,
)
from broker.cluster_admin.broker_names import BrokerName
from broker.cluster_admin.cluster_view import VIEW_SECONDS, view_node
from broker.cluster_admin.message_lookup import find_by_id, trace_events
from broker.command_error import CommandError
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import MISSING, RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from dledger.wire.endpoint import Endpoint
from tests.support.virtual_network import NetworkedLoop

ADDRESS = "10.0.0.1:10911"


async def test_a_command_waits_for_a_slow_broker_and_a_view_does_not(loop: NetworkedLoop) -> None:
    def slow(connection: Connection, request: Frame) -> None:
        loop.call_later(ANSWER_SECONDS - 1, connection.respond, request)

    server = RemotingServer(loop, "10.0.0.1", 10911, slow)
    await server.start()
    client = RemotingClient(loop)
    admin = AdminClient(client, ADDRESS)

    assert (await admin.ask(ADDRESS, RequestCode.UPDATE_AND_CREATE_TOPIC)).code == 0
    began = loop.time()
    with pytest.raises(CommandError, match="no answer from"):
        await view_node(admin, ADDRESS)
    assert loop.time() - began == pytest.approx(VIEW_SECONDS, abs=0.5)

    await asyncio.sleep(ANSWER_SECONDS)
    await client.close()
    await server.stop()


def test_a_command_that_is_stopped_before_it_begins_is_not_complained_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> asyncio.AbstractEventLoop:
        raise KeyboardInterrupt

    async def nothing(_admin: AdminClient) -> None: ...

    monkeypatch.setattr(asyncio.events, "new_event_loop", interrupted)
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            run_admin(ADDRESS, nothing)
        gc.collect()
    assert not complaints


ELECTING = (
    NoLeaderError("broker-a has no leader now"),
    RefusedError(ADDRESS, ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader"),
)


async def test_a_command_outlives_an_election(loop: NetworkedLoop) -> None:
    began, failures = loop.time(), list(ELECTING)

    async def work() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert await when_led(work) == "done"
    assert loop.time() - began == pytest.approx(2 * ASK_AGAIN_SECONDS)


@pytest.mark.parametrize("error", ELECTING)
async def test_a_group_that_elects_nobody_fails_a_command_in_the_end(
    loop: NetworkedLoop, error: CommandError
) -> None:
    async def work() -> None:
        raise error

    began = loop.time()
    with pytest.raises(type(error)):
        await when_led(work)
    assert LEADER_SECONDS <= loop.time() - began < LEADER_SECONDS + 1


async def test_what_is_refused_for_good_is_not_asked_again(loop: NetworkedLoop) -> None:
    async def work() -> None:
        raise RefusedError(ADDRESS, ResponseCode.TOPIC_NOT_EXIST, "no such topic")

    began = loop.time()
    with pytest.raises(RefusedError, match="no such topic"):
        await when_led(work)
    assert loop.time() == began


async def test_no_topic_of_traces_means_that_no_client_sends_them(
    loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def route(_: AdminClient, topic: str) -> TopicRoute:
        raise NoTopicError(topic)

    monkeypatch.setattr(AdminClient, "route", route)
    client = RemotingClient(loop)
    with pytest.raises(CommandError, match="no client has sent traces; switch on message trace"):
        await trace_events(AdminClient(client, ADDRESS), "7F0000010A5C2B1D4E8F000001020304")
    await client.close()


@pytest.mark.parametrize("addresses", [{}, {2: ADDRESS}])
async def test_a_message_is_not_called_unknown_while_who_may_have_it_has_no_leader(
    loop: NetworkedLoop, addresses: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broker_names(_: AdminClient) -> list[BrokerName]:
        return [BrokerName("broker-a", "DefaultCluster", addresses)]

    monkeypatch.setattr(AdminClient, "broker_names", broker_names)

    client = RemotingClient(loop)
    with pytest.raises(NoLeaderError, match="broker-a, which may have it, has no leader now"):
        await find_by_id(AdminClient(client, ADDRESS), "7F00000100002A9F0000000000001000")
    await client.close()


@pytest.mark.parametrize(
    ("ext", "told"),
    [({}, "refused: entry 5, byte 4160: body CRC .request failed."), ({MISSING: "true"}, None)],
)
async def test_a_message_that_cannot_be_read_is_not_called_unknown(
    loop: NetworkedLoop, ext: dict[str, str], told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "10.0.0.1:10912"

    async def broker_names(_: AdminClient) -> list[BrokerName]:
        return [BrokerName(at, "DefaultCluster", {0: at}) for at in (ADDRESS, other)]

    async def unregistered(_: AdminClient) -> list[str]:
        return []

    monkeypatch.setattr(AdminClient, "unregistered", unregistered)
    monkeypatch.setattr(AdminClient, "broker_names", broker_names)

    def damaged(connection: Connection, request: Frame) -> None:
        remark = "entry 5, byte 4160: body CRC"
        connection.respond(request, ResponseCode.SYSTEM_ERROR, remark, ext)

    def missing(connection: Connection, request: Frame) -> None:
        remark = "can not find message"
        connection.respond(request, ResponseCode.SYSTEM_ERROR, remark, {MISSING: "true"})

    servers = [
        RemotingServer(loop, *Endpoint.parse(address), answer)
        for address, answer in ((ADDRESS, damaged), (other, missing))
    ]
    for server in servers:
        await server.start()
    client = RemotingClient(loop)
    looking = find_by_id(AdminClient(client, ADDRESS), "0A00000100002A9F0000000000001000")
    if told is None:
        assert await looking == []
    else:
        with pytest.raises(RefusedError, match=told):
            await looking
    await client.close()
    for server in servers:
        await server.stop()


async def test_a_nameserver_that_hangs_does_not_hide_the_next_one(loop: NetworkedLoop) -> None:
    def hangs(_connection: Connection, _request: Frame) -> None: ...

    def answers(connection: Connection, request: Frame) -> None:
        connection.respond(request, body=[b'{"brokerAddrTable": {"a": {"brokerAddrs": {}}}}'])

    servers = [
        RemotingServer(loop, "10.0.0.1", 9876 + at, serve)
        for at, serve in enumerate((hangs, answers))
    ]
    for server in servers:
        await server.start()
    client = RemotingClient(loop)
    began = loop.time()
    both = AdminClient(client, "10.0.0.1:9876;10.0.0.1:9877")
    assert [each.name for each in await both.broker_names()] == ["a"]
    assert loop.time() - began == pytest.approx(NAMESRV_SECONDS, abs=0.5)
    with pytest.raises(CommandError, match=r"no answer from 10.0.0.1:9876: no answer to request"):
        await AdminClient(client, "10.0.0.1:9876").broker_names()
    with pytest.raises(CommandError, match=r"no NameServer answers .no answer .*; cannot connect"):
        await AdminClient(client, "10.0.0.1:9876;10.0.0.1:9").broker_names()
    await client.close()
    for server in servers:
        await server.stop()
