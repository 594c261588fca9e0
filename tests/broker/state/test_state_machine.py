"""The broker's state after a crash is what it was before: rebuilt from checkpoint and log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.remoting.protocol.codes import RequestCode
from broker.state.commands import Expire
from dledger.errors import ProposeError
from simulator.engine.disk import SimulatedFileSystem
from store.message.record import MessageRecord
from store.verify import verify_replica
from tests.broker.single_broker import NOW_MS, SingleBroker, messages
from tests.support.search_effort import sample
from tests.support.virtual_network import NetworkedLoop

TOPICS = ("orders", "bills")
STEPS = 60
LIVES = 4


class Life:
    """From a start to a crash."""

    def __init__(self, broker: SingleBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng

    async def send(self) -> None:
        topic, queue_id = self.rng.choice(TOPICS), self.rng.randrange(2)
        body = self.rng.randbytes(self.rng.randrange(300))
        await self.broker.send(topic, queue_id, body, f"KEYS\x01k{self.rng.randrange(5)}\x02")

    async def commit_offset(self) -> None:
        topic = self.rng.choice(TOPICS)
        place = {"consumerGroup": "g", "topic": topic, "queueId": "0"}
        end = self.broker.broker.context.machine.end_offset(topic, 0)
        offset = {"commitOffset": str(self.rng.randrange(end + 1))}
        await self.broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place | offset)

    async def delete_topic(self) -> None:
        await self.broker.ask(
            RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": self.rng.choice(TOPICS)}
        )

    async def checkpoint(self) -> None:
        self.broker.broker.context.node.checkpointer.checkpoint()
        await asyncio.sleep(0.1)

    async def expire(self) -> None:
        context = self.broker.broker.context
        done: asyncio.Future[ProposeError | None] = context.loop.create_future()
        position = context.machine.applied_end * self.rng.randrange(4) // 4
        context.batcher.add_command(Expire(position), done.set_result)
        assert await done is None

    async def live(self) -> None:
        acts: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *[self.send] * 12,
            *[self.commit_offset] * 4,
            *[self.checkpoint] * 2,
            self.delete_topic,
            self.expire,
        ]
        for _ in range(STEPS):
            await self.rng.choice(acts)()


async def all_messages(
    broker: SingleBroker, topic: str, queue_id: int, first: int, end: int
) -> list[MessageRecord]:
    records: list[MessageRecord] = []
    while (offset := first + len(records)) < end:
        records += messages(await broker.pull(topic, queue_id, offset))
    return records


async def seen(broker: SingleBroker) -> dict[str, object]:
    """All that clients can see of the state."""
    machine, reader = broker.broker.context.machine, broker.broker.context.reader
    bounds = {(topic, q): reader.offsets(topic, q) for topic in TOPICS for q in range(2)}
    bodies = {}
    for (topic, queue_id), (first, end) in bounds.items():
        if first < end and topic in machine.state.topics:
            records = await all_messages(broker, topic, queue_id, first, end)
            assert [record.queue_offset for record in records] == list(range(first, end))
            bodies[topic, queue_id] = [record.body for record in records]
    keys = {}
    for topic in TOPICS:
        for number in range(5):
            ext = {"topic": topic, "key": f"k{number}", "maxNum": "64"}
            times = {"beginTimestamp": "0", "endTimestamp": str(2 * NOW_MS)}
            keys[topic, number] = (await broker.ask(RequestCode.QUERY_MESSAGE, ext | times)).body
    return {"state": machine.state.to_bytes(), "bounds": bounds, "bodies": bodies, "keys": keys}


@pytest.mark.parametrize("seed", sample(range(12)))
def test_a_crash_changes_nothing_that_a_client_can_see(seed: int) -> None:
    """Repeat one with ``pytest 'tests/broker/state/test_state_machine.py' -k '[SEED]'``."""
    rng = random.Random(seed)
    fs = SimulatedFileSystem(random.Random(seed))
    before: dict[str, object] | None = None

    async def life(loop: NetworkedLoop) -> None:
        nonlocal before
        broker = SingleBroker(
            loop, Path("/data"), fs=fs, segment_size=16 << 10, max_message_size=4096
        )
        await broker.start()
        if before is not None:
            assert await seen(broker) == before, f"seed {seed}"
        await Life(broker, rng).live()
        before = await seen(broker)
        assert not broker.failures
        await broker.client.close()
        await broker.server.stop()

    for _ in range(LIVES):
        loop = NetworkedLoop()
        try:
            loop.run_until_complete(life(loop))
        finally:
            loop.close()
        fs.power_loss()
    report = verify_replica(fs, "/data")
    assert not report.findings, f"seed {seed}"


def test_a_checkpoint_that_was_damaged_leaves_the_older_one() -> None:
    fs = SimulatedFileSystem(random.Random(1))

    async def first(loop: NetworkedLoop) -> None:
        broker = SingleBroker(loop, Path("/data"), fs=fs)
        await broker.start()
        for number in range(3):
            await broker.send("orders", 0, b"%d" % number, "KEYS\x01k\x02")
            broker.broker.context.node.checkpointer.checkpoint()
            await asyncio.sleep(0.1)
        await broker.client.close()
        await broker.server.stop()

    async def second(loop: NetworkedLoop) -> None:
        broker = SingleBroker(loop, Path("/data"), fs=fs)
        await broker.start()
        found = await all_messages(broker, "orders", 0, 0, 3)
        assert [record.body for record in found] == [b"0", b"1", b"2"]
        await broker.stop()

    for life in (first, second):
        loop = NetworkedLoop()
        try:
            loop.run_until_complete(life(loop))
        finally:
            loop.close()
        fs.crash()
        newest = max(path for path in fs.files() if "checkpoint-" in path)
        fs.flip_bit(newest, 40)
