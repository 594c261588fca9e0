"""A tool that speaks to a NameServer by raw requests."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from broker.nameserver.server import NameServer
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame
from tests.support.virtual_network import NetworkedLoop

NAMESRV = "10.0.0.1:9876"


N0, N1 = "10.0.0.1:10911", "10.0.0.2:10911"


TOPIC = {"order": False, "perm": 6, "readQueueNums": 4, "topicName": "T", "writeQueueNums": 8}


def table(*topics: str, counter: int = 1) -> bytes:
    return orjson.dumps(
        {
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": counter, "timestamp": 5},
                "topicConfigTable": {topic: TOPIC | {"topicName": topic} for topic in topics},
            },
            "filterServerList": [],
        }
    )


def broker_ext(address: str = N0, broker_id: str = "0", **more: str) -> dict[str, str]:
    return {
        "brokerName": "broker-a",
        "brokerAddr": address,
        "clusterName": "DefaultCluster",
        "haServerAddr": address,
        "brokerId": broker_id,
        **more,
    }


class Tool:
    """A client of the NameServer; every one has a connection of its own."""

    def __init__(self, loop: NetworkedLoop) -> None:
        self._client = RemotingClient(loop)
        self.close = self._client.close

    async def ask(
        self, code: RequestCode, ext: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        return await self._client.invoke(NAMESRV, code, ext, (body,))

    async def register(self, body: bytes, **ext: str) -> Frame:
        frame = await self.ask(RequestCode.REGISTER_BROKER, broker_ext(**ext), body)
        assert frame.code == 0, frame
        return frame

    async def topics(self) -> object:
        frame = await self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return orjson.loads(frame.body)["topicList"]


async def start(loop: NetworkedLoop) -> NameServer:
    nameserver = NameServer(loop, "10.0.0.1", 9876)
    await nameserver.start()
    return nameserver
