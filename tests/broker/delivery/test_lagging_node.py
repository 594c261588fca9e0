"""What a node says that may know less of a queue than who asks it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from broker.remoting.protocol.codes import LEADER, ResponseCode
from broker.remoting.protocol.frame import Frame
from dledger.raft.configuration import Configuration, MemberAddress
from tests.broker.single_broker import SingleBroker, messages


async def test_a_node_that_does_not_lead_does_not_correct_an_offset_beyond_its_end(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"x")
    assert (await broker.pull("orders", 0, 5)).code == ResponseCode.PULL_OFFSET_MOVED
    monkeypatch.setattr(broker.broker.context.reader, "_leads", lambda: False)
    answer = await broker.pull("orders", 0, 5)
    told = answer.code, answer.ext["nextBeginOffset"]
    assert told == (ResponseCode.PULL_NOT_FOUND, "5")


async def test_a_pull_at_a_node_that_does_not_lead_is_told_who_does(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"x")
    assert LEADER not in (await broker.pull("orders", 0, 0)).ext
    node = broker.broker.context.node
    addresses = {"n1": MemberAddress("", "10.0.0.2:10911", "")}
    configuration = Configuration(("n0", "n1"), addresses=addresses)
    monkeypatch.setattr(type(node.core), "configuration", configuration)
    for leader in ("n1", "gone", None):
        follows = replace(node.leadership, leader=leader, serving=False)
        monkeypatch.setattr(node.announcer, "leadership", follows)
        answer = await broker.pull("orders", 0, 0)
        assert answer.ext.get(LEADER) == ("10.0.0.2:10911" if leader == "n1" else None)
        assert [record.body for record in messages(answer)] == [b"x"]
    monkeypatch.undo()


async def test_a_node_that_stops_answers_held_pulls_at_once_and_holds_each_pull_once(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"x")
    loop, delivery = broker.loop, broker.broker.context.delivery

    def pull() -> asyncio.Task[Frame]:
        held = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
        return loop.create_task(broker.pull("orders", 0, 1, **held))

    waiting = pull()
    await asyncio.sleep(1)
    assert not waiting.done()
    began = loop.time()
    delivery.let_go()
    assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
    assert loop.time() - began < 0.1
    again = pull()
    await asyncio.sleep(1)
    assert not again.done()
    await broker.send("orders", 0, b"y")
    assert [record.body for record in messages(await again)] == [b"y"]
    assert len(delivery.long_polling) == 0
