"""``state/format``: whose data a directory holds, and in which version of the format.

Lines of text, so that ``cat`` answers the question too::

    dledger data format 1
    group broker-a
    node n0
    segment_size 268435456
    crc32c 5b7ae1f2

The CRC32C covers all lines above its own.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from store.errors import DamagedError, DataFormatError

FORMAT_NAME = "format"
FORMAT_VERSION = 1
TITLE = "dledger data format "


class Identity(NamedTuple):
    """What must agree between a data directory and the node that opens it."""

    group: str
    node: str
    segment_size: int


def encode_format(identity: Identity) -> bytes:
    """The bytes of the format file. Raises :class:`ValueError` for a name that is not one line."""
    lines = [f"{TITLE}{FORMAT_VERSION}"]
    for name, value in zip(Identity._fields, identity, strict=True):
        if len(str(value).splitlines()) != 1:
            raise ValueError(f"{name} must be one line of text: {value!r}")
        lines.append(f"{name} {value}")
    covered = "".join(f"{line}\n" for line in lines).encode()
    return covered + b"crc32c %08x\n" % crc32c(covered)


def decode_format(data: bytes, path: str) -> Identity:
    """Reads a format file.

    Raises :class:`~store.errors.DataFormatError` for another version of the format, which is told
    by the first line alone, and :class:`~store.errors.DamagedError` for anything else.
    """
    lines = data.split(b"\n")
    title = TITLE.encode()
    version = lines[0].removeprefix(title)
    if version == lines[0] or not version.isdigit():
        raise DamagedError(path, 0, "not the format file of a data directory")
    if int(version) != FORMAT_VERSION:
        raise DataFormatError(
            f"{path}: the data is in format {int(version)}, and this program knows "
            f"format {FORMAT_VERSION} only"
        )
    covered, _, crc = data.rpartition(b"crc32c ")
    if crc != b"%08x\n" % crc32c(covered):
        raise DamagedError(path, len(covered), "CRC of the format file")
    names = ("group ", "node ", "segment_size ")
    values = [
        line.decode().removeprefix(name) for line, name in zip(lines[1:4], names, strict=True)
    ]
    return Identity(values[0], values[1], int(values[2]))


def check_identity(found: Identity, expected: Identity, path: str) -> None:
    """Raises :class:`~store.errors.DataFormatError` naming each field that differs."""
    differences = [
        f"{name} is {value}, this node has {own}"
        for name, value, own in zip(Identity._fields, found, expected, strict=True)
        if value != own
    ]
    if differences:
        raise DataFormatError(f"{path}: data of another node: {'; '.join(differences)}")
