"""Measures how late scheduled messages are delivered, by the brokers' own clock.

Run by hand: ``python -m tests.cluster.delay_precision DIRECTORY [COUNT]``. The group has three
nodes. COUNT messages with delay levels and as many with a delivery time are sent evenly, once
without load and once for each load. Lateness is the store time of the delivered message minus its
due time: the delivery time, or the store time of the waiting message plus its level.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.cli.local_cluster.managed_processes import execute
from broker.client import Consumer, Message, Producer
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from store.message.record import decode_record
from store.message.scheduled_topics import DELAYS_MS
from tests.cluster.running_cluster import RunningCluster, start_cluster

TOPIC = "waiting"
LEVELS = (1, 2)
"""1 s and 5 s."""

TIMES_MS = range(2_000, 6_000, 13)
"""How long messages with a delivery time wait."""

PAIRS_PER_SECOND = 50
SILENT_SECONDS = 20.0
"""If nothing came for this long, the measurement ends."""

WARM_UP_SECONDS = 4.0
LOADS: Mapping[str, tuple[str, ...]] = {
    "nothing": (),
    "single messages, 32 under way": ("--inflight", "32"),
    "batches of 128, 4 under way": ("--batch", "128", "--inflight", "4"),
}


@contextmanager
def load(cluster: RunningCluster, options: tuple[str, ...], seconds: float) -> Iterator[None]:
    """Sends messages of 1 KiB as fast as possible. Prints the rate."""
    if not options:
        yield
        return
    command = ("bench", "produce", *options, "--seconds", f"{seconds:.0f}", "--rounds", "1")
    running = cluster.popen(*command, "--namesrv", cluster.namesrv, "--json")
    try:
        time.sleep(WARM_UP_SECONDS)
        yield
        told, _ = running.communicate(timeout=seconds + 60)
        rate = json.loads(told)["cluster"]["workloads"][0]["messages_per_second"]
        print(f"  (beside {rate:,.0f} messages a second)")
    finally:
        if running.poll() is None:
            running.terminate()
            running.communicate()


async def send(producer: Producer, count: int) -> tuple[dict[int, int], dict[int, int]]:
    """Sends pairs evenly. Returns when those with a time are due, and where those with a level
    wait."""
    due_ms: dict[int, int] = {}
    waiting: dict[int, asyncio.Future[int]] = {}
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def send_level(number: int) -> int:
        level = LEVELS[number % len(LEVELS)]
        result = await producer.send(Message(TOPIC, b"%d" % number, delay_level=level))
        return int(result.message_ids[0][-16:], 16)

    timed = []
    for number in range(count):
        await asyncio.sleep(max(began + number / PAIRS_PER_SECOND - loop.time(), 0))
        waiting[number] = loop.create_task(send_level(number))
        due = time.time_ns() // 1_000_000 + TIMES_MS[number % len(TIMES_MS)]
        due_ms[count + number] = due
        properties = {"TIMER_DELIVER_MS": str(due)}
        message = Message(TOPIC, b"%d" % (count + number), properties=properties)
        timed.append(loop.create_task(producer.send(message)))
    await asyncio.gather(*timed)
    return due_ms, {number: await position for number, position in waiting.items()}


async def receive(namesrv: str, group: str, stored_ms: dict[int, int], count: int) -> None:
    """When each message was delivered. Ends when all came, or no more come."""
    async with Consumer(namesrv, group, {TOPIC: "*"}, start_from="latest") as consumer:
        try:
            while len(stored_ms) < count:
                async with asyncio.timeout(SILENT_SECONDS):
                    batch = await consumer.next_batch()
                for message in batch:
                    stored_ms[int(message.body)] = message.store_timestamp
                consumer.acknowledge(batch.queue, batch.next_offset)
        except TimeoutError:
            print(f"  {count - len(stored_ms)} of {count} did not come", file=sys.stderr)


async def level_due(address: str, positions: Mapping[int, int]) -> dict[int, int]:
    """When messages with levels are due, by the store times of the waiting messages."""
    client = RemotingClient(asyncio.get_running_loop())
    due_ms = {}
    for number, position in positions.items():
        answer = await client.invoke(
            address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)}, timeout=10.0
        )
        stored_ms = decode_record(answer.body).store_timestamp
        due_ms[number] = stored_ms + DELAYS_MS[LEVELS[number % len(LEVELS)] - 1]
    await client.close()
    return due_ms


async def measure(cluster: RunningCluster, group: str, count: int) -> dict[str, list[int]]:
    """Lateness in ms of both kinds, in order."""
    stored_ms: dict[int, int] = {}
    receiving = asyncio.create_task(receive(cluster.namesrv, group, stored_ms, 2 * count))
    await asyncio.sleep(1.0)
    async with Producer(cluster.namesrv) as producer:
        timed, positions = await send(producer, count)
    await receiving
    leader = (await asyncio.to_thread(cluster.view)).leader_node
    assert leader is not None
    assert leader.address is not None
    levels = await level_due(leader.address, positions)
    return {
        "levels": sorted(stored_ms[n] - due for n, due in levels.items() if n in stored_ms),
        "timers": sorted(stored_ms[n] - due for n, due in timed.items() if n in stored_ms),
    }


def main(directory: str, count: int) -> None:
    cluster = start_cluster(Path(directory) / "data", starter=execute, segment_size=64 << 20)
    seconds = count / PAIRS_PER_SECOND + WARM_UP_SECONDS + max(DELAYS_MS[1], TIMES_MS[-1]) / 1000
    try:
        cluster.dledger("topic", "create", TOPIC, "--queues", "4", "-c", "DefaultCluster")
        for number, (name, options) in enumerate(LOADS.items()):
            print(f"beside {name}:")
            with load(cluster, options, seconds):
                found = asyncio.run(measure(cluster, f"measuring-{number}", count))
            for kind, late_ms in found.items():
                size = len(late_ms)
                print(
                    f"  {kind}: {size} delivered, late by p50 {late_ms[size // 2]} ms, "
                    f"p99 {late_ms[size * 99 // 100]} ms, at most {late_ms[-1]} ms; "
                    f"earliest {late_ms[0]} ms"
                )
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(sys.argv[1], int((sys.argv[2:] or ["1000"])[0]))
