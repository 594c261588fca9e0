"""Locks of queues that are consumed in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from broker.delivery.queue_locks import LOCK_SECONDS
from broker.limits import CLIENTS
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from tests.broker.single_broker import SingleBroker


def body_of(client_id: str, queue_ids: Sequence[int]) -> dict[str, Any]:
    return {
        "consumerGroup": "readers",
        "clientId": client_id,
        "mqSet": [
            {"topic": "orders", "brokerName": "broker-a", "queueId": queue_id}
            for queue_id in queue_ids
        ],
    }


async def lock(broker: SingleBroker, client_id: str, *queue_ids: int) -> list[int]:
    body = orjson.dumps(body_of(client_id, queue_ids))
    answer = await broker.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    held = orjson.loads(answer.body)["lockOKMQSet"]
    assert all(each["brokerName"] == "broker-a" and each["topic"] == "orders" for each in held)
    return [each["queueId"] for each in held]


async def unlock(broker: SingleBroker, client_id: str, *queue_ids: int) -> None:
    body = orjson.dumps(body_of(client_id, queue_ids))
    answer = await broker.ask(RequestCode.UNLOCK_BATCH_MQ, {}, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.fixture
async def broker(broker: SingleBroker) -> SingleBroker:
    await broker.create_topic("orders")
    return broker


async def test_queues_that_are_not_there_are_not_locked(broker: SingleBroker) -> None:
    assert await lock(broker, "a", 3, 4, 2**31 - 1) == [3]


async def test_locks_have_a_limit_and_are_renewed_beyond(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.delivery.queue_locks.CLIENTS", CLIENTS._replace(locks_max=2))
    assert await lock(broker, "a", 0, 1, 2) == [0, 1]
    assert await lock(broker, "b", 2) == []
    assert await lock(broker, "a", 1, 0) == [1, 0]
    await unlock(broker, "a", 1)
    assert await lock(broker, "b", 1, 2) == [1]
    await asyncio.sleep(LOCK_SECONDS + 1)
    assert await lock(broker, "c", 2, 3) == [2, 3]


async def test_a_queue_is_locked_by_one_member_at_a_time(broker: SingleBroker) -> None:
    assert await lock(broker, "a", 0, 1) == [0, 1]
    assert await lock(broker, "b", 1, 2) == [2]
    assert await lock(broker, "a", 0, 1, 2) == [0, 1]


async def test_only_its_holder_gives_up_a_lock(broker: SingleBroker) -> None:
    await lock(broker, "a", 0, 1)
    await unlock(broker, "b", 0)
    await unlock(broker, "a", 1)
    assert await lock(broker, "b", 0, 1) == [1]


async def test_a_lock_ends_unless_it_is_renewed(broker: SingleBroker) -> None:
    await lock(broker, "a", 0, 1)
    await asyncio.sleep(LOCK_SECONDS - 1)
    await lock(broker, "a", 0)
    await asyncio.sleep(2)
    assert await lock(broker, "b", 0, 1) == [1]


async def test_groups_do_not_share_locks(broker: SingleBroker) -> None:
    await lock(broker, "a", 0)
    other = orjson.dumps(body_of("b", [0]) | {"consumerGroup": "writers"})
    answer = await broker.ask(RequestCode.LOCK_BATCH_MQ, {}, other)
    assert len(orjson.loads(answer.body)["lockOKMQSet"]) == 1


async def test_a_node_that_does_not_lead_locks_nothing_and_forgets_its_locks(
    broker: SingleBroker,
) -> None:
    await lock(broker, "a", 0)
    leads = broker.broker.context.node.leadership
    broker.broker.leadership_changed(Leadership(Role.FOLLOWER, leads.term, None, False))
    refused = await broker.ask(RequestCode.LOCK_BATCH_MQ, {}, orjson.dumps(body_of("a", [0])))
    assert refused.code != ResponseCode.SUCCESS
    broker.broker.leadership_changed(leads)
    assert await lock(broker, "b", 0) == [0]


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"clientId":"a","mqSet":[]}', "consumerGroup"),
        (b'{"consumerGroup":"g","mqSet":[]}', "clientId"),
        (b'{"consumerGroup":"g","clientId":"%b","mqSet":[]}' % (b"a" * 513), "clientId has 513"),
        (b'{"consumerGroup":"g","clientId":"a","mqSet":{"a":1}}', "mqSet is not a list"),
        (b'{"consumerGroup":"g","clientId":"a","mqSet":[{"topic":"t"}]}', "queueId"),
        (b'{"consumerGroup":"g","clientId":"a","mqSet":[{"queueId":1}]}', "topic"),
    ],
)
async def test_a_request_that_is_wrong_is_told_what_is_wrong(
    broker: SingleBroker, body: bytes, remark: str
) -> None:
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        answer = await broker.ask(code, {}, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert remark in str(answer.remark)
