"""A broker that is alone, on a disk that cannot read some blocks, or has other bytes in files that
it can rebuild. The broker must not stop by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from simulator.engine.disk import SimulatedFileSystem
from store.index_rebuild import request_rebuild
from store.io.filesystem import BLOCK_SIZE
from store.log.layout import segment_name
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.store.small_logs import simulated
from tests.support.virtual_network import NetworkedLoop

DATA = "/data"
QUEUE = f"{DATA}/consumequeue/orders/0/{segment_name(0)}"
COUNT = 30


async def send(broker: SingleBroker, number: int) -> None:
    answer = await broker.send("orders", 0, b"%d" % number, f"KEYS\x01k{number}\x02")
    assert answer.code == ResponseCode.SUCCESS


async def filled(broker: SingleBroker) -> None:
    """Messages below a checkpoint, so that all files hold them."""
    await broker.create_topic("orders", 1)
    for number in range(COUNT):
        await send(broker, number)
    broker.broker.context.node.checkpointer.checkpoint()
    await asyncio.sleep(1.0)


async def bodies(broker: SingleBroker) -> list[bytes]:
    """All of the queue that is given."""
    found: list[bytes] = []
    while records := messages(await broker.pull("orders", 0, len(found))):
        found += [bytes(record.body) for record in records]
    return found


async def by_key(broker: SingleBroker, number: int) -> Frame:
    ext = {
        "topic": "orders",
        "key": f"k{number}",
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(1 << 60),
    }
    return await broker.ask(RequestCode.QUERY_MESSAGE, ext)


def alone(
    loop: NetworkedLoop, fs: SimulatedFileSystem
) -> AbstractAsyncContextManager[SingleBroker]:
    return running_broker(loop, Path(DATA), fs=fs, scrub_pass_seconds=2, incarnation=7)


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


@pytest.fixture
async def broker(loop: NetworkedLoop, fs: SimulatedFileSystem) -> AsyncIterator[SingleBroker]:
    """Its messages lie below a checkpoint."""
    async with alone(loop, fs) as broker:
        await filled(broker)
        yield broker


async def test_an_entry_whose_block_cannot_be_read_is_named_and_stops_no_node_that_is_alone(
    broker: SingleBroker, fs: SimulatedFileSystem
) -> None:
    fs.lose_sector(f"{DATA}/commitlog/{segment_name(0)}", 0)
    await asyncio.sleep(5.0)
    node = broker.broker.context.node
    assert node.scrubber.damage
    assert node.serving


async def test_rows_whose_block_cannot_be_read_are_rebuilt_while_the_node_serves(
    broker: SingleBroker, fs: SimulatedFileSystem
) -> None:
    fs.lose_sector(QUEUE, 0)
    await asyncio.sleep(5.0)
    assert await bodies(broker) == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("name", ["mark", "held", "vote"])
async def test_a_small_file_whose_block_cannot_be_read_is_written_again_by_who_knows_what_it_says(
    broker: SingleBroker, fs: SimulatedFileSystem, name: str
) -> None:
    fs.lose_sector(f"{DATA}/state/{name}", 0)
    node = broker.broker.context.node
    if name == "vote":
        node.store.save_hard_state(node.core.term, node.core.node)
    await send(broker, COUNT)
    await asyncio.sleep(3.0)
    assert node.serving


@pytest.mark.parametrize("cut", [0, 40, 100, 40 + 16 * (COUNT // 2)])
async def test_a_key_file_that_is_cut_short_while_open_denies_no_key(
    broker: SingleBroker, fs: SimulatedFileSystem, cut: int
) -> None:
    (path,) = (path for path in fs.files() if "/keyindex/" in path)
    fs.cut(path, cut)
    codes = [(await by_key(broker, number)).code for number in range(COUNT)]
    assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
    assert ResponseCode.SYSTEM_ERROR in codes


async def test_a_key_file_with_a_corrupt_row_denies_no_key(
    broker: SingleBroker, fs: SimulatedFileSystem
) -> None:
    (path,) = (path for path in fs.files() if "/keyindex/" in path)
    fs.overwrite(path, b"\xff\xff\xff\xff", 40 + 16 * (COUNT // 2))
    codes = [(await by_key(broker, number)).code for number in range(COUNT)]
    assert ResponseCode.QUERY_NOT_FOUND not in codes


async def test_a_node_that_is_alone_serves_the_rest_though_a_rebuild_meets_a_damaged_entry(
    loop: NetworkedLoop, fs: SimulatedFileSystem
) -> None:
    async with alone(loop, fs) as broker:
        await filled(broker)
    request_rebuild(fs, DATA)
    fs.flip_bit(f"{DATA}/commitlog/{segment_name(0)}", BLOCK_SIZE, 3)
    async with alone(loop, fs) as broker:
        assert broker.broker.context.node.serving
        await send(broker, COUNT)
