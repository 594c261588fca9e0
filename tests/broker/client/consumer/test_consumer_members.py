"""Members of a group share queues, and their shares outlast brokers."""

from __future__ import annotations

import asyncio

from broker.client.config import ConsumerConfig
from broker.client.message import MessageQueue
from broker.remoting.protocol.codes import RequestCode
from tests.broker.client.consumer.consumers import TOPIC, new_consumer, start, take
from tests.support.virtual_network import NetworkedLoop


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(TOPIC, "broker-a", queue_id)


async def test_members_share_the_queues(loop: NetworkedLoop) -> None:
    cluster, _ = await start(loop, queues=5)
    async with new_consumer(number=1) as first:
        await asyncio.sleep(1)
        assert len(first.queues) == 5
        async with new_consumer(number=2) as second:
            await asyncio.sleep(3)
            shares = [first.queues, second.queues]
            assert sorted(map(len, shares)) == [2, 3]
            assert sorted(shares[0] + shares[1]) == [queue(number) for number in range(5)]
        await asyncio.sleep(3)
        assert len(first.queues) == 5
    await cluster.close()


async def test_a_queue_changes_hands_with_its_offset(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=2)
    async with new_consumer(number=1) as first:
        broker.store(TOPIC, 0, b"a0")
        broker.store(TOPIC, 1, b"a1")
        assert sorted(await take(first, 2)) == [b"a0", b"a1"]
        async with new_consumer(number=2) as second:
            await asyncio.sleep(3)
            broker.store(TOPIC, 0, b"b0")
            broker.store(TOPIC, 1, b"b1")
            assert sorted(await take(first, 1) + await take(second, 1)) == [b"b0", b"b1"]
    await cluster.close()


async def test_shares_stay_as_they_are_while_a_new_leader_meets_the_members(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=4)
    async with new_consumer(number=1) as first, new_consumer(number=2) as second:
        await asyncio.sleep(5)
        before = [first.queues, second.queues]
        leader = await cluster.fail_over(broker)
        seen: list[list[list[MessageQueue]]] = []
        for _ in range(100):
            await asyncio.sleep(0.1)
            seen.append([first.queues, second.queues])
        assert all(shares == before for shares in seen)
        assert len(leader.members) == 2
    await cluster.close()


async def test_a_restarted_broker_is_greeted_again(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    async with new_consumer():
        await asyncio.sleep(1)
        await broker.kill()
        await asyncio.sleep(0.2)
        await broker.start()
        await asyncio.sleep(1)
        assert len(broker.members) == 1
    await cluster.close()


async def test_heartbeats_come_every_thirty_seconds(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    async with new_consumer():
        await asyncio.sleep(95)
        assert broker.count(RequestCode.HEART_BEAT) == 4
    await cluster.close()


async def test_a_dead_leader_to_which_only_heartbeats_went_is_missed_at_once(
    loop: NetworkedLoop,
) -> None:
    """Otherwise its successor knows only the other member, which takes all queues."""
    cluster, _ = await start(loop, queues=2, groups=2)
    async with new_consumer(number=1) as first, new_consumer(number=2) as second:
        await asyncio.sleep(52)
        before = [first.queues, second.queues]
        assert {each.broker for each in second.queues} == {"broker-b"}
        leader = await cluster.fail_over(cluster.brokers[0])
        await asyncio.sleep(1)
        assert len(leader.members) == 2
        for _ in range(200):
            await asyncio.sleep(0.1)
            assert [first.queues, second.queues] == before
    await cluster.close()


async def test_a_leader_is_looked_for_until_there_is_one(loop: NetworkedLoop) -> None:
    """The NameServer drops a dead leader before the others have elected the next one."""
    cluster, _ = await start(loop, queues=2, groups=2)
    async with new_consumer(number=1) as first, new_consumer(number=2) as second:
        await asyncio.sleep(52)
        before = [first.queues, second.queues]
        old = cluster.brokers[0]
        cluster.leaderless.append(old.group.name)
        await old.kill()
        old.leading = False
        await asyncio.sleep(0.5)
        leader = await cluster.add(old.group)
        cluster.leaderless.clear()
        await asyncio.sleep(1.5)
        assert len(leader.members) == 2
        for _ in range(200):
            await asyncio.sleep(0.1)
            assert [first.queues, second.queues] == before
    await cluster.close()


async def test_so_is_a_leader_that_answers_no_heartbeat(loop: NetworkedLoop) -> None:
    cluster, _ = await start(loop, queues=2, groups=2)
    old = cluster.brokers[0]
    config = ConsumerConfig(heartbeat_seconds=7)
    async with new_consumer(number=1), new_consumer(number=2, config=config) as second:
        await asyncio.sleep(36)  # the next look-up of the route is far
        assert {each.broker for each in second.queues} == {"broker-b"}
        old.overrides[RequestCode.HEART_BEAT] = lambda _connection, _request: None
        old.leading = False
        leader = await cluster.add(old.group)
        await asyncio.sleep(12)
        assert second._membership._client_id in leader.members.values()
    await cluster.close()
