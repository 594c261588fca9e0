"""Peer messages to bytes and back, and bytes of anybody."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dledger.errors import DamagedFrameError, PeerError
from dledger.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.replication_evidence import MemberEvidence
from dledger.wire.codec import (
    CRC,
    EVIDENCE_BYTES_MAX,
    LARGE_ROW_BYTES,
    NUMBER_MAX,
    MessageEncoder,
    decode_message,
    seal,
)
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    FetchStatus,
    HealthReport,
    RemovedNotice,
    SnapshotNeededNotice,
)
from dledger.wire.transport import Message
from tests.dledger.raft.written_log import written_log

numbers = st.integers(-1, NUMBER_MAX)
flags = st.booleans()
logs = st.lists(st.integers(0, 2), max_size=5).map(sorted).map(written_log)
held = st.lists(st.builds(MemberEvidence, st.text(max_size=3), numbers, numbers), max_size=3).map(
    tuple
)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(VoteRequest, numbers, numbers, numbers, flags, flags, numbers),
    st.builds(VoteResponse, numbers, flags, flags, numbers, numbers),
    st.builds(AppendRequest, numbers, numbers, numbers, numbers, logs.map(tuple)),
    st.builds(AppendAccepted, numbers, numbers, numbers),
    st.builds(AppendRejected, numbers, numbers, numbers, numbers),
    st.builds(Heartbeat, numbers, numbers, numbers, held),
    st.builds(HeartbeatResponse, *[numbers] * 6),
    st.builds(TimeoutNow, numbers),
    st.builds(ReadRequest, numbers, numbers),
    st.builds(ReadResponse, numbers, numbers, numbers),
    st.builds(HealthReport, flags, flags, flags),
    st.builds(FetchRequest, numbers, numbers, numbers, numbers),
    st.builds(FetchResponse, numbers, st.sampled_from(FetchStatus), numbers, logs.map(tuple)),
    st.builds(SnapshotNeededNotice, numbers),
    st.builds(RemovedNotice, numbers),
    st.builds(CheckpointRequest, numbers, numbers, numbers),
    st.builds(CheckpointResponse, *[numbers] * 6, st.binary(max_size=9)),
)


def frame_of(encoder: MessageEncoder, message: Message) -> bytes:
    return b"".join(encoder.encode(message))


@given(messages)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    assert decode_message(frame_of(MessageEncoder(), message)) == message


@given(st.lists(messages, max_size=6))
def test_one_encoder_writes_many_messages_independently(several: list[Message]) -> None:
    encoder = MessageEncoder()
    assert [decode_message(frame_of(encoder, message)) for message in several] == several


def decode_or_refuse(frame: bytes) -> None:
    with contextlib.suppress(PeerError):
        decode_message(frame)


@given(st.binary(max_size=200))
@example(b"")
@example(b"\xc1")
@example(b"\x91" * 2000)
@example(msgpack.packb({b"a": 1}))
@example(b"\xc7\x03\xff123")  # a timestamp of a length that does not exist
def test_arbitrary_bytes_raise_nothing_but_peer_errors(frame: bytes) -> None:
    decode_or_refuse(frame)
    decode_or_refuse(seal(frame))


values = st.recursive(
    st.none() | flags | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(st.lists(values, max_size=7).map(lambda fields: [1, *fields]), st.integers(0, 9))
def test_arrays_of_anything_raise_nothing_but_peer_errors(fields: list[Any], kind: int) -> None:
    decode_or_refuse(seal(msgpack.packb([kind, *fields[1:]])))


@given(messages, st.data())
def test_a_message_that_was_altered_before_it_was_sent_raises_nothing_but_peer_errors(
    message: Message, data: st.DataObject
) -> None:
    content = bytearray(frame_of(MessageEncoder(), message)[CRC.size :])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    decode_or_refuse(seal(bytes(content[: data.draw(st.integers(0, len(content)))])))


@given(messages, st.data())
def test_a_frame_that_comes_otherwise_than_it_was_sent_is_found_whatever_it_says(
    message: Message, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(MessageEncoder(), message))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedFrameError, match=f"a peer frame of {len(frame)} bytes is damaged"):
        decode_message(bytes(frame))


@pytest.mark.parametrize("size", range(4))
def test_a_frame_too_short_for_its_crc_is_damaged(size: int) -> None:
    with pytest.raises(DamagedFrameError):
        decode_message(bytes(size))


def test_an_append_of_one_entry_more_is_another_frame() -> None:
    encoder, entries = MessageEncoder(), tuple(written_log([1, 1, 1]))
    several = [
        AppendRequest(1, -1, 0, commit, entries[:end]) for commit in (0, 1) for end in (3, 2)
    ]
    several += [AppendRequest(1, 0, 1, 1, entries[1:end]) for end in (3, 2)]
    assert [decode_message(frame_of(encoder, each)) for each in several] == several
    assert encoder.encode(several[0]) is encoder.encode(AppendRequest(1, -1, 0, 0, entries))


def test_a_bit_of_an_entry_that_flipped_before_it_was_sent_is_found() -> None:
    request = AppendRequest(2, -1, 0, -1, tuple(written_log([1, 2])))
    content = bytearray(frame_of(MessageEncoder(), request)[CRC.size :])
    content[-1] ^= 1
    with pytest.raises(PeerError, match="damaged entry after index -1: body CRC"):
        decode_message(seal(bytes(content)))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ([0, 1], "unknown kind of peer message: 0"),
        ([6, 1, 1, 1, b"\xc1"], "what members hold is no msgpack"),
        ([6, 1, 1, 1, b"\x01"], "what members hold is no array"),
        ([6, 1, 1, 1, b"\x91\x01"], "what a member holds has the wrong fields: 1"),
        ([6, 1, 1, 1, b"\x91\x93\xa1n\x01\xfe"], "wrong fields: .'n', 1, -2"),
        ([6, 1], "peer message 6 has the wrong fields: int"),
        ([6, 1, True, 0, b""], "peer message 6 has the wrong fields: int, bool, int, bytes"),
        ([6, -2, 0, 0, b""], r"peer message 6 has a number out of range: \[-2, 0, 0, b\'\'\]"),
        ([6, NUMBER_MAX + 1, 0, 0, b""], "out of range"),
        ("text", "no array that begins with a message kind"),
        ([], "no array that begins with a message kind"),
        ([6, [], 1, 1, b""], "peer message 6 has the wrong fields: list"),
        ([6, [], 1, 1, bytes(LARGE_ROW_BYTES)], "no msgpack: an array within an array"),
        ([*range(16)], "no msgpack: 16 exceeds max_array_len"),
        ([6, {1: 1}], "no msgpack: 1 exceeds max_map_len"),
        (
            [6, 1, 1, 1, bytes(EVIDENCE_BYTES_MAX + 1)],
            "members hold has 8193 bytes, over 8192",
        ),
    ],
)
def test_a_refused_message_says_what_is_wrong(fields: object, what: str) -> None:
    with pytest.raises(PeerError, match=what):
        decode_message(seal(msgpack.packb(fields)))


@pytest.mark.parametrize("head", [b"\x9f", b"\x9f" * 400, b"\xdd\x00\x0f\xff\xff"])
def test_a_frame_of_arrays_takes_no_memory_before_it_is_refused(head: bytes) -> None:
    frame = seal(head + b"\x90" * (1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(PeerError, match="no msgpack"):
            decode_message(frame)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
