"""Peer messages as bytes: one msgpack array each, ``[kind, term, ...]``.

The entries of an append travel as they lie in the commit log, back to back, in one binary field.
:func:`decode_message` raises :class:`PeerError` for anything that is not such a message, and checks
the body CRC of every entry.
"""

from __future__ import annotations

import msgpack

from dledger.errors import PeerError
from dledger.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    Message,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.servicecodec import (
    FIRST_SERVICE_KIND,
    SERVICE_FIELDS,
    Scalar,
    service_fields,
    service_message,
)
from store.entry import Entry, decode_entries
from store.errors import CorruptEntryError

MESSAGE_BYTES_MAX = 64 << 20
NUMBER_MAX = 1 << 62  # indexes and terms are i64 on disk, and are counted up from what peers say

_FIELDS: dict[int, tuple[Scalar, ...]] = {
    1: (int, int, int, bool, bool, int),
    2: (int, bool, bool, int),
    3: (int, int, int, int, bytes),
    4: (int, int, int),
    5: (int, int, int, int),
    6: (int, int, int),
    7: (int, int, int, int, int, int),
    8: (int,),
    9: (int, int),
    10: (int, int, int),
}


class MessageEncoder:
    """Encodes messages; entries sent to several followers in a row are joined once."""

    def __init__(self) -> None:
        self._first: Entry | None = None
        self._last: Entry | None = None
        self._joined = b""

    def encode(self, message: Message) -> bytes:
        """The frame of one message."""
        match message:
            case AppendRequest():
                fields = (
                    3,
                    message.term,
                    message.prev_index,
                    message.prev_term,
                    message.commit_index,
                    self._join(message.entries),
                )
            case VoteRequest(term, last_index, last_term, pre_vote, ordered, incarnation):
                return _pack((1, term, last_index, last_term, pre_vote, ordered, incarnation))
            case VoteResponse(term, granted, pre_vote, incarnation):
                return _pack((2, term, granted, pre_vote, incarnation))
            case AppendAccepted(term, match_index, incarnation):
                return _pack((4, term, match_index, incarnation))
            case AppendRejected(term, rejected_index, hint_index, hint_term):
                return _pack((5, term, rejected_index, hint_index, hint_term))
            case Heartbeat(term, commit_index, number):
                return _pack((6, term, commit_index, number))
            case HeartbeatResponse(term, match, last_index, number, incarnation, log_index):
                return _pack((7, term, match, last_index, number, incarnation, log_index))
            case TimeoutNow(term):
                return _pack((8, term))
            case ReadRequest(term, number):
                return _pack((9, term, number))
            case ReadResponse(term, number, index):
                return _pack((10, term, number, index))
            case _:
                return _pack(service_fields(message))
        return _pack(fields)

    def _join(self, entries: tuple[Entry, ...]) -> bytes:
        if not entries:
            return b""
        if entries[0] is not self._first or entries[-1] is not self._last:
            self._joined = b"".join(entry.data for entry in entries)
            self._first, self._last = entries[0], entries[-1]
        return self._joined


def _pack(fields: tuple[int | bool | bytes, ...]) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed


def decode_message(frame: bytes) -> Message:
    """The message of one frame. Raises :class:`PeerError` naming what is wrong with it."""
    try:
        fields = msgpack.unpackb(frame, max_bin_len=MESSAGE_BYTES_MAX)
    except (ValueError, msgpack.UnpackException) as error:
        raise PeerError(f"a peer frame of {len(frame)} bytes is no msgpack: {error}") from error
    if not isinstance(fields, list) or not fields or type(fields[0]) is not int:
        raise PeerError("a peer frame is no array that begins with a message kind")
    kind, *values = fields
    expected = _FIELDS.get(kind) or SERVICE_FIELDS.get(kind)
    if expected is None:
        raise PeerError(f"unknown kind of peer message: {kind}")
    if tuple(map(type, values)) != expected:
        found = ", ".join(type(value).__name__ for value in values)
        raise PeerError(f"peer message {kind} has the wrong fields: {found}")
    if not all(-1 <= value <= NUMBER_MAX for value in values if type(value) is int):
        raise PeerError(f"peer message {kind} has a number out of range: {values[:4]}")
    if kind >= FIRST_SERVICE_KIND:
        try:
            return service_message(kind, values)
        except (CorruptEntryError, ValueError) as error:
            raise PeerError(f"peer message {kind} cannot be right: {error}") from error
    match kind:
        case 1:
            return VoteRequest(*values)
        case 2:
            return VoteResponse(*values)
        case 3:
            term, prev_index, prev_term, commit_index, data = values
            try:
                entries = tuple(decode_entries(data))
            except CorruptEntryError as error:
                raise PeerError(f"damaged entry after index {prev_index}: {error}") from error
            return AppendRequest(term, prev_index, prev_term, commit_index, entries)
        case 4:
            return AppendAccepted(*values)
        case 5:
            return AppendRejected(*values)
        case 6:
            return Heartbeat(*values)
        case 7:
            return HeartbeatResponse(*values)
        case 8:
            return TimeoutNow(*values)
        case 9:
            return ReadRequest(*values)
        case _:
            return ReadResponse(*values)
