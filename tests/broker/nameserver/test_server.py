"""The NameServer on the wire: what clients, brokers and tools ask it, and what they get."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import PROTOCOL_VERSION, RequestCode, ResponseCode
from broker.remoting.protocol.frame import PREFIX
from broker.remoting.protocol.frame_reader import FrameReader
from tests.broker.nameserver.tool import N0, N1, Tool, broker_ext, start, table
from tests.support.virtual_network import MemoryTransport, NetworkedLoop, turns


class OldClient(asyncio.Protocol):
    """Sends headers as a client of any version would."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._reader = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.bodies.extend(frame.body for frame in self._reader.feed(data))

    def ask_route(self, version: int, **ext: object) -> None:
        header = orjson.dumps(
            {
                "code": 105,
                "opaque": 1,
                "version": version,
                "language": "CPP",
                "extFields": {"topic": "T", **ext},
            }
        )
        self._transport.write(PREFIX.pack(4 + len(header), len(header)) + header)


async def test_a_registered_topic_has_a_route(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    await tool.register(table("T"))
    frame = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert frame.code == 0
    assert orjson.loads(frame.body) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": N0},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 8,
            }
        ],
    }


async def test_a_route_that_is_asked_for_again_shows_every_change(loop: NetworkedLoop) -> None:
    await start(loop)
    tool, follower = Tool(loop), Tool(loop)

    async def route() -> tuple[object, ...]:
        told = None
        for _ in range(2):  # the second answer is the one that was kept
            frame = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
            assert frame.code in {0, ResponseCode.TOPIC_NOT_EXIST}
            document = orjson.loads(frame.body or b"null")
            assert told in {None, frame.body}
            told = frame.body
        if document is None:
            return ()
        (broker,), (queues,) = document["brokerDatas"], document["queueDatas"]
        return broker["brokerAddrs"], queues["perm"], document.get("orderTopicConf")

    assert await route() == ()
    await tool.register(table("T"))
    assert await route() == ({"0": N0}, 6, None)
    await follower.register(table("T"), address=N1, broker_id="2")
    assert await route() == ({"0": N0, "2": N1}, 6, None)
    await tool.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert await route() == ({"0": N0, "2": N1}, 4, None)
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    await tool.ask(RequestCode.PUT_KV_CONFIG, {**order, "value": "broker-a:4"})
    assert await route() == ({"0": N0, "2": N1}, 4, "broker-a:4")
    await tool.ask(RequestCode.DELETE_KV_CONFIG, order)
    assert await route() == ({"0": N0, "2": N1}, 4, None)
    await follower.close()
    await turns()
    assert await route() == ({"0": N0}, 4, None)
    await tool.register(table("T", counter=2))
    assert await route() == ({"0": N0}, 6, None)
    await tool.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
    assert await route() == ()


async def test_an_unknown_topic_is_answered_with_17_and_a_remark(loop: NetworkedLoop) -> None:
    await start(loop)
    frame = await Tool(loop).ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%G"})
    assert frame.code == ResponseCode.TOPIC_NOT_EXIST
    assert frame.remark == "No topic route info in name server for the topic: %RETRY%G"


@pytest.mark.parametrize(
    ("version", "ext", "keys"),
    [
        (317, {}, b"{0:"),
        (400, {}, b"{0:"),
        (401, {}, b'{"0":'),
        (PROTOCOL_VERSION, {}, b'{"0":'),
        (317, {"acceptStandardJsonOnly": "true"}, b'{"0":'),
        (317, {"acceptStandardJsonOnly": True}, b'{"0":'),
    ],
)
async def test_broker_ids_are_bare_keys_for_clients_that_know_no_others(
    loop: NetworkedLoop, version: int, ext: dict[str, object], keys: bytes
) -> None:
    nameserver = await start(loop)
    tool = Tool(loop)
    await tool.register(table("T"))
    client = OldClient()
    loop.join(client, nameserver.server.accept())
    client.ask_route(version, **ext)
    await turns()
    assert b'"brokerAddrs":' + keys + b'"10.0.0.1:10911"}' in client.bodies[0]


