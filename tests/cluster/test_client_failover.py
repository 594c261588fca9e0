"""What the Python client does with transactions and requests while their leader is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import (
    Consumer,
    ConsumerConfig,
    Message,
    NoReplyError,
    Outcome,
    Producer,
    ProducerConfig,
    ReceivedMessage,
    Sql,
    TransactionProducer,
)
from tests.cluster.running_cluster import RunningCluster, start_cluster

COUNT = 60
KILLED_AFTER = 20
COMPLETE_SECONDS = 180
QUIET_SECONDS = 1.5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Asks about open transactions soon, and does not give them up on a slow machine."""
    running = start_cluster(
        tmp_path_factory.mktemp("failover") / "data",
        transaction_timeout_ms=2_000,
        transaction_check_interval_ms=1_000,
        transaction_check_max=1_000,
    )
    yield running
    running.stop()


def kill_leader(cluster: RunningCluster) -> None:
    killed = cluster.leader()
    cluster.kill(killed)
    cluster.start(killed)


async def bodies(
    cluster: RunningCluster, topic: str, wanted: str | Sql, *, count: int
) -> list[bytes]:
    """What a new group gets until it has so many different ones, and in a while after that, in
    which more would come if there were more."""
    found: list[bytes] = []
    loop = asyncio.get_running_loop()
    until = loop.time() + COMPLETE_SECONDS
    consumer = Consumer(cluster.namesrv, f"all-of-{topic}", {topic: wanted}, start_from="earliest")
    async with consumer:
        try:
            while True:
                if len(set(found)) >= count:
                    until = loop.time() + QUIET_SECONDS
                async with asyncio.timeout_at(until):
                    batch = await consumer.next_batch()
                found += [message.body for message in batch]
        except TimeoutError:
            return found


def test_transactions_are_published_as_decided_once_each(cluster: RunningCluster) -> None:
    """Number n is committed where n % 3 is 0, rolled back where it is 1, and asked about else; of
    those the even ones are committed."""
    asked: dict[int, None] = {}
    all_asked = asyncio.Event()

    async def check(message: ReceivedMessage) -> Outcome:
        number = int(message.body)
        asked[number] = None
        if len(asked) == COUNT // 3:
            all_asked.set()
        return Outcome.ROLLBACK if number % 2 else Outcome.COMMIT

    async def run() -> list[bytes]:
        config = ProducerConfig(group="payers")
        async with TransactionProducer(cluster.namesrv, check, config) as producer:
            for number in range(COUNT):
                transaction = producer.transaction(Message("payments", b"%d" % number))
                await transaction.begin()
                if number == KILLED_AFTER + 1:
                    await asyncio.to_thread(kill_leader, cluster)
                if number % 3 == 0:
                    await transaction.commit()
                elif number % 3 == 1:
                    await transaction.rollback()
        async with TransactionProducer(cluster.namesrv, check, config) as heir:
            # It becomes known to the leader, which then has somebody to ask.
            async with heir.transaction(Message("payments", b"heir")):
                pass
            async with asyncio.timeout(COMPLETE_SECONDS):
                await all_asked.wait()
            return await bodies(cluster, "payments", "*", count=len(wanted) + 1)

    wanted = [n for n in range(COUNT) if n % 3 == 0 or (n % 3 == 2 and n % 2 == 0)]
    published = asyncio.run(run())
    assert sorted(published) == sorted([*(str(n).encode() for n in wanted), b"heir"])


def test_every_request_is_answered(cluster: RunningCluster) -> None:
    async def answer() -> None:
        consumer = Consumer(cluster.namesrv, "clerks", {"prices": "*"}, start_from="earliest")
        async with Producer(cluster.namesrv) as producer, consumer:
            async for message in consumer.messages():
                try:
                    await producer.reply(message, b"price of " + message.body)
                except NoReplyError:  # the asker has given up on it, and asks again
                    continue

    async def ask(producer: Producer, number: int) -> bytes:
        while True:
            try:
                reply = await producer.request(Message("prices", b"%d" % number), 3.0)
            except NoReplyError:
                continue
            return reply.body

    async def run() -> list[bytes]:
        answering = asyncio.create_task(answer())
        replies = []
        async with Producer(cluster.namesrv) as producer, asyncio.timeout(COMPLETE_SECONDS):
            for number in range(COUNT):
                if number == KILLED_AFTER:
                    killing = asyncio.create_task(asyncio.to_thread(kill_leader, cluster))
                replies.append(await ask(producer, number))
            await killing
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        await asyncio.sleep(0.1)  # connections are closed in the next turns of the loop
        return replies

    assert asyncio.run(run()) == [b"price of %d" % number for number in range(COUNT)]


def test_a_selector_brings_what_it_wants_once_each(cluster: RunningCluster, tmp_path: Path) -> None:
    async def run() -> list[bytes]:
        selector = Sql("number BETWEEN 10 AND 49 AND TAGS IN ('even')")
        reading = asyncio.create_task(bodies(cluster, "sizes", selector, count=len(wanted)))
        async with Producer(cluster.namesrv) as producer:
            for number in range(COUNT):
                if number == KILLED_AFTER:
                    await asyncio.to_thread(kill_leader, cluster)
                message = Message(
                    "sizes",
                    b"%d" % number,
                    tags="odd" if number % 2 else "even",
                    properties={"number": str(number)},
                )
                await producer.send(message)
        return await reading

    wanted = range(10, 50, 2)
    found = asyncio.run(run())
    assert sorted(map(int, found)) == list(wanted)


def test_what_always_fails_ends_among_the_dead_letters(cluster: RunningCluster) -> None:
    """A message whose send-back lost its answer may come twice, but is tried no more often."""
    count, attempts_max = 8, 2
    attempts: dict[tuple[int, int], int] = {}

    async def fail(consumer: Consumer) -> None:
        killed = False
        async for message in consumer.messages():
            number = int(message.body)
            attempts[number, message.reconsume_times] = number
            if not killed and len(attempts) == count // 2:
                killed = True
                await asyncio.to_thread(kill_leader, cluster)
            await consumer.send_back(message, delay_level=1)

    async def run() -> list[bytes]:
        async with Producer(cluster.namesrv) as producer:
            for number in range(count):
                await producer.send(Message("dishes", b"%d" % number))
        consumer = Consumer(
            cluster.namesrv,
            "cooks",
            {"dishes": "*"},
            start_from="earliest",
            retries=True,
            config=ConsumerConfig(max_reconsume_times=attempts_max),
        )
        async with consumer:
            failing = asyncio.create_task(fail(consumer))
            reading = asyncio.create_task(bodies(cluster, "%DLQ%cooks", "*", count=count))
            try:
                await asyncio.wait((failing, reading), return_when=asyncio.FIRST_COMPLETED)
                if failing.done():  # it ends by itself only where sending back failed
                    failing.result()
                return await reading
            finally:
                for task in (failing, reading):
                    task.cancel()
                await asyncio.gather(failing, reading, return_exceptions=True)

    dead = asyncio.run(run())
    assert {int(body) for body in dead} == set(range(count))
    assert {number for number, _ in attempts} == set(range(count))
    assert {times for _, times in attempts} == set(range(attempts_max + 1))
