"""Peer messages as bytes: a CRC32C, then one msgpack array, ``[kind, term, ...]``.

The CRC is a big-endian u32 and covers everything behind it, so damage between two processes is
found with the next message. The entries of an append travel as they lie in the commit log, back to
back, in one binary field (bin 32). :func:`decode_message` raises :class:`PeerError` for anything
that is not such a message, and checks the body CRC of every entry, which its leader made.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgpack
from crc32c import crc32c

from dledger.errors import DamagedFrameError, PeerError
from dledger.raft.configuration import MEMBERS_MAX
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
from dledger.raft.term_bound import TERM_MAX
from dledger.wire.service_codec import (
    FIRST_SERVICE_KIND,
    SERVICE_FIELDS,
    Scalar,
    service_fields,
    service_message,
)
from dledger.wire.transport import Message
from store.errors import CorruptEntryError
from store.io.filesystem import Bytes
from store.log.entry import decode_entries
from store.quoting import quoted

MESSAGE_BYTES_MAX = 64 << 20
CRC = struct.Struct(">I")
NUMBER_MAX = TERM_MAX  # indexes and terms are i64 on disk
FIELDS_SHOWN_MAX = 10
FIELDS_MAX = 15
"""Format: of a message; the longest has eight, and a small array of MessagePack fifteen."""
EVIDENCE_BYTES_MAX = 128 * MEMBERS_MAX
"""Format: a member has a name of at most 64 bytes and two numbers of nine."""
LARGE_ROW_BYTES = 4 << 10
"""Nested arrays of fewer bytes are small objects, too."""

_ARRAY_OF_SIX = b"\x96"
_BIN_32 = struct.Struct(">BI")
_FIELD_TYPES: dict[int, tuple[Scalar, ...]] = {
    1: (int, int, int, bool, bool, int),
    2: (int, bool, bool, int, int),
    3: (int, int, int, int, bytes),
    4: (int, int, int),
    5: (int, int, int, int),
    6: (int, int, int, bytes),
    7: (int, int, int, int, int, int),
    8: (int,),
    9: (int, int),
    10: (int, int, int),
}


_WITH_OTHERS = frozenset(
    kind
    for kind, types in (*_FIELD_TYPES.items(), *SERVICE_FIELDS.items())
    if not {*types} <= {int, bool}
)
"""Kinds of messages with fields other than numbers and booleans."""


class MessageEncoder:
    """Encodes messages; an append that goes to several followers in a row is encoded once."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer()
        self._append: AppendRequest | None = None
        self._frame: Sequence[Bytes] = ()

    def encode(self, message: Message) -> Sequence[Bytes]:
        """The parts of the frame of one message. Entries are parts as they are: a join would copy
        them."""
        if not isinstance(message, AppendRequest):
            return (seal(self._packer.pack(_fields(message))),)
        if self._append is None or not _are_same(message, self._append):
            self._frame = self._append_frame(message)
            self._append = message
        return self._frame

    def _append_frame(self, append: AppendRequest) -> Sequence[Bytes]:
        numbers = self._packer.pack(_fields(append))
        entries = [entry.data for entry in append.entries]
        head = _ARRAY_OF_SIX + numbers[1:] + _BIN_32.pack(0xC6, sum(map(len, entries)))
        crc = crc32c(head)
        for data in entries:
            crc = crc32c(data, crc)
        return (CRC.pack(crc) + head, *entries)


def _fields(message: Message) -> tuple[int | bool | bytes, ...]:
    """The kind and the fields of a message; of an append all but its entries."""
    match message:
        case VoteRequest(term, last_index, last_term, pre_vote, ordered, incarnation):
            return (1, term, last_index, last_term, pre_vote, ordered, incarnation)
        case VoteResponse(term, granted, pre_vote, incarnation, log_index):
            return (2, term, granted, pre_vote, incarnation, log_index)
        case AppendRequest(term, prev_index, prev_term, commit_index, _):
            return (3, term, prev_index, prev_term, commit_index)
        case AppendAccepted(term, match_index, incarnation):
            return (4, term, match_index, incarnation)
        case AppendRejected(term, rejected_index, hint_index, hint_term):
            return (5, term, rejected_index, hint_index, hint_term)
        case Heartbeat(term, commit_index, number, evidence):
            return (6, term, commit_index, number, _packed_evidence(evidence) if evidence else b"")
        case HeartbeatResponse(term, match, last_index, number, incarnation, log_index):
            return (7, term, match, last_index, number, incarnation, log_index)
        case TimeoutNow(term):
            return (8, term)
        case ReadRequest(term, number):
            return (9, term, number)
        case ReadResponse(term, number, index):
            return (10, term, number, index)
        case _:
            return service_fields(message)


