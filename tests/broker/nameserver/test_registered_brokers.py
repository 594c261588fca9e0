"""The NameServer follows its brokers: they register, go silent and leave."""

from __future__ import annotations

import asyncio
import zlib

import orjson

from broker.remoting.protocol.codes import RequestCode
from tests.broker.nameserver.tool import N0, N1, Tool, broker_ext, start, table
from tests.support.virtual_network import NetworkedLoop, turns


async def test_a_compressed_registration_is_taken(loop: NetworkedLoop) -> None:
    await start(loop)

    def sized(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    body = zlib.compress(
        sized(b'{"counter":1,"timestamp":5}')
        + (1).to_bytes(4, "big")
        + sized(b"T 4 8 6 SINGLE_TAG")
        + sized(b"[]")
    )
    tool = Tool(loop)
    crc = str(zlib.crc32(body) & 0x7FFFFFFF)
    await tool.register(body, compressed="true", bodyCrc32=crc)
    assert await tool.topics() == ["T"]


async def test_a_registration_whose_crc_does_not_match_is_refused(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    frame = await tool.ask(RequestCode.REGISTER_BROKER, broker_ext(bodyCrc32="12345"), table("T"))
    assert (frame.code, frame.remark) == (1, "crc32 not match")
    assert await tool.topics() == []


async def test_a_registration_without_a_name_is_refused(loop: NetworkedLoop) -> None:
    await start(loop)
    ext = broker_ext()
    del ext["brokerName"]
    frame = await Tool(loop).ask(RequestCode.REGISTER_BROKER, ext, table("T"))
    assert (frame.code, frame.remark) == (1, "missing field brokerName")


async def test_a_deposed_leader_is_told_why_it_is_refused(loop: NetworkedLoop) -> None:
    await start(loop)
    leader, deposed = Tool(loop), Tool(loop)
    await leader.register(table("T"), address=N1, term="7")
    frame = await deposed.ask(RequestCode.REGISTER_BROKER, broker_ext(term="6"), table("T"))
    assert frame.code == 1
    assert frame.remark == "broker-a: a leader of term 7 is known, not 6"


async def test_a_follower_learns_the_leader_and_the_order_configuration(
    loop: NetworkedLoop,
) -> None:
    await start(loop)
    leader, follower = Tool(loop), Tool(loop)
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
    await leader.ask(RequestCode.PUT_KV_CONFIG, put)
    assert (await leader.register(table("T"))).ext == {}
    frame = await follower.register(table("T"), address=N1, broker_id="2")
    assert frame.ext == {"haServerAddr": N0, "masterAddr": N0}
    assert orjson.loads(frame.body) == {"table": {"T": "broker-a:4"}}


async def test_the_route_carries_the_order_configuration(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
    await tool.ask(RequestCode.PUT_KV_CONFIG, put)
    await tool.register(table("T", "U"))
    route = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    other = await tool.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"})
    assert orjson.loads(route.body)["orderTopicConf"] == "broker-a:4"
    assert "orderTopicConf" not in orjson.loads(other.body)


async def test_a_broker_whose_connection_closes_is_dropped_at_once(loop: NetworkedLoop) -> None:
    await start(loop)
    broker, tool = Tool(loop), Tool(loop)
    await broker.register(table("T"))
    await broker.register(table("T"))
    await broker.close()
    await turns()
    assert await tool.topics() == []


async def test_a_silent_broker_is_dropped_by_the_scan(loop: NetworkedLoop) -> None:
    nameserver = await start(loop)
    tool = Tool(loop)
    await tool.register(table("T"), heartbeatTimeoutMillis="25000")
    await asyncio.sleep(21)
    assert nameserver.routes.topics() == ["T"]
    await asyncio.sleep(10)
    assert nameserver.routes.topics() == []
    await turns()
    assert nameserver.server.connections == []


async def test_a_broker_that_unregisters_is_gone(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    await tool.register(table("T"))
    frame = await tool.ask(RequestCode.UNREGISTER_BROKER, broker_ext())
    assert frame.code == 0
    assert await tool.topics() == []


async def test_the_data_version_decides_whether_to_register_again(loop: NetworkedLoop) -> None:
    await start(loop)
    tool = Tool(loop)
    await tool.register(table("T", counter=3))
    same = await tool.ask(
        RequestCode.QUERY_DATA_VERSION, broker_ext(), b'{"counter":3,"timestamp":5}'
    )
    newer = await tool.ask(
        RequestCode.QUERY_DATA_VERSION, broker_ext(), b'{"counter":4,"timestamp":6}'
    )
    assert (same.ext, newer.ext) == ({"changed": "false"}, {"changed": "true"})
    assert orjson.loads(newer.body) == {"counter": 3, "stateVersion": 0, "timestamp": 5}
