"""A process that speaks the peers' protocol and means no good, and a group that goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from dledger.raft.messages import (
    AppendAccepted,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.replication_evidence import MemberEvidence
from dledger.wire.codec import MessageEncoder, decode_message
from dledger.wire.greeting import Greeting, pack_greeting
from dledger.wire.peer_link import PATH
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    HealthReport,
    SnapshotNeededNotice,
)
from dledger.wire.transport import Message
from store.log.entry import EntryKind, build_entry
from tests.cluster.running_cluster import RunningCluster

HEARD_SECONDS = 1.0
NAMES_MADE_UP = 200
REACHED_SECONDS = 3.0


class HostilePeer:
    """Greets nodes under one name, and says what it likes to those that dial it back."""

    def __init__(self, group: str, name: str, messages: Sequence[Message]) -> None:
        self.heard: list[Message] = []
        self.dialled = 0
        self._greeting = group, name
        self._messages = messages
        self._address = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Nodes can dial it meanwhile."""
        app = web.Application()
        app.router.add_get(PATH, self._speak)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        self._address = f"{host}:{port}"
        try:
            yield
        finally:
            await runner.cleanup()

    async def _speak(self, request: web.Request) -> web.WebSocketResponse:
        self.dialled += 1
        connection = web.WebSocketResponse(timeout=0.1)
        await connection.prepare(request)
        await connection.receive()
        for message in self._messages:
            try:
                await connection.send_bytes(b"".join(MessageEncoder().encode(message)))
            except ConnectionError:
                break
        await connection.receive()
        return connection

    async def meet(self, session: aiohttp.ClientSession, address: str) -> None:
        """Dials a node, and hears it for a while."""
        timeout = aiohttp.ClientWSTimeout(ws_close=0.1)
        async with session.ws_connect(f"http://{address}{PATH}", timeout=timeout) as connection:
            await connection.send_bytes(pack_greeting(Greeting(*self._greeting, self._address)))
            try:
                async with asyncio.timeout(HEARD_SECONDS):
                    async for message in connection:
                        self.heard.append(decode_message(memoryview(message.data)))
            except TimeoutError:
                pass


def lies(term: int) -> list[Message]:
    """One of everything; what follows a message for which the link is broken goes unheard, so they
    come in many orders."""
    forged = build_entry(EntryKind.DATA, 5, term, 4000, 12345, (b"forged",))
    held = tuple(MemberEvidence(f"n{number}", 12345, 1 << 40) for number in range(3))
    return [
        Heartbeat(term, 1 << 40, 7, held),
        AppendRequest(term, 4, 1, 1 << 40, (forged,)),
        AppendRequest(term, 1 << 40, term, 1 << 40, ()),
        VoteRequest(term, 1 << 40, term, pre_vote=True),
        VoteRequest(term, 1 << 40, term, pre_vote=False, ordered=True),
        VoteResponse(term, granted=False, pre_vote=True),
        AppendAccepted(term, 1 << 40, 12345),
        HeartbeatResponse(term, -1, -1, 1, 1, -1),
        TimeoutNow(term),
        ReadRequest(term, 1),
        ReadResponse(term, 1, 1 << 40),
        HealthReport(room=True, prompt=True, whole=True),
        SnapshotNeededNotice(1 << 40),
        FetchRequest(1, 0, 100, 1 << 20),
        CheckpointRequest(2, -1, 0),
        CheckpointResponse(1, 9, 0, 0, 1 << 40, 0, b"no checkpoint"),
    ]


def addresses(cluster: RunningCluster) -> dict[str, str]:
    return {node: str(cluster.config(node).own.peer) for node in cluster.nodes}


async def attack(cluster: RunningCluster, name: str, messages: Sequence[Message]) -> HostilePeer:
    """All nodes but that of the name meet it at once."""
    peer = HostilePeer(cluster.group, name, messages)
    async with peer.listening(), aiohttp.ClientSession() as session:
        found = [
            address
            for node, address in addresses(cluster).items()
            if node != name and cluster.runs(node)
        ]
        await asyncio.gather(*(peer.meet(session, address) for address in found))
    return peer


def goes_on(cluster: RunningCluster, topic: str) -> None:
    """It serves, elects another leader, and its replicas are equal in the end."""
    assert all(cluster.runs(node) for node in cluster.nodes)
    cluster.dledger("produce", topic, stdin="before\n")
    leader = cluster.leader()
    cluster.kill(leader)
    assert cluster.leader() != leader
    cluster.dledger("produce", topic, stdin="after\n")
    cluster.start(leader)
    cluster.wait_until_answering(leader)
    cluster.wait_until_level()
    assert all(cluster.runs(node) for node in cluster.nodes)


def test_a_stranger_reads_nothing_ends_nothing_and_moves_nothing(cluster: RunningCluster) -> None:
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster", "--queues", "1")
    cluster.dledger("produce", "orders", stdin="secret\n" * 10)
    view, rng = cluster.wait_until_level(), random.Random(7)
    term = view.nodes[0].term
    assert term is not None
    for told in (term, term + 1, 1 << 62):
        messages = lies(told)
        rng.shuffle(messages)
        peer = asyncio.run(attack(cluster, "n9", messages))
        assert peer.dialled >= len(cluster.nodes)
        heard = peer.heard
        assert not [each for each in heard if isinstance(each, FetchResponse) and each.entries]
        assert not [each for each in heard if isinstance(each, CheckpointResponse) and each.data]
        assert not [each for each in heard if isinstance(each, AppendRequest | Heartbeat)]
    after = cluster.wait_until_level()
    assert {node.term for node in after.nodes} == {term}
    assert after.leader == view.leader
    goes_on(cluster, "orders")


def test_who_says_to_be_a_member_disturbs_while_it_lasts_and_no_longer(
    cluster: RunningCluster,
) -> None:
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster", "--queues", "1")
    cluster.dledger("produce", "orders", stdin="kept\n" * 10)
    rng = random.Random(8)
    term = cluster.wait_until_level().nodes[0].term
    assert term is not None
    for name in cluster.nodes:
        cluster.kill(name)  # else the true one is heard
        dialled = 0
        for told in (term, term + 1, term + 1000, 1 << 62):
            # Its confirmations would count: that they are lies shows only with authentication.
            messages = [each for each in lies(told) if not isinstance(each, SnapshotNeededNotice)]
            rng.shuffle(messages)
            dialled += asyncio.run(attack(cluster, name, messages)).dialled
        assert dialled
        cluster.start(name)
        cluster.wait_until_answering(name)
        cluster.wait_until_level()
    goes_on(cluster, "orders")
    after = cluster.view().nodes[0].term
    assert after is not None
    assert after < 1 << 40


def test_made_up_names_are_dialled_a_few_times_and_forgotten(cluster: RunningCluster) -> None:
    async def come() -> int:
        peer = HostilePeer(cluster.group, "", ())
        async with peer.listening(), aiohttp.ClientSession() as session:
            timeout = aiohttp.ClientWSTimeout(ws_close=0.1)
            for number in range(NAMES_MADE_UP):
                url = f"http://{addresses(cluster)['n0']}{PATH}"
                connection = await session.ws_connect(url, timeout=timeout)
                greeting = Greeting(cluster.group, f"x{number}", peer._address)
                await connection.send_bytes(pack_greeting(greeting))
            await asyncio.sleep(REACHED_SECONDS)
            return peer.dialled

    assert 1 <= asyncio.run(come()) < NAMES_MADE_UP / 2
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster", "--queues", "1")
    goes_on(cluster, "orders")