async def test_the_cluster_info_names_replicas_and_http_addresses(loop: NetworkedLoop) -> None:
    await start(loop)
    tool, follower = Tool(loop), Tool(loop)
    await tool.register(table("T"), httpAddr="10.0.0.1:8080", grpcAddr="10.0.0.1:10916", term="1")
    await follower.register(table("T"), address=N1, broker_id="2", httpAddr="10.0.0.2:8080")
    frame = await tool.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert orjson.loads(frame.body) == {
        "brokerAddrTable": {
            "broker-a": {
                "brokerAddrs": {"0": N0, "2": N1},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
            }
        },
        "clusterAddrTable": {"DefaultCluster": ["broker-a"]},
        "grpcAddrTable": {N0: "10.0.0.1:10916"},
        "httpAddrTable": {N0: "10.0.0.1:8080", N1: "10.0.0.2:8080"},
    }


async def test_topics_are_listed_by_cluster_and_as_system_topics(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    await tool.register(table("T", "U"))
    frame = await tool.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"})
    assert orjson.loads(frame.body) == {"topicList": ["T", "U"]}
    frame = await tool.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert orjson.loads(frame.body) == {
        "brokerAddr": N0,
        "topicList": ["DefaultCluster", "broker-a"],
    }


async def test_a_topic_is_deleted(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    await tool.register(table("T", "U"))
    assert (await tool.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})).code == 0
    assert await tool.topics() == ["U"]


async def test_a_topic_of_one_cluster_is_deleted_and_that_of_another_stays(
    loop: NetworkedLoop,
) -> None:
    await start(loop)
    tool = Tool(loop)
    await tool.register(table("T"))
    for cluster, left in (("OtherCluster", ["T"]), ("DefaultCluster", [])):
        ext = {"topic": "T", "clusterName": cluster}
        assert (await tool.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext)).code == 0
        assert await tool.topics() == left


async def test_write_permission_is_wiped_and_added(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    await tool.register(table("T", "U"))
    wiped = await tool.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    added = await tool.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert (wiped.ext, added.ext) == ({"wipeTopicCount": "2"}, {"addTopicCount": "2"})


async def test_key_values_are_put_got_listed_and_deleted(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    key = {"namespace": "N", "key": "k"}
    assert (await tool.ask(RequestCode.PUT_KV_CONFIG, key | {"value": "v"})).code == 0
    assert (await tool.ask(RequestCode.GET_KV_CONFIG, key)).ext == {"value": "v"}
    listed = await tool.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert orjson.loads(listed.body) == {"table": {"k": "v"}}
    assert (await tool.ask(RequestCode.DELETE_KV_CONFIG, key)).code == 0
    assert (await tool.ask(RequestCode.GET_KV_CONFIG, key)).code == 22
    absent = await tool.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert absent.code == 22


async def test_settings_are_shown_and_cannot_be_changed(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    frame = await tool.ask(RequestCode.GET_NAMESRV_CONFIG)
    assert frame.body == b"listenPort=9876\nbrokerExpiredMillis=120000\n"
    assert (await tool.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"listenPort=1")).code == 16


async def test_what_an_earlier_process_sent_changes_nothing_once_the_next_has_registered(
    loop: NetworkedLoop,
) -> None:
    await start(loop)
    earlier, leader, client = Tool(loop), Tool(loop), Tool(loop)
    await earlier.register(table("T"), broker_id="2", term="4")
    await leader.register(table("T"), term="6")
    late = broker_ext(broker_id="2", term="4")
    frame = await earlier.ask(RequestCode.REGISTER_BROKER, late, table("T"))
    assert (frame.code, frame.remark) == (1, f"{N0}: is registered over a later connection")
    assert (await earlier.ask(RequestCode.UNREGISTER_BROKER, late)).code == 0
    await earlier.close()
    await turns()
    assert await client.topics() == ["T"]


async def test_a_request_for_a_broker_is_refused_with_3(loop: NetworkedLoop) -> None:
    await start(loop)
    assert (await Tool(loop).ask(RequestCode.SEND_MESSAGE_V2)).code == 3


async def test_a_stopped_nameserver_has_closed_its_connections(loop: NetworkedLoop) -> None:
    nameserver = await start(loop)
    tool = Tool(loop)
    await tool.register(table("T"))
    (connection,) = nameserver.server.connections
    await nameserver.stop()
    assert isinstance(connection, Connection)
    assert connection.is_closed
    assert nameserver.routes.topics() == []
