"""A mirror between two clusters in memory: what it copies, waits for, and gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from broker.cli.mirror.origin import PROPERTY_ORIGIN, Origin
from broker.cli.mirror.topic_mirror import (
    NEW_QUEUES_SECONDS,
    PRODUCER,
    SETTLED_SECONDS,
    TopicMirror,
)
from broker.client.client_identity import ClientIdentity
from broker.client.producer.producer import Producer
from broker.cluster_admin.admin_client import LEADER_SECONDS, AdminClient, NoTopicError
from broker.cluster_admin.peeking import HOLD_MS
from broker.command_error import CommandError
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from store.message.properties import encode_properties
from tests.broker.client.fake_cluster import (
    NAME_SERVER,
    NAME_SERVER_PORT,
    NOW_MS,
    Broker,
    Cluster,
    Group,
)
from tests.support.virtual_network import NetworkedLoop

TOPIC = "orders"
FAR = 1000
"""Added to the ports of the target."""

SYS_FLAG_AT = 36
"""The byte of a record at which its SYSFLAG begins."""

LONG = 120.0
"""Longer than a producer with usual settings tries."""


class Mirrored:
    """A source and a target with the topic, one broker each, and a mirror of it."""

    def __init__(self, loop: NetworkedLoop, queues: int, start: str) -> None:
        self.source, self.target = Cluster(loop), Cluster(loop, FAR)
        self.source.topics[TOPIC], self.target.topics[TOPIC] = 1, queues
        self.copied = 0
        name_server = f"10.0.0.1:{NAME_SERVER_PORT + FAR}"
        self._clients = RemotingClient(loop), RemotingClient(loop)
        self._producer = Producer(
            name_server,
            PRODUCER,
            wall_clock=lambda: NOW_MS,
            rng=Random(1),
            identity=ClientIdentity("10.0.0.9", 77, 1),
        )
        self.mirror = TopicMirror(
            AdminClient(self._clients[0], NAME_SERVER),
            AdminClient(self._clients[1], name_server),
            self._producer,
            TOPIC,
            start=start,
            count=self._count,
        )
        self.follow: asyncio.Task[None]
        self._holding: asyncio.Task[None]

    async def begin(self) -> None:
        for cluster in (self.source, self.target):
            await cluster.start()
        await self._producer.start()
        self._holding = asyncio.create_task(self._hold_pulls())
        self.follow = asyncio.create_task(self.mirror.follow())
        await asyncio.sleep(1)

    async def end(self) -> None:
        for task in (self.follow, self._holding):
            task.cancel()
        await asyncio.gather(self.follow, self._holding, return_exceptions=True)
        await self._producer.close()
        for client in self._clients:
            await client.close()
        for cluster in (self.source, self.target):
            await cluster.close()

    @property
    def here(self) -> Broker:
        return self.source.brokers[0]

    @property
    def there(self) -> Broker:
        return self.target.brokers[0]

    def bodies(self, queue_id: int = 0) -> list[bytes]:
        """The copies in a queue of the target."""
        return self.there.group.bodies(TOPIC, queue_id)

    def store(self, *bodies: bytes, sys_flag: int = 0) -> None:
        """Messages of the source's queue 0."""
        group = self.here.group
        group.append(TOPIC, 0, [(body, b"") for body in bodies])
        for stored in group.queues[TOPIC, 0][-len(bodies) :]:
            record = stored.record
            flag = sys_flag.to_bytes(4, "big")
            stored.record = record[:SYS_FLAG_AT] + flag + record[SYS_FLAG_AT + 4 :]
        self.here.run_held_pulls()

    async def _hold_pulls(self) -> None:
        """The source holds pulls for as long as they ask for, and not for ever."""
        while True:
            await asyncio.sleep(HOLD_MS / 1000)
            for broker in self.source.brokers:
                held, broker.held = broker.held, []
                for connection, request in held:
                    following = {"nextBeginOffset": ext_str(request, "queueOffset")}
                    connection.respond(request, ResponseCode.PULL_NOT_FOUND, ext=following)

    def _count(self, count: int) -> None:
        self.copied += count


@asynccontextmanager
async def mirrored(
    loop: NetworkedLoop, *, queues: int = 2, start: str = "earliest"
) -> AsyncIterator[Mirrored]:
    """A mirror that follows; ``queues`` are those of the target, the source has one."""
    both = Mirrored(loop, queues, start)
    await both.begin()
    try:
        yield both
    finally:
        await both.end()


async def test_what_comes_while_the_target_is_away_is_not_skipped(loop: NetworkedLoop) -> None:
    async with mirrored(loop, start="latest") as both:
        both.there.mute = True
        both.store(b"the first after the start")
        await asyncio.sleep(LONG)
        both.there.mute = False
        await asyncio.sleep(10)
        assert both.bodies() == [b"the first after the start"]


async def test_a_slow_disk_of_the_target_makes_no_second_copy(loop: NetworkedLoop) -> None:
    async with mirrored(loop) as both:
        both.store(b"before")
        await asyncio.sleep(1)
        both.there.stalled = []
        both.store(b"one", b"two")
        await asyncio.sleep(LONG)
        both.there.go_on()
        await asyncio.sleep(10)
        both.store(b"after")
        await asyncio.sleep(1)
        assert both.bodies() == [b"before", b"one", b"two", b"after"]
        assert both.copied == 4


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_new_queue_of_the_source_is_copied_from_its_first_message(
    loop: NetworkedLoop, start: str
) -> None:
    async with mirrored(loop, start=start) as both:
        both.source.topics[TOPIC] = 2
        both.here.store(TOPIC, 1, b"in a new queue")
        await asyncio.sleep(NEW_QUEUES_SECONDS + 5)
        both.here.store(TOPIC, 1, b"later")
        both.store(b"in the old one")
        await asyncio.sleep(1)
        assert both.bodies(1) == [b"in a new queue", b"later"]
        assert both.bodies(0) == [b"in the old one"]


