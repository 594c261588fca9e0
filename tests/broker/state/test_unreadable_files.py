"""A derived file that cannot be read when it is needed stops the node: nothing is half applied.

Where it is only compared with the log it is made again, or the log stays as it is, and the node
goes on.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from random import Random

import pytest

from broker.state.commands import Expire
from broker.state.state_machine import BrokerStateMachine
from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import FatalDiskError
from store.log.layout import segment_name, segment_start
from store.log.retention_policy import RetentionPolicy
from store.recovery.snapshot_install import REBUILD_NAME
from tests.broker.single_broker import SingleBroker
from tests.support.virtual_network import NetworkedLoop

SEGMENT = 4 << 10


async def expiring(
    loop: NetworkedLoop, fs: SimulatedFileSystem, log_bytes_max: int | None
) -> SingleBroker:
    """A broker whose log has many segments, and a checkpoint behind them all."""
    policy = RetentionPolicy(age_ms_max=None, log_bytes_max=log_bytes_max)
    broker = SingleBroker(
        loop,
        Path("/data"),
        fs=fs,
        retention=policy,
        segment_size=SEGMENT,
        max_message_size=SEGMENT // 4,
    )
    await broker.start()
    await broker.create_topic("orders")
    for _ in range(60):
        await broker.send("orders", 0, b"x" * 500)
    broker.broker.context.node.checkpointer.checkpoint()
    await asyncio.sleep(0.1)
    return broker


def read_error(path: str) -> Fault:
    return Fault(1, errno.EIO, operations=("pread",), path=path, lasting=True)


async def test_an_expiry_reads_the_log_where_a_queue_cannot_be_read(loop: NetworkedLoop) -> None:
    fs = SimulatedFileSystem(Random(1))
    broker = await expiring(loop, fs, None)
    fault = fs.inject(read_error("/consumequeue/"))
    context = broker.broker.context
    position = context.machine.applied_end // 2
    context.batcher.add_command(Expire(position))
    await asyncio.sleep(0.05)
    assert broker.failures == []
    assert fault.hit
    fault.lasting = False
    queue = context.machine.queue("orders", 0)
    assert queue is not None
    assert 0 < queue.first_offset == queue.offset_at(position)
    before = int.from_bytes(queue.read_disk(queue.first_offset - 1, queue.first_offset)[:8], "big")
    assert before < position
    await broker.stop()


async def test_an_expiry_waits_while_the_log_cannot_be_read_either(loop: NetworkedLoop) -> None:
    fs = SimulatedFileSystem(Random(1))
    complaints: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    broker = await expiring(loop, fs, None)
    context = broker.broker.context
    machine = context.machine
    expired = machine.applied_end // 2
    segment = f"/commitlog/{segment_name(segment_start(expired, SEGMENT))}"
    faults = [fs.inject(read_error(path)) for path in ("/consumequeue/", segment)]
    context.batcher.add_command(Expire(expired))
    await asyncio.sleep(2.0)
    assert broker.failures == []
    assert machine.expired_position < expired
    for fault in faults:
        fault.lasting = False
    await asyncio.sleep(1.0)
    assert machine.expired_position == expired
    queue = machine.queue("orders", 0)
    assert queue is not None
    assert 0 < queue.first_offset < queue.end_offset == 60
    assert broker.failures == []
    assert complaints == []
    await broker.stop()


async def test_old_segments_expire_though_the_entry_index_cannot_be_read(
    loop: NetworkedLoop,
) -> None:
    fs = SimulatedFileSystem(Random(1))
    broker = await expiring(loop, fs, 2 * SEGMENT)
    node = broker.broker.context.node
    fs.inject(read_error("/index/"))
    broker.broker._retention.check_soon()
    for _ in range(2):  # what the older checkpoint needs stays
        await asyncio.sleep(0.05)
        await broker.send("orders", 0, b"x")
        node.checkpointer.checkpoint()
    await asyncio.sleep(0.05)
    assert node.store.first_position > 0
    assert node.serving
    assert broker.failures == []
    await broker.stop()


async def test_old_rows_that_cannot_be_removed_stop_the_node(
    loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are removed in a callback of the event loop, which must not pass over the error."""
    monkeypatch.setattr(BrokerStateMachine, "rows_per_file", 8)
    fs = SimulatedFileSystem(Random(1))

    broker = await expiring(loop, fs, 2 * SEGMENT)
    fs.inject(Fault(1, errno.EIO, operations=("remove",), path="/consumequeue/"))
    broker.broker._retention.check_soon()
    for _ in range(2):  # the first checkpoint still needs them
        await asyncio.sleep(0.05)
        await broker.send("orders", 0, b"x")
        broker.broker.context.node.checkpointer.checkpoint()
    await asyncio.sleep(0.05)
    assert [type(each) for each in broker.failures] == [FatalDiskError]
    await broker.client.close()
    await broker.server.stop()


async def scrubbed(broker: SingleBroker, fs: SimulatedFileSystem, unreadable: str) -> None:
    """A disk whose derived files the scrub finds unreadable, once they are covered."""
    await broker.start()
    await broker.create_topic("orders")
    for number in range(9):
        await broker.send("orders", 0, b"x", f"KEYS\x01k{number}\x02")
    broker.broker.context.node.checkpointer.checkpoint()
    await asyncio.sleep(0.1)
    fs.inject(Fault(1, errno.EIO, operations=("pread",), path=unreadable, lasting=True))


@pytest.mark.parametrize("unreadable", ["/data/consumequeue/orders/", "/data/keyindex/"])
async def test_a_derived_file_that_the_scrub_cannot_read_is_written_again(
    loop: NetworkedLoop, unreadable: str
) -> None:
    fs = SimulatedFileSystem(Random(1))

    broker = SingleBroker(loop, Path("/data"), fs=fs, scrub_pass_seconds=2)
    await scrubbed(broker, fs, unreadable)
    before = {path: fs.visible_bytes(path) for path in fs.files() if unreadable in path}
    await asyncio.sleep(5)
    scrubber = broker.broker.context.node.scrubber
    assert any(unreadable in told and "cannot be read" in told for told in scrubber.repaired)
    assert scrubber.passes > 0
    assert {path: fs.visible_bytes(path) for path in before} == before
    await broker.stop()


async def test_rows_that_cannot_be_read_nor_written_are_made_again_at_the_next_start(
    loop: NetworkedLoop,
) -> None:
    fs = SimulatedFileSystem(Random(1))

    broker = SingleBroker(loop, Path("/data"), fs=fs, scrub_pass_seconds=2)
    await scrubbed(broker, fs, "/data/consumequeue/orders/")
    unwritable = Fault(
        1, errno.EIO, operations=("pwrite",), path="/data/consumequeue/orders/", lasting=True
    )
    fs.inject(unwritable)
    await asyncio.sleep(5)
    unwritable.lasting = False
    assert [type(each) for each in broker.failures] == [FatalDiskError]
    assert fs.exists(f"/data/state/{REBUILD_NAME}")
    await broker.client.close()
    await broker.server.stop()
