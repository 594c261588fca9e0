"""What a consumer that gets nothing knows of why."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.consumer.consumer import Consumer
from broker.client.errors import (
    NOT_YET,
    AccessDeniedError,
    NameServersUnreachableError,
    NoLeaderError,
    TopicNotFoundError,
)
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.client.fake_cluster import NAME_SERVER, Cluster
from tests.support.virtual_network import NetworkedLoop


async def start(loop: NetworkedLoop) -> Cluster:
    cluster = Cluster(loop)
    cluster.topics["T"] = 1
    await cluster.start()
    return cluster


async def test_nothing_is_in_the_way_to_an_empty_topic(loop: NetworkedLoop) -> None:
    cluster = await start(loop)
    async with Consumer(NAME_SERVER, "G", {"T": "*"}) as consumer:
        assert str(consumer.obstacle) == NOT_YET
        await asyncio.sleep(1)
        assert consumer.obstacle is None
    await cluster.close()


async def test_nor_where_other_members_have_all_queues(loop: NetworkedLoop) -> None:
    cluster = await start(loop)
    async with (
        Consumer(NAME_SERVER, "G", {"T": "*"}) as first,
        Consumer(NAME_SERVER, "G", {"T": "*"}) as second,
    ):
        await asyncio.sleep(10)
        assert len(first.queues) + len(second.queues) == 1
        assert (first.obstacle, second.obstacle) == (None, None)
    await cluster.close()


async def test_a_queue_that_another_member_has_just_given_up_was_not_reached_yet(
    loop: NetworkedLoop,
) -> None:
    cluster = await start(loop)
    cluster.topics["T"] = 2
    async with Consumer(NAME_SERVER, "G", {"T": "*"}):
        await asyncio.sleep(10)
        async with Consumer(NAME_SERVER, "G", {"T": "*"}) as second:
            await asyncio.sleep(0.5)
            assert len(second.queues) == 1
            assert str(second.obstacle) == NOT_YET
            await asyncio.sleep(2)
            assert second.obstacle is None
    await cluster.close()


async def test_a_topic_that_nobody_has_is(loop: NetworkedLoop) -> None:
    cluster = await start(loop)
    async with Consumer(NAME_SERVER, "G", {"other": "*"}) as consumer:
        await asyncio.sleep(3)
        assert isinstance(consumer.obstacle, TopicNotFoundError)
    await cluster.close()


async def test_a_nameserver_that_is_gone_is(loop: NetworkedLoop) -> None:
    cluster = await start(loop)
    await cluster.stop_name_server()
    async with Consumer(NAME_SERVER, "G", {"T": "*"}) as consumer:
        await asyncio.sleep(3)
        assert isinstance(consumer.obstacle, NameServersUnreachableError)
    await cluster.close()


async def test_a_permission_that_is_missing_is_and_not_that_the_group_has_no_member(
    loop: NetworkedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(loop)
    cluster.topics["T"] = 1
    broker, *_ = await cluster.start()

    def deny(connection: Connection, request: Frame) -> None:
        connection.respond(request, ResponseCode.SYSTEM_ERROR, "AclException: no permission SUB")

    broker.overrides[RequestCode.HEART_BEAT] = deny
    async with Consumer(NAME_SERVER, "G", {"T": "*"}) as consumer:
        await asyncio.sleep(5)
        assert isinstance(consumer.obstacle, AccessDeniedError)
        assert "no permission SUB" in caplog.text
        broker.overrides.clear()
        await asyncio.sleep(5)
        assert consumer.obstacle is None
    await cluster.close()


@pytest.mark.parametrize("broadcast", [False, True])
async def test_a_broker_that_is_gone_is_until_the_queue_is_begun(
    loop: NetworkedLoop, broadcast: bool
) -> None:
    cluster = Cluster(loop)
    cluster.topics["T"] = 1
    broker, *_ = await cluster.start()
    await broker.kill()
    async with Consumer(NAME_SERVER, "G", {"T": "*"}, broadcast=broadcast) as consumer:
        await asyncio.sleep(5)
        assert consumer.obstacle is not None
        assert not isinstance(consumer.obstacle, TopicNotFoundError | NoLeaderError)
        leader = await cluster.fail_over(broker)
        await asyncio.sleep(5)
        assert consumer.obstacle is None
        await leader.kill()
        await asyncio.sleep(5)
        assert consumer.obstacle is None
    await cluster.close()
