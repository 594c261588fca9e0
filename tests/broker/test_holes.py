"""A broker on a disk that cannot read some blocks, or has other bytes in files that it can remake.

What is marked ``xfail`` fails as long as such files are repaired in place. Only the last assertion
may: whatever else goes wrong raises another error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from simulator.engine.disk import SimulatedFileSystem
from store.errors import FatalDiskError
from store.index_rebuild import request_rebuild
from store.io.filesystem import BLOCK_SIZE
from store.log.layout import segment_name
from tests.broker.single_broker import SingleBroker, messages
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


def on_disk(
    fs: SimulatedFileSystem, scenario: Callable[[SingleBroker], Awaitable[None]]
) -> list[BaseException]:
    """Starts a broker on the disk, and plays; the errors with which its node stopped by itself."""
    loop = NetworkedLoop()

    async def run() -> list[BaseException]:
        broker = SingleBroker(loop, Path(DATA), fs=fs, scrub_pass_seconds=2, incarnation=7)
        await broker.start()
        await scenario(broker)
        failures = list(broker.failures)
        broker.failures.clear()
        if failures:
            await broker.client.close()
            await broker.server.stop()
        else:
            await broker.stop()
        return failures

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def test_an_entry_whose_block_cannot_be_read_is_named_and_stops_no_node_that_is_alone() -> None:
    fs = simulated()

    async def scenario(broker: SingleBroker) -> None:
        await filled(broker)
        fs.lose_sector(f"{DATA}/commitlog/{segment_name(0)}", 0)
        await asyncio.sleep(5.0)
        node = broker.broker.context.node
        assert node.scrubber.damage
        assert node.serving

    assert on_disk(fs, scenario) == []


def test_rows_whose_block_cannot_be_read_are_made_again_while_the_node_serves() -> None:
    fs = simulated()
    given: list[bytes] = []

    async def scenario(broker: SingleBroker) -> None:
        await filled(broker)
        fs.lose_sector(QUEUE, 0)
        await asyncio.sleep(5.0)
        if not broker.failures:
            given.extend(await bodies(broker))

    failures = on_disk(fs, scenario)
    if any(not isinstance(failure, FatalDiskError) for failure in failures):
        raise RuntimeError(failures)
    assert given == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("name", ["mark", "held", "vote"])
def test_a_small_file_whose_block_cannot_be_read_is_written_anew_by_who_knows_what_it_says(
    name: str,
) -> None:
    fs = simulated()

    async def scenario(broker: SingleBroker) -> None:
        await filled(broker)
        fs.lose_sector(f"{DATA}/state/{name}", 0)
        node = broker.broker.context.node
        if name == "vote":
            node.store.save_hard_state(node.core.term, node.core.node)
        await send(broker, COUNT)
        await asyncio.sleep(3.0)

    try:
        failures = on_disk(fs, scenario)
    except FatalDiskError as error:  # the vote, which is saved here by the test itself
        failures = [error]
    if any(not isinstance(failure, FatalDiskError) for failure in failures):
        raise RuntimeError(failures)
    assert failures == []


@pytest.mark.parametrize("cut", [0, 40, 100, 40 + 16 * (COUNT // 2)])
def test_a_key_file_that_is_cut_short_while_open_denies_no_key(cut: int) -> None:
    fs = simulated()

    async def scenario(broker: SingleBroker) -> None:
        await filled(broker)
        (path,) = (path for path in fs.files() if "/keyindex/" in path)
        fs.cut(path, cut)
        codes = [(await by_key(broker, number)).code for number in range(COUNT)]
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
        assert ResponseCode.SYSTEM_ERROR in codes

    assert on_disk(fs, scenario) == []


def test_a_key_file_with_a_rotted_row_denies_no_key() -> None:
    fs = simulated()
    codes: list[int] = []

    async def scenario(broker: SingleBroker) -> None:
        await filled(broker)
        (path,) = (path for path in fs.files() if "/keyindex/" in path)
        fs.overwrite(path, b"\xff\xff\xff\xff", 40 + 16 * (COUNT // 2))
        codes.extend([(await by_key(broker, number)).code for number in range(COUNT)])

    if failures := on_disk(fs, scenario):
        raise RuntimeError(failures)
    assert ResponseCode.QUERY_NOT_FOUND not in codes


def test_a_node_that_is_alone_serves_the_rest_though_a_rebuild_meets_a_rotted_entry() -> None:
    fs = simulated()
    started: list[bool] = []

    async def before(broker: SingleBroker) -> None:
        await filled(broker)

    async def after(broker: SingleBroker) -> None:
        started.append(broker.broker.context.node.serving)
        await send(broker, COUNT)

    assert_played(on_disk(fs, before))
    request_rebuild(fs, DATA)
    fs.flip_bit(f"{DATA}/commitlog/{segment_name(0)}", BLOCK_SIZE, 3)
    assert_played(on_disk(fs, after))
    assert started == [True]


def assert_played(failures: list[BaseException]) -> None:
    if failures:
        raise RuntimeError(failures)
