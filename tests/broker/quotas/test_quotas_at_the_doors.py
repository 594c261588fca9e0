"""Quotas at work in a broker: over each wire, for who is meant, and for nobody else."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from broker.limits import PRODUCE, QuotaLimits
from broker.remoting.client import RemotingClient
from broker.remoting.processors import broker_info_and_config
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.state.commands import PutSetting
from tests.broker.http.site import Site
from tests.broker.single_broker import ADDRESS, SingleBroker, messages, send_ext


async def set_quota(broker: SingleBroker, *lines: str) -> None:
    body = "\n".join(f"quota.{line}" for line in lines).encode()
    answer = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await asyncio.sleep(0.01)


async def took(broker: SingleBroker, work: Any) -> float:
    began = broker.loop.time()
    await work
    return broker.loop.time() - began


async def send(broker: SingleBroker, topic: str, size: int) -> None:
    assert (await broker.send(topic, 0, b"x" * size)).code == ResponseCode.SUCCESS


async def test_a_producer_beyond_its_quota_gets_its_answers_at_the_rate_of_the_quota(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("slow")
    await broker.create_topic("free")
    await set_quota(broker, "topic.slow=produceBytes=1000")
    began = broker.loop.time()
    for _ in range(10):
        await send(broker, "slow", 500)
    assert 3.9 < broker.loop.time() - began < 4.2  # 5,000 bytes, of which one second was free
    assert await took(broker, send(broker, "free", 5000)) < 1.1  # its own connection waits


async def test_nothing_is_dropped_and_others_do_not_wait(broker: SingleBroker) -> None:
    await broker.create_topic("slow")
    await set_quota(broker, "topic.slow=produceMessages=10")
    other = RemotingClient(broker.loop)

    async def send_other() -> float:
        await asyncio.sleep(1)
        began = broker.loop.time()
        await other.invoke(ADDRESS, 310, send_ext("other", 0), (b"x",), timeout=9)
        return broker.loop.time() - began

    sends = [broker.send("slow", 0, b"%d" % number) for number in range(40)]
    waited = asyncio.ensure_future(send_other())
    answers = await asyncio.gather(*sends)
    assert await waited < 0.1
    await other.close()
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    await set_quota(broker, "topic.slow=")
    stored = messages(await broker.pull("slow", 0, 0, maxMsgNums="100"))
    assert len(stored) == 40


async def test_who_sends_without_waiting_is_read_no_faster(broker: SingleBroker) -> None:
    """Also what wants no answer at all."""
    await broker.create_topic("slow")
    await set_quota(broker, "topic.slow=produceMessages=10")
    began = broker.loop.time()
    for number in range(30):
        fields = send_ext("slow", 0)
        broker.client.push(ADDRESS, 310, fields, (b"%d" % number,))
        await asyncio.sleep(0.01)
    await broker.send("slow", 0, b"last")
    assert broker.loop.time() - began > 1.5


async def test_what_is_refused_costs_nothing(broker: SingleBroker) -> None:
    await broker.create_topic("slow")
    await set_quota(broker, "topic.slow=produceMessages=10")
    keys = "KEYS\x01" + " ".join(map(str, range(PRODUCE.keys_max + 1))) + "\x02"
    for _ in range(50):
        answer = await broker.send("slow", 0, b"x", keys)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert await took(broker, send(broker, "slow", 1)) < 0.1


async def test_a_consumer_beyond_its_quota_is_given_messages_later(broker: SingleBroker) -> None:
    await broker.create_topic("slow")
    for _ in range(30):
        await send(broker, "slow", 10)
    await set_quota(broker, "topic.slow=consumeMessages=10")
    given, offset, began = 0, 0, broker.loop.time()
    while given < 30:
        answer = await broker.pull("slow", 0, offset, maxMsgNums="5")
        found = messages(answer)
        given += len(found)
        offset = int(str(answer.ext["nextBeginOffset"]))
    assert 1.4 < broker.loop.time() - began < 2.1


async def test_the_filter_of_a_pull_beyond_its_quota_counts_as_that_of_any_held_pull(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("slow")
    for _ in range(9):
        await send(broker, "slow", 1)
    await set_quota(broker, "topic.slow=consumeMessages=1")
    await broker.pull("slow", 0, 0, maxMsgNums="9")
    sql = {"expressionType": "SQL92", "subscription": "a > 1", "sysFlag": "6"}
    late = broker.pull("slow", 0, 0, suspendTimeoutMillis="9000", **sql)
    pulling = asyncio.ensure_future(late)
    await asyncio.sleep(1)
    long_polling = broker.broker.context.delivery.long_polling
    assert long_polling._expression_sizes == len("a > 1")
    await pulling
    assert long_polling._expression_sizes == 0


async def test_a_client_is_known_by_its_heartbeat(broker: SingleBroker) -> None:
    await broker.create_topic("t")
    await set_quota(broker, "client.10.0.0.7@88=produceMessages=1", "client.*=produceMessages=1000")
    assert await took(broker, send(broker, "t", 1)) < 0.1
    await broker.ask(
        RequestCode.HEART_BEAT,
        body=b'{"clientID":"10.0.0.7@88","producerDataSet":[{"groupName":"p"}]}',
    )
    await send(broker, "t", 1)
    assert await took(broker, send(broker, "t", 1)) == pytest.approx(1, abs=0.1)


async def test_http_waits_too(broker: SingleBroker, site: Site) -> None:
    await set_quota(broker, "topic.slow=produceMessages=2,consumeMessages=2")
    await broker.create_topic("slow")
    began = broker.loop.time()
    for _ in range(4):
        status, _ = await site.post("slow", {"body": "x", "queue_id": 0})
        assert status == 200
    assert broker.loop.time() - began == pytest.approx(1, abs=0.2)
    began = broker.loop.time()
    for offset in (0, 2):
        await site.ask("GET", f"/topics/slow/queues/0/messages?offset={offset}&count=3")
    assert broker.loop.time() - began > 0.4
    _status, status_document = await site.ask("GET", "/status")
    assert status_document["quotas"] == 1
    assert status_document["throttled_seconds"] > 1


async def test_a_new_leader_and_a_restart_have_the_quotas_of_the_log(broker: SingleBroker) -> None:
    await set_quota(broker, "topic.slow=produceMessages=2")
    context = broker.broker.context
    state = context.machine.state.to_bytes()
    assert b"quota.topic.slow" in state
    context.throttle.clear()
    broker.broker.state_restored(context.machine.digests.packed())
    assert context.ingest.quotas is context.throttle
    listed = (await broker.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()
    assert "quota.topic.slow=produceMessages=2\n" in listed
    await set_quota(broker, "topic.slow=")
    assert context.ingest.quotas is None
    assert "quota." not in (await broker.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()


async def test_what_this_version_does_not_understand_does_not_count(broker: SingleBroker) -> None:
    broker.broker.context.batcher.add_command(PutSetting("quota.moon.a", "light=1"))
    await asyncio.sleep(0.1)
    assert broker.broker.context.ingest.quotas is None


async def test_there_are_no_more_quotas_than_allowed(broker: SingleBroker) -> None:
    with patch.object(broker_info_and_config, "QUOTAS", QuotaLimits(quotas_max=2)):
        await set_quota(broker, "topic.a=produceBytes=1", "topic.b=produceBytes=1")
        body = b"quota.topic.c=produceBytes=1"
        answer = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert "at most 2 are allowed" in str(answer.remark)
        await set_quota(broker, "topic.b=produceBytes=5")
    wrong = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"quota.moon.c=produceBytes=1")
    assert wrong.code == ResponseCode.INVALID_PARAMETER
