"""Timed messages taken back by the Python client, with a real broker in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from broker.client.errors import DeadlineError, IllegalMessageError, RefusedError
from broker.client.message import Message
from broker.client.producer.producer import Producer
from tests.broker.client.real_broker import NAME_SERVER, TOPIC, break_connections, served_broker
from tests.broker.single_broker import SingleBroker, messages
from tests.support.virtual_network import NetworkedLoop

SECONDS = 60


def timed(broker: SingleBroker, body: bytes) -> Message:
    deliver_ms = broker.wall_ms() + SECONDS * 1000
    return Message(TOPIC, body, properties={"TIMER_DELIVER_MS": str(deliver_ms)})


async def received(broker: SingleBroker) -> list[bytes]:
    return [record.body for record in messages(await broker.pull(TOPIC, 0, 0))]


async def test_a_message_is_taken_back_once_its_leader_answers(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with (
        served_broker(loop, tmp_path) as broker,
        Producer(NAME_SERVER, wall_clock=broker.wall_ms, rng=Random(1)) as producer,
    ):
        kept = await producer.send(timed(broker, b"kept"))
        gone = await producer.send(timed(broker, b"gone"))
        broker.log_executor.hold()
        recalling = asyncio.ensure_future(producer.recall(gone))
        await asyncio.sleep(1)
        break_connections(broker)  # nobody hears how it has ended
        await asyncio.sleep(1)
        broker.log_executor.release()
        await recalling
        await producer.recall(gone)
        await asyncio.sleep(SECONDS)
        assert await received(broker) == [b"kept"]
        with pytest.raises(RefusedError, match="has been delivered"):
            await producer.recall(kept)


async def test_what_has_no_handle_cannot_be_taken_back(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with (
        served_broker(loop, tmp_path) as broker,
        Producer(NAME_SERVER, wall_clock=broker.wall_ms, rng=Random(1)) as producer,
    ):
        result = await producer.send(Message(TOPIC, b"now"))
        assert result.recall_handle == ""
        with pytest.raises(IllegalMessageError, match="without a recall handle"):
            await producer.recall(result)


async def test_while_nobody_answers_it_is_not_known_whether_the_message_is_taken_back(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with (
        served_broker(loop, tmp_path) as broker,
        Producer(NAME_SERVER, wall_clock=broker.wall_ms, rng=Random(1)) as producer,
    ):
        result = await producer.send(timed(broker, b"m"))
        broker.log_executor.hold()
        with pytest.raises(DeadlineError, match="the recall of a message of orders"):
            await producer.recall(result)
        broker.log_executor.release()
