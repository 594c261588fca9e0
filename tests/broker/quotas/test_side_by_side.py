"""Quotas hold for requests that come side by side, and for one that is in debt for long."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from unittest.mock import patch

import pytest

from broker.limits import CONSUME, QUOTAS
from broker.pop import held_receives
from broker.pop.pop_request import PopStatus
from broker.quotas.throttle import Caller
from broker.quotas.token_bucket import BURST_SECONDS
from broker.remoting.client import RemotingClient
from broker.remoting.processors.pull_message import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from broker.remoting.protocol.codes import (
    OUTCOME,
    OUTCOME_NOT_LEADER,
    RequestCode,
    ResponseCode,
)
from broker.remoting.protocol.frame import Frame
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from tests.broker.pop.pop_client import Member, sent
from tests.broker.quotas.test_quotas_at_the_doors import send, set_quota
from tests.broker.single_broker import ADDRESS, SingleBroker, messages, pull_ext, send_ext

HELD = {"sysFlag": str(FLAG_SUBSCRIPTION | FLAG_SUSPEND)}


async def long_poll(broker: SingleBroker, topic: str, queue_id: int, offset: int) -> Frame:
    fields = pull_ext(topic, queue_id, offset) | HELD | {"maxMsgNums": "20"}
    return await broker.client.invoke(ADDRESS, RequestCode.PULL_MESSAGE, fields, timeout=40)


async def test_an_answer_waits_for_two_seconds_however_much_a_message_is_worth(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("slow")
    await set_quota(broker, "topic.slow=produceBytes=1000")
    began = broker.loop.time()
    for number in (1, 2):
        await send(broker, "slow", 10_000)
        assert broker.loop.time() - began == pytest.approx(
            number * QUOTAS.wait_seconds_max, abs=0.1
        )
    answer = await broker.send("slow", 0, b"x")
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert broker.server.refusals == {"over_quota": 1}
    assert "seconds of debt of the quota of topic slow, the limit is 10" in str(answer.remark)
    assert len(messages(await broker.pull("slow", 0, 0))) == 2
    await asyncio.sleep(10)
    await send(broker, "slow", 1)


async def test_a_node_that_leads_no_more_refuses_nobody_for_what_it_was_owed(
    broker: SingleBroker,
) -> None:
    """It passes on to the leader, which knows best."""
    await broker.create_topic("slow")
    await set_quota(broker, "topic.slow=produceBytes=1000")
    await send(broker, "slow", 30_000)
    assert (await broker.send("slow", 0, b"x")).code == ResponseCode.SYSTEM_BUSY
    term = broker.broker.context.node.leadership.term
    broker.broker.leadership_changed(Leadership(Role.FOLLOWER, term, None, False))
    answer = await broker.send("slow", 0, b"x")
    assert answer.ext.get(OUTCOME) == OUTCOME_NOT_LEADER


async def test_however_many_share_a_quota_each_is_answered_before_it_gives_up(
    broker: SingleBroker,
) -> None:
    """Clients of RocketMQ do so after three seconds. What was refused is not stored, and the quota
    holds."""
    await broker.create_topic("slow", 1)
    await set_quota(broker, "topic.slow=produceMessages=2")
    codes: Counter[int] = Counter()
    ends_at = broker.loop.time() + 60

    async def produce() -> None:
        client = RemotingClient(broker.loop)
        while broker.loop.time() < ends_at:
            fields = send_ext("slow", 0)
            answer = await client.invoke(
                ADDRESS, RequestCode.SEND_MESSAGE_V2, fields, (b"x",), timeout=3
            )
            codes[answer.code] += 1
        await client.close()

    await asyncio.gather(*(produce() for _ in range(60)))
    assert codes.keys() == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
    _, stored = broker.broker.context.reader.offsets("slow", 0)
    assert stored == codes[ResponseCode.SUCCESS]
    ahead = BURST_SECONDS + QUOTAS.debt_seconds_max
    assert 2 * 60 <= stored <= 2 * (60 + ahead + QUOTAS.wait_seconds_max) + 1


async def test_what_wants_no_answer_is_never_refused_and_read_at_the_rate_of_the_quota(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("slow", 1)
    await set_quota(broker, "topic.slow=produceMessages=2")
    for _ in range(200):
        broker.client.push(ADDRESS, RequestCode.SEND_MESSAGE_V2, send_ext("slow", 0), (b"x",))
        await asyncio.sleep(0.01)
    _, read = broker.broker.context.reader.offsets("slow", 0)
    assert read < 100  # what came in the first half second, until it was seen
    await asyncio.sleep(100)
    assert broker.broker.context.reader.offsets("slow", 0) == (0, 200)


async def test_pulls_of_many_queues_share_what_the_quota_gives(broker: SingleBroker) -> None:
    await broker.create_topic("slow")
    for queue_id in range(4):
        for number in range(60):
            await broker.send("slow", queue_id, b"%d" % number)
    await set_quota(broker, "topic.slow=consumeMessages=10")
    began, longest = broker.loop.time(), 0.0

    async def read(queue_id: int) -> None:
        nonlocal longest
        offset = 0
        while offset < 60:
            asked_at = broker.loop.time()
            answer = await long_poll(broker, "slow", queue_id, offset)
            longest = max(longest, broker.loop.time() - asked_at)
            offset += len(messages(answer))
            assert int(str(answer.ext["nextBeginOffset"])) == offset

    await asyncio.gather(*map(read, range(4)))
    # The first second and the last answer are given before they are paid.
    assert broker.loop.time() - began == pytest.approx((240 - 10 - 20) / 10, abs=2)
    assert longest < 15 + QUOTAS.wait_seconds_max + 0.1  # nothing is read for so long


async def test_a_long_poll_that_ends_in_debt_is_told_to_ask_again(broker: SingleBroker) -> None:
    await broker.create_topic("slow")
    for _ in range(40):
        await broker.send("slow", 0, b"x")
    await set_quota(broker, "topic.slow=consumeMessages=1")
    assert len(messages(await long_poll(broker, "slow", 0, 0))) == 20
    began = broker.loop.time()
    answer = await long_poll(broker, "slow", 0, 20)
    assert broker.loop.time() - began == pytest.approx(15, abs=0.1)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext["nextBeginOffset"] == "20"
    assert len(messages(await long_poll(broker, "slow", 0, 20))) == 20
    assert broker.loop.time() - began == pytest.approx(19, abs=0.2)
    assert len(broker.broker.context.delivery.long_polling) == 0


async def test_receives_side_by_side_share_what_the_quota_gives(broker: SingleBroker) -> None:
    await sent(broker, 112)
    await set_quota(broker, "topic.orders=consumeMessages=10")
    member = Member(broker)
    began = broker.loop.time()
    assert len(await member.receive(32)) == 32
    given = await asyncio.gather(*(member.receive(8, hold=20) for _ in range(10)))
    assert list(map(len, given)) == [8] * 10
    # All but the first second and the last eight.
    assert broker.loop.time() - began == pytest.approx((112 - 10 - 8) / 10, abs=0.5)


@pytest.mark.parametrize("quota", ["topic.*", "client.*"])
async def test_a_receive_in_debt_waits_for_no_other_quota(broker: SingleBroker, quota: str) -> None:
    """Not even while a slow read delays one that has waited for its own."""
    await sent(broker, 40)
    await broker.create_topic("others")
    for number in range(40):
        assert (await broker.send("others", 0, b"%d" % number)).code == 0
    await set_quota(broker, f"{quota}=consumeMessages=10")
    members = [Member(broker), Member(broker, "h", "others")]
    asks = [
        partial(each.receive, 16, caller=Caller("", f"client-{each.group}")) for each in members
    ]
    assert [len(await each()) for each in asks] == [16, 16]
    reads = broker.broker.context.batcher.pop_queue(("g", "orders", 0))
    assert reads is not None
    async with reads.lock:
        slow, other = (asyncio.ensure_future(each(hold=20)) for each in asks)
        await asyncio.sleep(5)
        done_by_now = slow.done(), other.done()
    assert list(map(len, await asyncio.gather(slow, other))) == [16, 16]
    assert done_by_now == (False, True)


async def test_a_receive_in_debt_ends_with_nothing_when_its_time_is_up(
    broker: SingleBroker,
) -> None:
    await sent(broker, 64)
    await set_quota(broker, "topic.orders=consumeMessages=2")
    member = Member(broker)
    assert len(await member.receive(32)) == 32
    began = broker.loop.time()
    for hold, took in ((3, 3), (0, QUOTAS.wait_seconds_max)):
        assert (await member.result(32, hold=hold)).status is PopStatus.NOTHING
        assert broker.loop.time() - began == pytest.approx(took, abs=0.1)
        began = broker.loop.time()


async def test_receives_in_debt_count_as_held_ones(broker: SingleBroker) -> None:
    await sent(broker, 64)
    await set_quota(broker, "topic.orders=consumeMessages=2")
    member = Member(broker)
    assert len(await member.receive(32)) == 32
    with patch.object(held_receives, "CONSUME", CONSUME._replace(held_pulls_max=2)):
        waiting = [asyncio.ensure_future(member.receive(8, hold=5)) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert len(member.pop.held) == 2
        assert sum(each.done() for each in waiting) == 3
        await asyncio.gather(*waiting)
    assert len(member.pop.held) == 0