@lru_cache(maxsize=8)  # without news a leader sends the same to each of its peers
def _packed_evidence(evidence: tuple[MemberEvidence, ...]) -> bytes:
    packed: bytes = msgpack.packb(evidence)
    return packed


@lru_cache(maxsize=8)  # likewise
def _evidence(packed: bytes) -> tuple[MemberEvidence, ...]:
    if len(packed) > EVIDENCE_BYTES_MAX:
        raise PeerError(f"what members hold has {len(packed)} bytes, over {EVIDENCE_BYTES_MAX}")
    try:
        found = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException) as error:
        raise PeerError(f"what members hold is no msgpack: {error}") from error
    if not isinstance(found, list) or len(found) > MEMBERS_MAX:
        raise PeerError("what members hold is no array of so many members")
    for fields in found:
        known = isinstance(fields, list) and tuple(map(type, fields)) == (str, int, int)
        if not known or not all(-1 <= number <= NUMBER_MAX for number in fields[1:]):
            raise PeerError(f"what a member holds has the wrong fields: {quoted(fields)}")
    return tuple(MemberEvidence(*fields) for fields in found)


def _are_same(append: AppendRequest, other: AppendRequest) -> bool:
    """Whether both have the same content: two followers that are equally far get the same."""
    ours, theirs = append.entries, other.entries
    return (
        len(ours) == len(theirs)
        and (not ours or (ours[0] is theirs[0] and ours[-1] is theirs[-1]))
        and append.commit_index == other.commit_index
        and append.prev_index == other.prev_index
        and (append.term, append.prev_term) == (other.term, other.prev_term)
    )


def seal(content: bytes) -> bytes:
    """The frame of that content."""
    return CRC.pack(crc32c(content)) + content


def unseal(frame: Bytes) -> memoryview:
    """The content of a frame. Raises :class:`~dledger.errors.DamagedFrameError`."""
    content = memoryview(frame)[CRC.size :]
    expected = int.from_bytes(frame[: CRC.size], "big")
    found = crc32c(content)
    if found != expected or len(frame) < CRC.size:
        raise DamagedFrameError(len(frame), found, expected)
    return content


def unpack_row(content: memoryview) -> Any:
    """What MessagePack bytes hold, if that is no map and, in a large row, no array within an array:
    each byte of nested arrays would become an object of seventy. Raises what ``msgpack.unpackb``
    does, such as ``ValueError``."""
    return msgpack.unpackb(
        content,
        max_bin_len=MESSAGE_BYTES_MAX,
        max_array_len=FIELDS_MAX,
        max_map_len=0,
        list_hook=_flat if len(content) > LARGE_ROW_BYTES else None,
    )


def _flat(values: list[object]) -> list[object]:
    for value in values:
        if type(value) is list:
            raise ValueError("an array within an array")
    return values


def decode_message(frame: Bytes) -> Message:
    """The message of one frame. Raises :class:`PeerError` naming what is wrong with it."""
    content = unseal(frame)
    try:
        fields = unpack_row(content)
    except (ValueError, msgpack.UnpackException) as error:
        raise PeerError(f"a peer frame of {len(frame)} bytes is no msgpack: {error}") from error
    if not isinstance(fields, list) or not fields or type(fields[0]) is not int:
        raise PeerError("a peer frame is no array that begins with a message kind")
    kind, *values = fields
    expected = _FIELD_TYPES.get(kind) or SERVICE_FIELDS.get(kind)
    if expected is None:
        raise PeerError(f"unknown kind of peer message: {kind}")
    if tuple(map(type, values)) != expected:
        found = ", ".join(type(value).__name__ for value in values[:FIELDS_SHOWN_MAX])
        raise PeerError(f"peer message {kind} has the wrong fields: {found}")
    numbers = values if kind not in _WITH_OTHERS else [v for v in values if type(v) is int]
    if numbers and (min(numbers) < -1 or max(numbers) > NUMBER_MAX):
        told = [value[:10] if isinstance(value, bytes) else value for value in values[:4]]
        raise PeerError(f"peer message {kind} has a number out of range: {told}")
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
            term, commit_index, number, evidence = values
            return Heartbeat(term, commit_index, number, _evidence(evidence) if evidence else ())
        case 7:
            return HeartbeatResponse(*values)
        case 8:
            return TimeoutNow(*values)
        case 9:
            return ReadRequest(*values)
        case _:
            return ReadResponse(*values)
