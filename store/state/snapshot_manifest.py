"""``manifest.json``: up to where a snapshot holds the log, and of which replica.

It is one JSON object with the fields of :class:`Manifest` and ``crc32c``: eight hexadecimal digits,
the CRC32C of the other fields as compact JSON with sorted names. The last segment is copied while
it grows, so a snapshot may hold more of the log. Only what lies below ``end_position`` counts.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from crc32c import crc32c

from store.errors import DamagedError, DataFormatError
from store.field_checks import I64_MAX, U32_MAX, integer, text
from store.quoting import quoted, shortened
from store.state.format_file import FORMAT_VERSION, FORMATS_READ

MANIFEST_NAME = "manifest.json"
CRC_NAME = "crc32c"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot up to and with entry ``commit_index``, which ends at ``end_position``.

    ``chain_crc`` and ``term`` are those of that entry; ``time_ms`` is when it was taken.
    """

    group: str
    node: str
    term: int
    first_index: int
    commit_index: int
    end_position: int
    chain_crc: int
    time_ms: int
    format_version: int = FORMAT_VERSION


def encode_manifest(manifest: Manifest) -> bytes:
    document = asdict(manifest)
    return json.dumps({**document, CRC_NAME: _crc_of(document)}, indent=2).encode() + b"\n"


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Raises :class:`~store.errors.DamagedError`, and :class:`~store.errors.DataFormatError` for
    a version that this program does not know."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, 0, f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise DamagedError(path, 0, "not a JSON object")
    crc = found.pop(CRC_NAME, None)
    version = found.get("format_version")
    if crc is not None and crc != _crc_of(found):
        raise DamagedError(path, 0, f"fields that do not fit their CRC: {shortened(found)}")
    if version not in FORMATS_READ:
        raise DataFormatError(
            f"{path}: format {quoted(version)}, and this program knows formats up to "
            f"{FORMAT_VERSION}"
        )
    if crc is None:
        raise DamagedError(path, 0, f"unexpected fields: {shortened(found)}")
    try:
        return Manifest(
            text(found.get("group")),
            text(found.get("node")),
            integer(found.get("term")),
            integer(found.get("first_index")),
            integer(found.get("commit_index"), -1),
            integer(found.get("end_position")),
            integer(found.get("chain_crc"), high=U32_MAX),
            integer(found.get("time_ms"), -I64_MAX),
            integer(version),
        )
    except ValueError as error:
        raise DamagedError(path, 0, f"unexpected fields: {error}: {shortened(found)}") from error


def _crc_of(document: dict[str, object]) -> str:
    """The CRC32C of all other fields, as compact JSON with sorted names."""
    compact = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"{crc32c(compact.encode()):08x}"
