"""What a node says that may know less of a queue than who asks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.remoting.protocol.codes import ResponseCode
from tests.broker.single_broker import SingleBroker, with_broker


def test_a_node_that_does_not_lead_does_not_correct_an_offset_beyond_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"x")
        assert (await broker.pull("orders", 0, 5)).code == ResponseCode.PULL_OFFSET_MOVED
        monkeypatch.setattr(broker.broker.context.reader, "_leads", lambda: False)
        answer = await broker.pull("orders", 0, 5)
        told = answer.code, answer.ext["nextBeginOffset"]
        assert told == (ResponseCode.PULL_NOT_FOUND, "5")

    with_broker(scenario, tmp_path)
