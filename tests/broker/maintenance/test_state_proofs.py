"""A node whose state differs from its group's: what it still answers, and what it does not do."""

from __future__ import annotations

import asyncio
import json

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from dledger.errors import StateDivergedError
from tests.broker.http.site import Site


async def test_it_serves_nobody_says_why_and_is_opened_anew(site: Site) -> None:
    broker = site.broker
    context = broker.broker.context
    assert (await broker.send("orders", 0, b"before")).code == ResponseCode.SUCCESS
    saved = context.node.store.checkpoints.indexes
    context.node.state_divergence.differs(context.node.applied_index, "offsets, topics")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not context.node.serving
    for answer in (
        await broker.send("orders", 0, b"refused"),
        await broker.pull("orders", 0, 0),
        await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG),
    ):
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark is not None
        assert "differs from its group's" in answer.remark
    told = await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    damage = json.loads(json.loads(told.body)["table"]["damage"])
    (line,) = damage
    assert line.startswith("its state differs from the group's, in: offsets, topics;")
    status, _ = await site.post("orders", {"body": "refused"})
    assert status == 503
    assert (await site.ask("GET", "/topics"))[0] == 503
    assert (await site.ask("GET", "/healthz"))[0] == 503
    assert (await site.ask("GET", "/status"))[0] == 200
    context.node.checkpointer.checkpoint()
    await asyncio.sleep(20)
    assert context.node.store.checkpoints.indexes == saved
    (reason,) = broker.failures
    assert isinstance(reason, StateDivergedError)
    broker.failures.clear()
