"""``manifest.json``: what a snapshot of a replica holds, beside the same files as a data directory.

One JSON object with the fields of :class:`Manifest`. A snapshot may hold more of the log than it
vouches for (its last segment was copied while it grew); what counts ends at ``end_position``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from store.errors import DamagedError, DataFormatError
from store.formatfile import FORMAT_VERSION

MANIFEST_NAME = "manifest.json"


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
    return json.dumps(asdict(manifest), indent=2).encode() + b"\n"


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Raises :class:`~store.errors.DamagedError`, and :class:`~store.errors.DataFormatError` for
    a version that this program does not know."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise DamagedError(path, 0, f"not JSON: {error}") from error
    version = found.get("format_version") if isinstance(found, dict) else None
    if version != FORMAT_VERSION:
        raise DataFormatError(
            f"{path}: format {version}, and this program knows format {FORMAT_VERSION} only"
        )
    values = [found.get(field.name) for field in fields(Manifest)]
    types = (str, str, int, int, int, int, int, int, int)
    if tuple(map(type, values)) != types:
        raise DamagedError(path, 0, f"unexpected fields: {found}")
    return Manifest(*values)