async def test_a_new_queue_without_a_place_in_the_target_ends_the_mirror(
    loop: NetworkedLoop,
) -> None:
    async with mirrored(loop, queues=1) as both:
        both.source.topics[TOPIC] = 2
        await asyncio.sleep(NEW_QUEUES_SECONDS + 5)
        with pytest.raises(CommandError, match="2 queues in the source, but 1 here"):
            await asyncio.wait_for(both.follow, 1)


@pytest.mark.parametrize("cluster", ["source", "target"])
async def test_it_says_which_cluster_lacks_the_topic(loop: NetworkedLoop, cluster: str) -> None:
    both = Mirrored(loop, 1, "earliest")
    lacking = both.source if cluster == "source" else both.target
    del lacking.topics[TOPIC]
    await both.begin()
    with pytest.raises(NoTopicError, match=f"{TOPIC} does not exist in the {cluster} cluster"):
        await asyncio.wait_for(both.follow, 1)
    await both.end()


async def test_bodies_are_copied_as_they_are_stored(loop: NetworkedLoop) -> None:
    """The broker takes what says that it is compressed and cannot be decompressed."""
    async with mirrored(loop) as both:
        both.there.requests.clear()
        group = both.here.group
        group.append(TOPIC, 0, [(b"plain", b"")])
        both.store(b"no zlib", b"neither", sys_flag=0x101)
        both.store(b"plain again", sys_flag=0x100)
        await asyncio.sleep(1)
        assert both.bodies() == [b"plain", b"no zlib", b"neither", b"plain again"]
        sends = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        flags = [each.ext["f"] for each in both.there.requests if each.code in sends]
        assert flags == ["0", str(0x101), "0"]


def deposed(connection: Connection, request: Frame) -> None:
    connection.respond(request, ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader")


async def test_a_source_that_leads_no_more_for_long_is_waited_for(loop: NetworkedLoop) -> None:
    async with mirrored(loop) as both:
        both.store(b"one")
        await asyncio.sleep(1)
        both.here.overrides[RequestCode.PULL_MESSAGE] = deposed
        both.store(b"two")  # wakes the pull that waits
        await asyncio.sleep(5 * LEADER_SECONDS)
        both.here.overrides.clear()
        both.store(b"three")
        await asyncio.sleep(LEADER_SECONDS)
        assert both.bodies() == [b"one", b"two", b"three"]


async def test_a_source_that_lost_what_was_copied_ends_the_mirror(loop: NetworkedLoop) -> None:
    async with mirrored(loop) as both:
        both.store(b"one", b"two")
        await asyncio.sleep(1)
        both.here.group.queues.clear()
        leader = await both.source.fail_over(both.here)
        await asyncio.sleep(1)
        leader.store(TOPIC, 0, b"another")
        await asyncio.sleep(1)
        with pytest.raises(CommandError, match="another message is at offset 0"):
            await asyncio.wait_for(both.follow, 1)
        assert both.bodies() == [b"one", b"two"]


async def test_a_source_that_was_away_for_long_is_looked_at_again(loop: NetworkedLoop) -> None:
    async with mirrored(loop) as both:
        both.store(b"one")
        await asyncio.sleep(1)
        both.here.overrides[RequestCode.PULL_MESSAGE] = deposed
        both.store(b"two")  # wakes the pull that waits
        await asyncio.sleep(2 * LEADER_SECONDS)
        other = Group("broker-a", first_offsets={(TOPIC, 0): 5})
        other.append(TOPIC, 0, [(b"another", b""), (b"and one more", b"")])
        both.here.group.queues = other.queues
        both.here.overrides.clear()
        await asyncio.sleep(2 * LEADER_SECONDS)
        with pytest.raises(CommandError, match="is not the queue that was copied"):
            await asyncio.wait_for(both.follow, 1)


async def test_a_message_without_room_for_its_origin_ends_the_mirror(loop: NetworkedLoop) -> None:
    async with mirrored(loop) as both:
        both.store(b"short")
        long = encode_properties({"k": "v" * 32_690})
        both.here.store(TOPIC, 0, b"long", properties=long)
        await asyncio.sleep(1)
        with pytest.raises(CommandError, match="the message at offset 1 of queue 0 of broker-a"):
            await asyncio.wait_for(both.follow, 1)


async def test_copies_that_a_killed_mirror_left_on_their_way_are_not_made_again(
    loop: NetworkedLoop,
) -> None:
    async with mirrored(loop) as both:
        both.store(b"0", b"1")
        await asyncio.sleep(1)
        both.follow.cancel()
        await asyncio.gather(both.follow, return_exceptions=True)
        both.store(b"2", b"3")
        both.follow = asyncio.create_task(both.mirror.follow())
        await asyncio.sleep(SETTLED_SECONDS / 2)
        late = []
        for offset in (2, 3):
            origin = Origin(both.here.group.name, 0, offset, NOW_MS + 2)
            late.append((b"%d" % offset, encode_properties({PROPERTY_ORIGIN: str(origin)})))
        both.there.group.append(TOPIC, 0, late)
        await asyncio.sleep(3 * SETTLED_SECONDS)
        both.store(b"4")
        await asyncio.sleep(1)
        assert not both.follow.done()
        assert both.bodies() == [b"0", b"1", b"2", b"3", b"4"]
