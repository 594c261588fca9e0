"""A broker of a group of one, complete but for sockets and threads, in virtual time.

The node, the store and the remoting layer are the real ones. Disk work runs at once. Its completion
runs in a later turn of the loop, as from a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any, TypeVar

from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from broker.security.cluster_secrets import ClusterSecrets
from broker.security.credentials import NO_SECURITY, ClientSecurity, Credentials
from broker.server.broker import Broker
from broker.server.environment import BrokerLimits, Environment
from dledger.node.executor import Executors
from dledger.wire.endpoint import Endpoint
from dledger.wire.transport import Message, TransportHandler
from store.io.filesystem import FileSystem
from store.io.os_filesystem import OsFileSystem
from store.log.retention_policy import RetentionPolicy
from store.message.record import MessageRecord, iter_records
from store.replica import ReplicaStore, StoreConfig
from tests.support.fake_executor import FakeExecutor
from tests.support.virtual_network import NetworkedLoop

T = TypeVar("T")

PORT = 10911
ADDRESS = f"127.0.0.1:{PORT}"
ELECTION_SECONDS = 2.0
"""Virtual time within which a node that is alone elects itself."""

NOW_MS = 1_700_000_000_000


class NoPeers:
    """The transport of a group of one."""

    async def start(self, handler: TransportHandler) -> None: ...

    async def stop(self) -> None: ...

    def send(self, peer: str, message: Message) -> None:
        raise AssertionError(f"a message to {peer}, whom nobody knows: {message}")

    def reset(self, peer: str) -> None: ...

    def set_peers(self, members: Collection[str], addresses: Mapping[str, str]) -> None:
        """Does nothing: there are no peers."""


def flip(path: Path, byte: int) -> None:
    """Flips a bit of a file."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 4
    path.write_bytes(bytes(data))


class SingleBroker:
    """A broker whose node is alone in its group, and a client of it."""

    def __init__(
        self,
        loop: NetworkedLoop,
        data: Path,
        *,
        fs: FileSystem | None = None,
        retention: RetentionPolicy | None = None,
        clock_runs: bool = False,
        incarnation: int = 0,
        secrets: ClusterSecrets | None = None,
        client_security: ClientSecurity = NO_SECURITY,
        set_log_level: Callable[[str], None] = lambda _level: None,
        flows: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """``client_security`` is of the client. ``clock_runs``: the wall clock goes on with the
        loop's time from ``now_ms``. ``incarnation``: of a directory that is made now, 0 for none.
        ``flows``: what makes ingest and delivery, as an environment has it.
        """
        self.loop = loop
        self.now_ms = NOW_MS
        self._began = loop.time() if clock_runs else None
        fs = fs or OsFileSystem()
        self.config = NodeConfig(
            **{
                "group": "broker-a",
                "node": "n0",
                "data": str(data),
                "members": {
                    "n0": Member(
                        Endpoint("127.0.0.1", 40911),
                        Endpoint("127.0.0.1", PORT),
                        Endpoint("127.0.0.1", 8080),
                    )
                },
                "namesrv": ("127.0.0.1:9876",),
                "segment_size": 1 << 20,
                "max_message_size": 64 << 10,
                **settings,
            }
        )
        store = ReplicaStore.open(
            fs,
            str(data),
            StoreConfig(
                "broker-a",
                "n0",
                self.config.segment_size,
                min_free_bytes=0,
                incarnation=incarnation,
            ),
        )
        self.log_executor = FakeExecutor(loop)
        self.read_executor = FakeExecutor(loop)
        environment = Environment(
            fs=fs,
            make_transport=NoPeers,
            executors=Executors(self.log_executor, self.read_executor, FakeExecutor(loop)),
            loop=loop,
            rng=Random(1),
            wall_clock=self.wall_ms,
            clock=loop.time,
            new_incarnation=lambda: incarnation,
            secrets=secrets,
            set_log_level=set_log_level,
            **(flows or {}),
        )
        self.failures: list[BaseException] = []
        self.broker = Broker(
            self.config, store, environment, self.failures.append, BrokerLimits(retention=retention)
        )
        self.server = RemotingServer(loop, "127.0.0.1", PORT, self.broker.dispatch)
        self.client = RemotingClient(loop, security=client_security)

    def wall_ms(self) -> int:
        """The time of the broker's wall clock."""
        passed = 0.0 if self._began is None else self.loop.time() - self._began
        return self.now_ms + int(passed * 1000)

    async def start(self, *, serving: bool = True) -> None:
        await self.broker.start()
        await self.server.start()
        if serving:
            await asyncio.sleep(ELECTION_SECONDS)
            assert self.broker.context.node.serving

    async def stop(self) -> None:
        await self.client.close()
        await self.server.stop()
        await self.broker.stop()
        assert not self.failures

    def client_of(self, access_key: str, secret_key: str) -> RemotingClient:
        """A client with these keys. The caller closes it."""
        security = ClientSecurity(Credentials(access_key, secret_key))
        return RemotingClient(self.loop, security=security)

    async def ask(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        seconds: float = 60,
    ) -> Frame:
        """The answer to one request."""
        return await self.client.invoke(ADDRESS, code, ext or {}, (body,), timeout=seconds)

    async def create_topic(self, name: str, queues: int = 4, perm: int = 6, **changed: str) -> None:
        answer = await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": name,
                "defaultTopic": "TBW102",
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": str(perm),
                "topicFilterType": "SINGLE_TAG",
                "order": "false",
            }
            | changed,
        )
        assert answer.code == 0, answer.remark

    async def send(
        self, topic: str, queue_id: int, body: bytes, properties: str = "", **changed: str
    ) -> Frame:
        """The answer to a request 310."""
        ext = send_ext(topic, queue_id, properties) | changed
        return await self.ask(RequestCode.SEND_MESSAGE_V2, ext, body)

    async def pull(self, topic: str, queue_id: int, offset: int, **changed: str) -> Frame:
        """The answer to a pull, which by default is not held."""
        return await self.ask(RequestCode.PULL_MESSAGE, pull_ext(topic, queue_id, offset) | changed)


def send_ext(topic: str, queue_id: int, properties: str = "") -> dict[str, str]:
    """The fields of a request 310."""
    return {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(NOW_MS - 5),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
    }


def pull_ext(topic: str, queue_id: int, offset: int) -> dict[str, str]:
    """The fields of a request 11 without a filter, which is not held."""
    return {
        "consumerGroup": "readers",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
    }


_BATCHED = Struct(">iiiii")


def batched(body: bytes, properties: bytes = b"") -> bytes:
    """One message in the body of a request 320."""
    size = 22 + len(body) + len(properties)
    start = _BATCHED.pack(size, 0, 0, 0, len(body))
    return start + body + len(properties).to_bytes(2, "big") + properties


def messages(answer: Frame) -> list[MessageRecord]:
    """The records in the body of an answer, each checked."""
    return list(iter_records(answer.body))


@asynccontextmanager
async def running_broker(
    loop: NetworkedLoop, data: Path, *, serving: bool = True, **settings: Any
) -> AsyncIterator[SingleBroker]:
    """A broker, started and stopped. By default it serves."""
    broker = SingleBroker(loop, data, **settings)
    await broker.start(serving=serving)
    yield broker
    await broker.stop()
