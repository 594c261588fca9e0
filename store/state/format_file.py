"""``state/format``: whose data a directory holds, and in which version of the format.

It is text, so that ``cat`` shows it::

    dledger data format 2
    group broker-a
    node n0
    segment_size 268435456
    incarnation 4f1d09a3c75be216
    crc32c 5b7ae1f2

Format 2 added checksums to the derived files: pages of key files, blocks of ConsumeQueues
(``store/index/``). Data of format 1 is read as it is. The format file says 2 before the first such
file is written, and what has no checksum yet counts as unsealed.

The CRC32C covers all lines above its own. The incarnation is a random number in hexadecimal, drawn
when the directory is made. It tells this data from the data that the node had before. Directories
of the first programs have no such line.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from store.errors import DamagedError, DataFormatError
from store.field_checks import U64_MAX, file_name, integer
from store.log.layout import SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN
from store.quoting import quoted

FORMAT_NAME = "format"
FORMAT_VERSION = 2
FORMATS_READ = (1, FORMAT_VERSION)
TITLE = "dledger data format "
DIGITS_MAX = 20


class Identity(NamedTuple):
    """What must agree between a data directory and the node that opens it."""

    group: str
    node: str
    segment_size: int
    incarnation: int = 0
    """The number of the data directory; 0 if it has none."""
    version: int = FORMAT_VERSION
    """The format of the data."""

    @property
    def owner(self) -> str:
        """How the files that belong to one node alone name it (:mod:`store.io.two_slot_file`)."""
        return f"{self.group}/{self.node}"


CHECKED = ("group", "node", "segment_size")


def encode_format(identity: Identity) -> bytes:
    """The bytes of the format file. Raises :class:`ValueError` for a name that is not one line."""
    lines = [f"{TITLE}{identity.version}"]
    for name in CHECKED:
        value = str(getattr(identity, name))
        if len(value.splitlines()) != 1:
            raise ValueError(f"{name} must be one line of text: {value!r}")
        lines.append(f"{name} {value}")
    if identity.incarnation:
        lines.append(f"incarnation {identity.incarnation:016x}")
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
    if int(version) not in FORMATS_READ:
        raise DataFormatError(
            f"{path}: the data is in format {int(version)}, and this program knows "
            f"formats up to {FORMAT_VERSION}"
        )
    covered, _, crc = data.rpartition(b"crc32c ")
    if crc != b"%08x\n" % crc32c(covered):
        raise DamagedError(path, len(covered), "CRC of the format file")
    try:
        values = dict(line.split(" ", 1) for line in covered.decode().splitlines()[1:])
        return Identity(
            file_name(values["group"]),
            file_name(values["node"]),
            _number(values["segment_size"], 10, SEGMENT_SIZE_MIN, SEGMENT_SIZE_MAX),
            _number(values.get("incarnation", "0"), 16, 0, U64_MAX),
            int(version),
        )
    except KeyError as error:
        raise DamagedError(path, 0, f"the format file has no line {error}") from error
    except ValueError as error:
        raise DamagedError(path, 0, f"the format file has an impossible line: {error}") from error


def _number(digits: str, base: int, low: int, high: int) -> int:
    allowed = "0123456789abcdef"[:base]
    if not digits or len(digits) > DIGITS_MAX or digits.strip(allowed):
        raise ValueError(f"{quoted(digits)} is no number")
    return integer(int(digits, base), low, high)


def check_identity(found: Identity, expected: Identity, path: str) -> None:
    """Raises :class:`~store.errors.DataFormatError` naming each field that differs."""
    differences = [
        f"{name} is {getattr(found, name)}, this node has {getattr(expected, name)}"
        for name in CHECKED
        if getattr(found, name) != getattr(expected, name)
    ]
    if differences:
        raise DataFormatError(f"{path}: data of another node: {'; '.join(differences)}")
