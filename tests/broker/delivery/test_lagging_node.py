"""What a node says that may know less of a queue than who asks it."""

from __future__ import annotations

import pytest

from broker.remoting.protocol.codes import ResponseCode
from tests.broker.single_broker import SingleBroker


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
