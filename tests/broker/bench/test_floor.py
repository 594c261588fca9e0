"""The floor: bytes that are relayed and written, and counted when they are durable."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from broker.bench.floor_load import FloorLoad
from broker.bench.floor_relay import DURABLE, DurableCounts, Follower, Relay, SyncedFile
from broker.bench.jobs import LoadShape
from store.io.filesystem import BLOCK_SIZE


@pytest.mark.parametrize("cut", [1, 3, 8, 12, 24])
def test_the_last_whole_number_of_a_stream_is_found_however_it_is_cut(cut: int) -> None:
    stream = b"".join(DURABLE.pack(number) for number in (5, 70_000, 2**40))
    counts = DurableCounts()
    told = [counts.last(stream[at : at + cut]) for at in range(0, len(stream), cut)]
    assert [number for number in told if number is not None][-1] == 2**40


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data


class Sink(SyncedFile):
    """Nothing is written; the test says what is durable."""

    def __init__(self) -> None:  # without a file
        self.durable = 0
        self.appended = b""

    def append(self, data: bytes) -> None:
        self.appended += data


def follow(relay: Relay) -> tuple[FakeTransport, Follower]:
    follower, transport = Follower(relay), FakeTransport()
    relay.add_follower(transport, follower)
    return transport, follower


def test_a_relay_passes_bytes_on_and_counts_what_a_majority_has() -> None:
    file = Sink()
    relay, sender = Relay(file), FakeTransport()
    (to_one, one), (to_two, two) = follow(relay), follow(relay)
    relay.connection_made(sender)
    relay.data_received(b"x" * 100)
    assert file.appended == to_one.sent == to_two.sent == b"x" * 100

    file.durable = 100
    relay.tell()
    assert sender.sent == b""
    one.data_received(DURABLE.pack(60))
    assert sender.sent == DURABLE.pack(60)
    two.data_received(DURABLE.pack(50))
    assert sender.sent == DURABLE.pack(60)
    two.data_received(DURABLE.pack(100))
    assert sender.sent == DURABLE.pack(60) + DURABLE.pack(100)


def test_the_next_sender_is_told_of_its_own_bytes() -> None:
    file = Sink()
    relay = Relay(file)
    relay.connection_made(FakeTransport())
    relay.data_received(b"x" * 100)
    file.durable = 100
    relay.tell()
    relay.connection_lost(None)

    sender = FakeTransport()
    relay.connection_made(sender)
    relay.data_received(b"x" * 10)
    file.durable = 110
    relay.tell()
    assert sender.sent == DURABLE.pack(10)


async def test_a_file_holds_what_was_appended_and_begins_again_when_it_is_full(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    file = SyncedFile(str(path), size=2 * BLOCK_SIZE)
    assert path.read_bytes() == bytes(2 * BLOCK_SIZE)
    told: list[int] = []
    all_durable = asyncio.get_running_loop().create_future()

    def on_durable() -> None:
        told.append(file.durable)
        if file.durable == 3 * BLOCK_SIZE:
            all_durable.set_result(None)

    file.on_durable = on_durable
    for part in (b"a" * 100, b"b" * (BLOCK_SIZE - 100), b"c" * BLOCK_SIZE, b"d" * BLOCK_SIZE):
        file.append(part)
    await all_durable
    file.close()
    assert told[0] == 100
    assert told == sorted(told)
    assert path.read_bytes() == b"d" * BLOCK_SIZE + b"c" * BLOCK_SIZE


async def test_the_load_keeps_so_many_requests_in_flight_and_counts_whole_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    load, transport = FloorLoad(b"x" * 10, LoadShape(2, in_flight=3)), FakeTransport()
    load.connection_made(transport)
    running = asyncio.ensure_future(load.run(3600))
    await asyncio.sleep(0)
    assert len(transport.sent) == 30
    load.data_received(DURABLE.pack(19))
    assert len(transport.sent) == 40
    now = 3600.0
    load.data_received(DURABLE.pack(40))
    assert await running == 8
    assert len(load.latencies) == 4


async def test_a_floor_that_ends_is_told() -> None:
    load = FloorLoad(b"x", LoadShape(1, in_flight=1))
    load.connection_made(FakeTransport())
    running = asyncio.ensure_future(load.run(3600))
    await asyncio.sleep(0)
    load.connection_lost(None)
    with pytest.raises(ConnectionResetError, match="floor"):
        await running
