"""``state/tails``: checksums of the rows of each ConsumeQueue behind its last full block.

The file is replaced before the checkpoint that covers these rows is written. The scrub replaces it
when it has sealed rows. Big-endian::

    byte  type  field
       0  4s    magic "DLQT"
       4  u32   version (1)
       8  u32   CRC32C of the bytes from 12 on
      12  u32   length of the payload
      16        payload: the MessagePack array of [topic, queue id, end offset, position of the
                record of the block's first row, CRC32C of the rows]

A tail counts only if its queue ends at that offset. All other queues have an unsealed tail. So do
all queues if the file is absent or damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgpack
from crc32c import crc32c

from store.errors import DamagedError
from store.field_checks import U32_MAX, columns, integers, named_rows, texts
from store.index.block_seals import Tail
from store.io.atomic_file import read_checked_file, replace_file
from store.io.filesystem import FileSystem
from store.io.packed_array import pack_array

TAILS_NAME = "tails"
MAGIC = b"DLQT"
VERSION = 1
_HEADER = struct.Struct(">4sIII")
PAYLOAD_AT = _HEADER.size
_CRC_FROM = 12

Tails: TypeAlias = Mapping[tuple[str, int], Tail]
"""By topic and queue id."""


def encode_tails(tails: Iterable[tuple[str, int, Tail]]) -> bytes:
    """The bytes of the file."""
    return seal_payload(pack_array([(topic, queue, *tail) for topic, queue, tail in tails]))


def seal_payload(payload: bytes) -> bytes:
    """The bytes of the file with that payload."""
    length = len(payload).to_bytes(4, "big")
    crc = crc32c(payload, crc32c(length))
    return _HEADER.pack(MAGIC, VERSION, crc, len(payload)) + payload


def decode_tails(data: bytes, path: str) -> dict[tuple[str, int], Tail]:
    """The tails of the file. Raises :class:`~store.errors.DamagedError`."""
    if len(data) < _HEADER.size:
        raise DamagedError(path, len(data), "the header is cut short")
    magic, version, crc, length = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise DamagedError(path, 0, "not the tails of ConsumeQueues, version 1")
    if length != len(data) - _HEADER.size:
        raise DamagedError(path, _CRC_FROM, f"{length} bytes are not {len(data) - _HEADER.size}")
    if crc32c(data[_CRC_FROM:]) != crc:
        raise DamagedError(path, _CRC_FROM, "CRC of the tails")
    try:
        packed = msgpack.unpackb(data[_HEADER.size :], use_list=False)
        topics, queue_ids, ends, positions, crcs = columns(packed, 5)
        keys = zip(texts(topics), integers(queue_ids), strict=True)
        tails = named_rows(Tail, integers(ends), integers(positions), integers(crcs, high=U32_MAX))
        return dict(zip(keys, tails, strict=True))
    except (ValueError, msgpack.UnpackException) as error:
        raise DamagedError(
            path, _HEADER.size, f"not the tails of ConsumeQueues: {error}"
        ) from error


def read_tails(fs: FileSystem, state_directory: str) -> dict[tuple[str, int], Tail]:
    """The tails of the file; none if it is absent or damaged."""
    try:
        path = f"{state_directory}/{TAILS_NAME}"
        return decode_tails(read_checked_file(fs, path), path)
    except (FileNotFoundError, DamagedError):
        return {}


def write_tails(
    fs: FileSystem, state_directory: str, tails: Iterable[tuple[str, int, Tail]]
) -> None:
    """Durably replaces the file."""
    fs.make_directories(state_directory)
    replace_file(fs, state_directory, TAILS_NAME, encode_tails(tails))


def amend_tails(fs: FileSystem, state_directory: str, amended: Tails) -> None:
    """Durably replaces the tails of these queues, unless the file has a tail with another end.

    Nothing is written if the file has all of them. It must not run at the same time as
    :func:`write_tails`.
    """
    before = read_tails(fs, state_directory)
    tails = dict(before)
    for key, tail in amended.items():
        if key not in tails or tails[key].end == tail.end:
            tails[key] = tail
    if tails == before:
        return
    write_tails(fs, state_directory, [(*key, tail) for key, tail in tails.items()])
