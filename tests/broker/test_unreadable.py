"""A derived file that cannot be read when it is needed stops the node: nothing is half applied."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from random import Random

import pytest

from broker.commands import Expire
from simulator.disk import Fault, SimulatedFileSystem
from store.errors import DamagedError
from store.retention import RetentionPolicy
from tests.broker.harness import SingleBroker
from tests.remoting.virtualnet import VirtualLoop

SEGMENT = 4 << 10


@pytest.mark.parametrize("unreadable", ["/consumequeue/", "/index/"])
def test_a_read_error_at_an_expiry_stops_the_node(unreadable: str) -> None:
    """Else the error of a disk would be taken for that of a socket, and the node go on."""
    fs = SimulatedFileSystem(Random(1))
    policy = RetentionPolicy(age_ms_max=None, log_bytes_max=2 * SEGMENT)
    complaints: list[dict[str, object]] = []

    async def script(loop: VirtualLoop) -> None:
        loop.set_exception_handler(lambda _loop, context: complaints.append(context))
        broker = SingleBroker(
            loop,
            Path("/data"),
            fs=fs,
            retention=policy if unreadable == "/index/" else None,
            segment_size=SEGMENT,
            max_message_size=SEGMENT // 4,
        )
        await broker.start()
        await broker.create_topic("orders")
        for _ in range(60):
            await broker.send("orders", 0, b"x" * 500)
        context = broker.broker.context
        context.node.keeper.checkpoint()
        await asyncio.sleep(0.1)
        fs.inject(Fault(1, errno.EIO, operations=("pread",), path=unreadable, lasting=True))
        if unreadable == "/consumequeue/":
            context.gatherer.add_command(Expire(context.machine.applied_end // 2))
        else:
            broker.broker._retention.check_soon()
            for _ in range(2):  # what the older checkpoint needs stays
                await asyncio.sleep(0.05)
                context.node.keeper.checkpoint()
        await asyncio.sleep(0.05)
        assert [type(each) for each in broker.failures] == [DamagedError]
        await broker.client.close()
        await broker.server.stop()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(script(loop))
    finally:
        loop.close()
    assert complaints == []
