"""Sends whose answers are held back take a part of what a door has; the rest is for others."""

from __future__ import annotations

import asyncio
from collections import Counter
from unittest.mock import patch

import pytest

from broker.grpc import send_calls
from broker.grpc.protocol.definition_pb2 import Code
from broker.limits import GRPC, HTTP, HttpLimits
from broker.quotas.held_sends import HeldSends
from dledger.errors import BusyError
from tests.broker.grpc.single_service import message, service_of
from tests.broker.http.site import served
from tests.broker.quotas.test_quotas_at_the_doors import set_quota
from tests.broker.single_broker import SingleBroker, messages


def test_a_door_holds_so_many_requests_and_bytes_and_any_single_request() -> None:
    held = HeldSends(2, 100)
    with held.holding(500), pytest.raises(BusyError, match="bytes"), held.holding(1):
        pass
    with held.holding(5), held.holding(5), pytest.raises(BusyError, match="sends"), held.holding(0):
        pass
    with held.holding(100):
        pass


async def test_a_client_of_grpc_beyond_its_quota_leaves_calls_to_others(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders", queues=1)
    await set_quota(broker, "client.client-1=produceMessages=1")
    small = GRPC._replace(calls_max=6, held_sends_max=3)
    with patch.object(send_calls, "GRPC", small):
        async with service_of(broker) as service:
            service.service.dispatcher.budget.limits = small
            flood = [
                asyncio.ensure_future(service.send(message(message_id=f"{number:010}")))
                for number in range(5)
            ]
            await asyncio.sleep(0.1)
            refused = await service.send(message(message_id="a sixth"))
            assert refused.status.code == Code.TOO_MANY_REQUESTS
            service.metadata = {"x-mq-client-id": "client-2"}
            for number in range(4):
                other = await service.send(message(message_id=f"of another {number}"))
                assert other.status.code == Code.OK
            answers = await asyncio.gather(*flood)
            assert {each.status.code for each in answers} == {Code.OK}
            service.metadata = {"x-mq-client-id": "client-1"}
            await asyncio.sleep(10)
            assert (await service.send(message(message_id="paid"))).status.code == Code.OK
    stored = messages(await broker.pull("orders", 0, 0, maxMsgNums="100"))
    assert len(stored) == 10  # nothing of what was refused


@pytest.mark.parametrize(
    "limits", [HTTP._replace(held_sends_max=2), HTTP._replace(held_bytes_max=19)]
)
async def test_a_client_of_http_beyond_its_quota_is_refused_when_many_wait(
    broker: SingleBroker, limits: HttpLimits
) -> None:
    await broker.create_topic("slow")
    await set_quota(broker, "topic.slow=produceMessages=1")
    async with served(broker, limits) as site:
        posts = [site.post("slow", {"body": "8 bytes.", "queue_id": 0}) for _ in range(8)]
        began = broker.loop.time()
        assert (await site.post("other", {"body": "x", "queue_id": 0}))[0] == 200
        assert broker.loop.time() - began < 0.1
        statuses = Counter(status for status, _ in await asyncio.gather(*posts))
    assert statuses == {200: 4, 429: 4}
    assert len(messages(await broker.pull("slow", 0, 0, maxMsgNums="100"))) == 4
