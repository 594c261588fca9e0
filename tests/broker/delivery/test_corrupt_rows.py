"""Rows of ConsumeQueues that rotted bring nobody anything wrong, and are repaired at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from broker.remoting.protocol.codes import ResponseCode
from broker.scheduled.timer_wheel import SLOT_MS, SLOTS
from store.index.block_seals import ROW_SIZE
from store.log.entry_repair import CheckedRange
from store.message.scheduled_topics import DELAYS_MS, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.broker.single_broker import (
    NOW_MS,
    SingleBroker,
    flip,
    messages,
    running_broker,
)
from tests.support.search_effort import sample
from tests.support.virtual_network import NetworkedLoop


async def filled(broker: SingleBroker) -> None:
    """Nine messages in queue 0 of the topic orders, three an entry, and as many in queue 1; with
    a checkpoint, so that the rows are on the disk."""
    await broker.create_topic("orders")
    for queue_id in (0, 1, 0, 1, 0, 1):
        await asyncio.gather(*[broker.send("orders", queue_id, b"x") for _ in range(3)])
    await asyncio.sleep(40)


async def refused_and_repaired(broker: SingleBroker, path: Path, row: int) -> None:
    """A pull brings nothing; soon after, and not only at the next pass, everything is there."""
    answer = await broker.pull("orders", 0, 0)
    assert (answer.code, answer.ext, answer.body) == (ResponseCode.SYSTEM_ERROR, {}, b"")
    told = "rows of records from position 197 on: CRC of a block of rows; made again from the log"
    assert answer.remark == told
    await asyncio.sleep(0.1)
    found = messages(await broker.pull("orders", 0, 0))
    assert [(record.queue_id, record.queue_offset) for record in found] == [
        (0, offset) for offset in range(9)
    ]
    scrubber = broker.broker.context.node.scrubber
    assert scrubber.passes == 0
    (told,) = scrubber.repaired
    assert told.startswith(f"{path}, byte {row * ROW_SIZE}: ")


@pytest.mark.parametrize(
    ("row", "byte"), sample(product([0, 1, 4, 5, 8], [0, 4, 7, 8, 11, 12, 19]))
)
async def test_a_row_that_rotted_brings_nothing_and_is_repaired(
    loop: NetworkedLoop, tmp_path: Path, row: int, byte: int
) -> None:
    path = tmp_path / f"consumequeue/orders/0/{0:020d}"

    async with running_broker(loop, tmp_path) as broker:
        await filled(broker)
    flip(path, row * ROW_SIZE + byte)
    async with running_broker(loop, tmp_path) as broker:
        await refused_and_repaired(broker, path, row)


@pytest.mark.parametrize("row", [0, 4, 8])
async def test_a_row_of_another_record_brings_nothing_and_is_repaired(
    loop: NetworkedLoop, tmp_path: Path, row: int
) -> None:
    path = tmp_path / f"consumequeue/orders/0/{0:020d}"

    async with running_broker(loop, tmp_path) as broker:
        await filled(broker)
    theirs = (tmp_path / f"consumequeue/orders/1/{0:020d}").read_bytes()
    own, start, end = path.read_bytes(), row * ROW_SIZE, (row + 1) * ROW_SIZE
    path.write_bytes(own[:start] + theirs[start:end] + own[end:])
    async with running_broker(loop, tmp_path) as broker:
        await refused_and_repaired(broker, path, row)


async def test_rows_of_zeros_hide_no_message(loop: NetworkedLoop, tmp_path: Path) -> None:
    path = tmp_path / f"consumequeue/orders/0/{0:020d}"

    async with running_broker(loop, tmp_path) as broker:
        await filled(broker)
    own = path.read_bytes()
    path.write_bytes(own[: 4 * ROW_SIZE] + bytes(2 * ROW_SIZE) + own[6 * ROW_SIZE :])
    async with running_broker(loop, tmp_path) as broker:
        await refused_and_repaired(broker, path, 4)


FILTERED: dict[str, tuple[int, bytes]] = {
    "zeros": (2, bytes(2 * ROW_SIZE)),
    "the first": (0, bytes(ROW_SIZE)),
    "the last": (8, bytes(ROW_SIZE)),
    "a position before": (3, bytes(7) + b"\x01"),
    "a position behind": (3, b"\x01" + bytes(7)),
}


@pytest.mark.parametrize(("row", "rotted"), FILTERED.values(), ids=FILTERED)
async def test_a_filter_passes_no_row_over_that_shows_that_it_rotted(
    loop: NetworkedLoop, tmp_path: Path, row: int, rotted: bytes
) -> None:
    path = tmp_path / f"consumequeue/orders/0/{0:020d}"
    tags = "ABA" * 3

    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        for tag in tags:
            await broker.send("orders", 0, b"x", f"TAGS\x01{tag}\x02")
        await asyncio.sleep(40)
    own, start = path.read_bytes(), row * ROW_SIZE
    path.write_bytes(own[:start] + rotted + own[start + len(rotted) :])
    async with running_broker(loop, tmp_path) as broker:
        answer = await broker.pull("orders", 0, 0, subscription="B")
        assert (answer.code, answer.ext, answer.body) == (ResponseCode.SYSTEM_ERROR, {}, b"")
        assert str(answer.remark).startswith("rows of records from position ")
        await asyncio.sleep(0.1)
        for tag in "AB":
            answer = await broker.pull("orders", 0, 0, subscription=tag)
            found = [record.queue_offset for record in messages(answer)]
            assert found == [offset for offset in range(9) if tags[offset] == tag]
        assert broker.broker.context.node.scrubber.passes == 0


@pytest.mark.parametrize(
    ("topic", "when"),
    [
        (SCHEDULE_TOPIC, "DELAY\x015\x02"),
        (TIMER_TOPIC, f"TIMER_DELIVER_MS\x01{NOW_MS + 60_000}\x02"),
    ],
    ids=["level", "timer"],
)
async def test_a_message_that_waits_is_not_delivered_in_the_place_of_another(
    loop: NetworkedLoop, tmp_path: Path, topic: str, when: str
) -> None:
    settings: dict[str, Any] = {"clock_runs": True, "scrub_pass_seconds": 1_000_000}
    async with running_broker(loop, tmp_path, **settings) as broker:
        await broker.create_topic("orders")
        for body in (b"first", b"other"):
            await broker.send("orders", 0, body, when)
        await asyncio.sleep(40)
    (path,) = (tmp_path / "consumequeue" / topic).glob("*/*")
    rows = path.read_bytes()
    assert len(rows) == 2 * ROW_SIZE
    path.write_bytes(rows[ROW_SIZE:] + rows[ROW_SIZE:])
    async with running_broker(loop, tmp_path, **settings) as broker:
        await asyncio.sleep(100)
        found = messages(await broker.pull("orders", 0, 0))
        assert [record.body for record in found] == [b"first", b"other"]


NEVER: dict[str, Any] = {"scrub_pass_seconds": 1_000_000}


async def with_other_queues_between(broker: SingleBroker) -> None:
    """Sixty messages in queue 0, and before and between them much more than is compared at once."""
    await broker.create_topic("orders")
    for number in range(60):
        if number % 20 == 0:
            for _ in range(8):
                await broker.send("orders", 1, b"y" * 60_000)
        await broker.send("orders", 0, b"x")
    await asyncio.sleep(40)


def zeros(path: Path, first: int, size: int) -> None:
    own = bytearray(path.read_bytes())
    own[first : first + size] = bytes(size)
    path.write_bytes(own)


def as_later(path: Path) -> None:
    """Row 40, and the one before leads too far for its record to be compared."""
    own = path.read_bytes()
    path.write_bytes(own[: 39 * ROW_SIZE] + own[59 * ROW_SIZE :] + own[40 * ROW_SIZE :])
    flip(path, 40 * ROW_SIZE + 7)


@pytest.mark.parametrize(
    ("offset", "harm"),
    [
        (0, lambda path: flip(path, 20 * ROW_SIZE + 7)),
        (0, lambda path: flip(path, 7)),
        (0, lambda path: zeros(path, 512, 512)),
        (0, lambda path: zeros(path, 0, 60 * ROW_SIZE)),
        (40, as_later),
    ],
    ids=["far behind the row before", "the first", "a sector", "all", "the row before as well"],
)
async def test_what_is_derived_is_compared_until_the_row_is_found(
    loop: NetworkedLoop, tmp_path: Path, offset: int, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / f"consumequeue/orders/0/{0:020d}"

    async with running_broker(loop, tmp_path, **NEVER) as broker:
        await with_other_queues_between(broker)
    harm(path)
    async with running_broker(loop, tmp_path, **NEVER) as broker:
        found: list[int] = []
        for _ in range(10):
            begin = offset + len(found)
            answer = await broker.pull("orders", 0, begin, maxMsgNums="60")
            if answer.code == ResponseCode.SYSTEM_ERROR:
                await asyncio.sleep(0.5)
                answer = await broker.pull("orders", 0, begin, maxMsgNums="60")
            found += [record.queue_offset for record in messages(answer)]
        assert found == list(range(offset, 60))
        assert broker.broker.context.node.scrubber.passes == 0


async def test_who_asks_again_meanwhile_has_nothing_compared_twice(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    path = tmp_path / f"consumequeue/orders/0/{0:020d}"

    async with running_broker(loop, tmp_path, **NEVER) as broker:
        await with_other_queues_between(broker)
    flip(path, 40 * ROW_SIZE + 7)
    async with running_broker(loop, tmp_path, scrub_mib_per_second=1, **NEVER) as broker:
        node = broker.broker.context.node
        looked: list[int] = []
        check = node.store.check_entries

        def watched(first_index: int, last_index: int, max_bytes: int) -> CheckedRange:
            looked.append(first_index)
            return check(first_index, last_index, max_bytes)

        node.store.check_entries = watched  # type: ignore[method-assign]  # a spy
        codes: list[int] = []
        for _ in range(20):
            codes.append((await broker.pull("orders", 0, 40)).code)
            await asyncio.sleep(0.05)
        refused = codes.count(ResponseCode.SYSTEM_ERROR)
        assert refused > len(looked) > 1
        assert codes == [ResponseCode.SYSTEM_ERROR] * refused + [0] * (20 - refused)
        assert looked == sorted(set(looked))


WAITS: dict[str, Any] = {"clock_runs": True, "scrub_pass_seconds": 1_000_000}


def with_time(row: bytes, deliver_ms: int) -> bytes:
    return row[:12] + deliver_ms.to_bytes(8, "big", signed=True)


def time_of(row: bytes) -> int:
    return int.from_bytes(row[12:], "big")


@asynccontextmanager
async def one_rots(
    loop: NetworkedLoop,
    data: Path,
    topic: str,
    when: str,
    rotted: tuple[int, Callable[[bytes], bytes]],
) -> AsyncIterator[SingleBroker]:
    """Three messages wait; the row of one rots while the broker is down; the broker after that."""
    async with running_broker(loop, data, **WAITS) as broker:
        await broker.create_topic("orders")
        for body in (b"0", b"1", b"2"):
            await broker.send("orders", 0, body, when)
        await asyncio.sleep(40)
    (path,) = (data / "consumequeue" / topic).glob("*/*")
    own = path.read_bytes()
    rows = [own[at : at + ROW_SIZE] for at in range(0, len(own), ROW_SIZE)]
    assert len(rows) == 3
    row, rot = rotted
    rows[row] = rot(rows[row])
    path.write_bytes(b"".join(rows))
    async with running_broker(loop, data, **WAITS) as broker:
        yield broker


async def until(broker: SingleBroker, wall_ms: int) -> None:
    await asyncio.sleep((wall_ms - broker.wall_ms()) / 1000)


async def bodies(broker: SingleBroker) -> list[bytes]:
    found: list[bytes] = []
    while records := messages(await broker.pull("orders", 0, len(found))):
        found += [record.body for record in records]
    return found


ROTS: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda _: bytes(ROW_SIZE),
    "no time": lambda row: with_time(row, 0),
    "negative": lambda row: with_time(row, time_of(row) - (1 << 63)),
    "far ahead": lambda row: with_time(row, time_of(row) + (1 << 42)),
    "another slot": lambda row: with_time(row, time_of(row) - (1 << 22)),
    "the next round": lambda row: with_time(row, time_of(row) + SLOTS * SLOT_MS),
    "early": lambda row: with_time(row, time_of(row) - 30_000),
}
"""What a row of a message that waits may rot to, other than to that of another message."""


@pytest.mark.parametrize("rot", ROTS.values(), ids=ROTS)
@pytest.mark.parametrize("row", [0, 1, 2])
async def test_a_message_waits_for_its_own_time_whatever_its_row_says(
    loop: NetworkedLoop, tmp_path: Path, row: int, rot: Callable[[bytes], bytes]
) -> None:
    when = f"TIMER_DELIVER_MS\x01{NOW_MS + 100_000}\x02"
    async with one_rots(loop, tmp_path, TIMER_TOPIC, when, (row, rot)) as broker:
        await until(broker, NOW_MS + 98_000)
        assert await bodies(broker) == []
        await until(broker, NOW_MS + 101_000)
        assert await bodies(broker) == [b"0", b"1", b"2"]
        assert broker.broker.context.machine.state.timer.waiting == 0


@pytest.mark.parametrize("rot", ROTS.values(), ids=ROTS)
async def test_a_message_waits_for_as_long_as_its_level_says_whatever_its_row_says(
    loop: NetworkedLoop, tmp_path: Path, rot: Callable[[bytes], bytes]
) -> None:
    async with one_rots(loop, tmp_path, SCHEDULE_TOPIC, "DELAY\x016\x02", (0, rot)) as broker:
        await until(broker, NOW_MS + DELAYS_MS[5])
        assert await bodies(broker) == []
        await until(broker, NOW_MS + DELAYS_MS[5] + 4000)
        assert await bodies(broker) == [b"0", b"1", b"2"]


def later(row: bytes) -> bytes:
    """Within the same ten minutes."""
    return with_time(row, time_of(row) + 100_000)


@pytest.mark.parametrize("tried_again", [False, True])
async def test_a_message_whose_row_says_a_later_time_of_its_slot_is_on_time(
    loop: NetworkedLoop, tmp_path: Path, tried_again: bool
) -> None:
    when = f"TIMER_DELIVER_MS\x01{NOW_MS + 100_000}\x02"
    async with one_rots(loop, tmp_path, TIMER_TOPIC, when, (1, later)) as broker:
        if tried_again:
            await until(broker, NOW_MS + 90_000)
            timers = broker.broker.context.scheduled_messages._timers
            assert timers is not None
            timers._try_again("one step was refused")
        await until(broker, NOW_MS + 101_000)
        assert await bodies(broker) == [b"0", b"1", b"2"]
        assert broker.broker.context.machine.state.timer.waiting == 0


async def test_what_was_delivered_is_not_again_where_its_row_rots_to_a_later_time(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    when = f"TIMER_DELIVER_MS\x01{NOW_MS + 20_000}\x02"
    async with one_rots(loop, tmp_path, TIMER_TOPIC, when, (1, later)) as broker:
        await until(broker, NOW_MS + 150_000)
        assert await bodies(broker) == [b"0", b"1", b"2"]
        assert broker.broker.context.machine.state.timer.waiting == 0


async def test_the_log_is_kept_while_a_row_of_the_wheel_is_wrong(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    when = f"TIMER_DELIVER_MS\x01{NOW_MS + 3 * SLOT_MS}\x02"
    async with one_rots(
        loop, tmp_path, TIMER_TOPIC, when, (1, lambda _: bytes(ROW_SIZE))
    ) as broker:
        delivery = broker.broker.context.scheduled_messages
        assert delivery.oldest_needed_position() == 0
        await asyncio.sleep(0.1)
        assert (delivery.oldest_needed_position() or 0) > 0
