"""The index of a backup: a list of files, each stored as an object named by its checksum.

::

    <url>/objects/<2 digits>/<SHA-256>     the bytes of a file, shared by all backups that have it
    <url>/backups/<time>.json              a backup; written last

So a closed segment of the log is stored once, and an interrupted backup can be repeated.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from store.errors import DamagedError
from store.field_checks import array, integer, text
from store.state.format_file import FORMAT_VERSION

BACKUP_VERSION = 1
OBJECTS = "objects"
BACKUPS = "backups"
SUFFIX = ".json"
PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file below the directory ``<group>/<node>`` of a snapshot."""

    name: str
    size: int
    sha256: str

    @property
    def object_name(self) -> str:
        return f"{OBJECTS}/{self.sha256[:2]}/{self.sha256}"


@dataclass(frozen=True, slots=True)
class BackupReplica:
    """The snapshot of one replica. ``time_ms`` is the time of the snapshot."""

    group: str
    node: str
    commit_index: int
    time_ms: int
    files: tuple[BackupFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class BackupIndex:
    """A backup: one replica of each group."""

    name: str
    replicas: tuple[BackupReplica, ...]

    @property
    def size(self) -> int:
        return sum(replica.size for replica in self.replicas)

    def encode(self) -> bytes:
        document = {
            "version": BACKUP_VERSION,
            "format_version": FORMAT_VERSION,
            "replicas": [asdict(replica) for replica in self.replicas],
        }
        return json.dumps(document).encode()

    @staticmethod
    def decode(name: str, data: bytes, path: str) -> BackupIndex:
        """Raises :class:`~store.errors.DamagedError`."""
        try:
            document = json.loads(data)
            if document["version"] != BACKUP_VERSION:
                raise ValueError(f"version {document['version']!r:.20}, not {BACKUP_VERSION}")
            return BackupIndex(name, tuple(_replica(each) for each in array(document["replicas"])))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise DamagedError(path, 0, f"not the index of a backup: {error!s:.200}") from error


def _replica(fields: Any) -> BackupReplica:
    group, node = _name(text(fields["group"])), _name(text(fields["node"]))
    files = tuple(_file(each) for each in array(fields["files"]))
    return BackupReplica(
        group, node, integer(fields["commit_index"]), integer(fields["time_ms"]), files
    )


def _file(fields: Any) -> BackupFile:
    name, digest = text(fields["name"]), text(fields["sha256"])
    for part in name.split("/"):
        _name(part)
    if len(digest) != 64 or digest.strip("0123456789abcdef"):
        raise ValueError(f"{digest!r:.80} is not a SHA-256")
    return BackupFile(name, integer(fields["size"]), digest)


def _name(part: str) -> str:
    """A file name without a path."""
    if part in {"", ".", ".."} or "/" in part or "\0" in part:
        raise ValueError(f"{part!r:.80} is not a file name")
    return part


def backup_name(time_ms: int) -> str:
    """The name of a backup made then; names sort by time."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}{time_ms % 1000:03d}Z"


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
