"""A stream gives the same frames however the network split it."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.remoting.protocol.errors import FrameError
from broker.remoting.protocol.frame import PREFIX, Frame, encode_request
from broker.remoting.protocol.frame_reader import FrameReader

REQUESTS = st.lists(
    st.tuples(
        st.dictionaries(st.text(max_size=5), st.text(max_size=10), max_size=3),
        st.binary(max_size=60) | st.binary(min_size=5000, max_size=5000),
        st.sampled_from([0, 1]),
    ),
    max_size=5,
)


def encode(opaque: int, ext: dict[str, str], body: bytes, serialization: int = 0) -> bytes:
    return encode_request(310, opaque, ext, len(body), serialization=serialization) + body


def read_all(reader: FrameReader, pieces: list[bytes]) -> list[Frame]:
    return [frame for piece in pieces for frame in reader.feed(piece)]


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(REQUESTS, st.lists(st.integers(0, 2**20), max_size=20))
def test_any_split_gives_the_same_frames(
    requests: list[tuple[dict[str, str], bytes, int]], cuts: list[int]
) -> None:
    data = b"".join(encode(opaque, *request) for opaque, request in enumerate(requests))
    frames = read_all(FrameReader(), split(data, cuts))
    assert [(f.opaque, f.ext, f.body, f.serialization) for f in frames] == [
        (opaque, *request) for opaque, request in enumerate(requests)
    ]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100])
def test_a_stream_in_equal_pieces_gives_the_same_frames(size: int) -> None:
    data = b"".join(encode(opaque, {"k": "v"}, b"b" * opaque) for opaque in range(40))
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    frames = read_all(FrameReader(), pieces)
    assert [(f.opaque, f.body) for f in frames] == [(n, b"b" * n) for n in range(40)]


def test_a_large_body_in_large_and_small_chunks_is_whole() -> None:
    body = bytes(range(256)) * 4096
    data = encode(1, {}, body)
    cuts = [*range(0, 50_000, 700), *range(50_000, len(data), 65_536)]
    (frame,) = read_all(FrameReader(), split(data, cuts))
    assert type(frame.body) is bytes
    assert frame.body == body


def test_a_frame_is_given_as_soon_as_its_last_byte_is_there() -> None:
    data = encode(1, {}, b"body")
    reader = FrameReader()
    assert list(reader.feed(data[:-1])) == []
    assert [frame.opaque for frame in reader.feed(data[-1:])] == [1]


def test_a_body_in_tiny_chunks_is_kept_in_one_buffer() -> None:
    data = encode(1, {}, b"x" * 10_000)
    reader = FrameReader()
    for byte in range(len(data) - 1):
        assert not list(reader.feed(data[byte : byte + 1]))
    assert len(reader._body) == 1


def test_what_is_kept_of_a_frame_under_way_is_told() -> None:
    told: list[int] = []
    reader = FrameReader(told.append)
    frame = encode(1, {"a": "b"}, bytes(5_000))
    read_all(reader, [frame, frame, frame[:5], frame[5:3000], frame[3000:] + frame[:40]])
    assert told == [5, 3000, 0, 40]
    reader.clear()
    assert told[-1] == 0
    assert len(read_all(reader, [frame])) == 1


def test_the_beginning_of_a_frame_does_not_keep_what_came_with_it() -> None:
    reader = FrameReader()
    whole = encode(1, {}, bytes(60_000))
    chunk = whole + encode(2, {}, bytes(5_000))[:4_000]
    before = sys.getrefcount(chunk)
    read_all(reader, [chunk])
    assert sys.getrefcount(chunk) == before


def test_frames_before_a_fault_are_given() -> None:
    reader = FrameReader()
    stream = reader.feed(encode(1, {}, b"") + encode(2, {}, b"") + PREFIX.pack(-5, 0))
    assert next(stream).opaque == 1
    assert next(stream).opaque == 2
    with pytest.raises(FrameError, match="total -5"):
        next(stream)


def test_a_frame_too_large_is_refused_before_it_is_received() -> None:
    reader = FrameReader()
    assert list(reader.feed(PREFIX.pack(2**30, 100)[:7])) == []
    with pytest.raises(FrameError, match="total 1073741824"):
        list(reader.feed(PREFIX.pack(2**30, 100)[7:]))


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_arbitrary_chunks_give_frames_or_frame_error(pieces: list[bytes]) -> None:
    reader = FrameReader()
    try:
        frames = read_all(reader, pieces)
    except FrameError as error:
        assert error.reason  # noqa: PT017 - either outcome is right
    else:
        assert all(isinstance(frame, Frame) for frame in frames)


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=5))
def test_a_fault_is_found_at_the_same_place_however_split(data: bytes, cuts: list[int]) -> None:
    stream = encode(7, {"a": "b"}, b"body") + data

    def outcome(pieces: list[bytes]) -> tuple[list[int], str]:
        seen: list[int] = []
        reader = FrameReader()
        try:
            for piece in pieces:
                seen.extend(frame.opaque for frame in reader.feed(piece))
        except FrameError as error:
            return seen, str(error)
        return seen, ""

    assert outcome(split(stream, cuts)) == outcome([stream])
