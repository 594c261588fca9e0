"""Reading peers' messages before aiohttp does: however they are cut, and what is none of them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.wire.websocket_frames import BUFFER_KEPT, BUFFER_SIZE, MessageReader, frame_header

SIZE_MAX = 8 << 20
CLOSE = bytes((0x88, 2)) + (1008).to_bytes(2, "big")
PING = bytes((0x89, 0))


class Inner(asyncio.Protocol):
    """Notes what it is given."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Reading:
    """A reader, and what came out of it."""

    def __init__(self, *, stop_after: int | None = None) -> None:
        self.inner = Inner()
        self.messages: list[bytes] = []
        self._stop_after = stop_after
        self.reader = MessageReader(self.inner, SIZE_MAX, self._received)

    def _received(self, message: memoryview) -> bool:
        self.messages.append(bytes(message))
        return len(self.messages) != self._stop_after

    def feed(self, data: bytes, step: int = 1 << 30) -> None:
        """As a transport does it: as much at a time as there is room for, or ``step``."""
        while data:
            room = self.reader.get_buffer(-1)
            size = min(len(room), len(data), step)
            assert size > 0
            room[:size] = data[:size]
            self.reader.buffer_updated(size)
            data = data[size:]


def framed(message: bytes) -> bytes:
    return frame_header(len(message)) + message


SIZES = st.sampled_from([0, 1, 125, 126, 127, 300, 65_535, 65_536, 70_000, 200_000])


@given(st.lists(SIZES, max_size=6), st.sampled_from([1 << 30, 65_537, 4_099, 997]))
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(
    sizes: list[int], step: int
) -> None:
    reading = Reading()
    messages = [bytes([number]) * size for number, size in enumerate(sizes)]
    reading.feed(b"".join(map(framed, messages)), step)
    assert reading.messages == messages
    assert reading.inner.data == b""


def test_a_header_that_comes_byte_by_byte_is_understood() -> None:
    reading = Reading()
    message = b"x" * 70_000
    frame = framed(message)
    reading.feed(frame[:12], step=1)
    reading.feed(frame[12:])
    assert reading.messages == [message]


def test_a_message_that_needed_a_large_buffer_leaves_none_behind() -> None:
    reading = Reading()
    message = b"x" * (BUFFER_KEPT + 1)
    reading.feed(framed(message) + framed(b"next"), step=300_000)
    assert reading.messages == [message, b"next"]
    assert len(reading.reader.get_buffer(-1)) == BUFFER_SIZE


@pytest.mark.parametrize(
    "other",
    [CLOSE, PING, bytes((0x02, 1)) + b"x", bytes((0x82, 0x81)) + b"mask1", b"\x81\x01x"],
    ids=["close", "ping", "a part", "masked", "text"],
)
@pytest.mark.parametrize("step", [1, 1 << 30])
def test_any_other_frame_and_all_that_follows_is_given_over_as_it_came(
    other: bytes, step: int
) -> None:
    reading = Reading()
    rest = other + framed(b"too late")
    reading.feed(framed(b"first") + rest, step)
    assert reading.messages == [b"first"]
    assert reading.inner.data == rest


def test_a_message_that_is_too_large_is_given_over_before_it_is_here() -> None:
    reading = Reading()
    header = frame_header(SIZE_MAX + 1)
    reading.feed(header)
    assert reading.inner.data == header


def test_nothing_more_is_told_once_the_receiver_has_enough() -> None:
    reading = Reading(stop_after=1)
    reading.feed(framed(b"first") + framed(b"second"))
    reading.feed(framed(b"third"))
    assert reading.messages == [b"first"]


def test_the_end_of_the_connection_is_passed_on() -> None:
    reading = Reading()
    reading.reader.connection_lost(None)
    assert reading.inner.lost
