"""QueryOffset: the answer is what was true when the question came, or there is no answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from broker.grpc.offset_calls import READ_SECONDS
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, QueryOffsetPolicy
from dledger.node.linearizable_reads import Done
from tests.broker.grpc.single_service import SingleService, message, service_of
from tests.broker.single_broker import running_broker
from tests.support.virtual_network import NetworkedLoop


async def queried(
    service: SingleService, policy: QueryOffsetPolicy = QueryOffsetPolicy.END
) -> tuple[int, int]:
    """The code, and the offset."""
    queue = df.MessageQueue(topic=df.Resource(name="orders"), id=0)
    request = pb.QueryOffsetRequest(
        message_queue=queue, query_offset_policy=policy, timestamp=Timestamp(seconds=1)
    )
    answer = await service.ask("QueryOffset", request, pb.QueryOffsetResponse)
    return answer.status.code, answer.offset


@pytest.mark.parametrize(
    "policy", [QueryOffsetPolicy.BEGINNING, QueryOffsetPolicy.END, QueryOffsetPolicy.TIMESTAMP]
)
async def test_a_node_without_a_leader_tells_queue_offsets_only_where_stale_ones_will_do(
    loop: NetworkedLoop, tmp_path: Path, policy: QueryOffsetPolicy
) -> None:
    async with (
        running_broker(loop, tmp_path / "a", serving=False) as broker,
        service_of(broker) as service,
    ):
        assert await queried(service, policy) == (Code.HA_NOT_AVAILABLE, 0)
    async with (
        running_broker(loop, tmp_path / "b", serving=False, reads="stale") as broker,
        service_of(broker) as service,
    ):
        assert await queried(service, policy) == (Code.TOPIC_NOT_FOUND, 0)


async def test_a_node_without_a_leader_says_so_of_an_offset_of_a_group(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    queue = df.MessageQueue(topic=df.Resource(name="orders"), id=0)
    request = pb.GetOffsetRequest(group=df.Resource(name="readers"), message_queue=queue)
    async with (
        running_broker(loop, tmp_path, serving=False) as broker,
        service_of(broker) as service,
    ):
        answer = await service.ask("GetOffset", request, pb.GetOffsetResponse)
        assert answer.status.code == Code.HA_NOT_AVAILABLE
        assert service.service.dispatcher.refusals == {"read_unconfirmed": 1}


async def test_a_node_that_lags_answers_with_what_it_has_once_it_has_caught_up(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic came, and got its message, after the question, but before the node had applied
    everything that was committed at that time."""
    reads, waiting = service.context.node.reads, list[Done]()
    add = reads.add
    monkeypatch.setattr(reads, "add", waiting.append)
    asked = asyncio.ensure_future(queried(service))
    await asyncio.sleep(0)
    await service.broker.create_topic("orders", queues=1)
    await service.send(message())
    (done,) = waiting
    add(done)
    assert await asked == (Code.OK, 1)


async def test_a_question_that_nobody_answers_ends(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.broker.create_topic("orders", queues=1)
    monkeypatch.setattr(service.context.node.reads, "add", lambda _done: None)
    began = asyncio.get_running_loop().time()
    assert await queried(service) == (Code.REQUEST_TIMEOUT, 0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(READ_SECONDS)


@pytest.mark.parametrize("queue_id", [9, -1])
async def test_a_queue_that_is_not_there_is_not_found_by_any_call(
    service: SingleService, queue_id: int
) -> None:
    await service.broker.create_topic("orders")
    group = df.Resource(name="g")
    queue = df.MessageQueue(topic=df.Resource(name="orders"), id=queue_id)
    pull = pb.PullMessageRequest(group=group, message_queue=queue)
    end = pb.QueryOffsetRequest(message_queue=queue, query_offset_policy=QueryOffsetPolicy.END)
    first, *_ = await service.raw("PullMessage", pull.SerializeToString())
    asked = await service.ask("QueryOffset", end, pb.QueryOffsetResponse)
    update = pb.UpdateOffsetRequest(group=group, message_queue=queue)
    updated = await service.ask("UpdateOffset", update, pb.UpdateOffsetResponse)
    pulled = pb.PullMessageResponse.FromString(first)
    told = [each.status.code for each in (pulled, asked, updated)]
    assert told == [Code.NOT_FOUND] * 3
    assert service.service.dispatcher.refusals == {"unknown_queue": 3}
