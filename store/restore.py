"""Restore: makes the data of a member of a new group from a snapshot.

Log, entry index, ConsumeQueues, key index and checkpoint are copied. State files are made for the
new member. One more entry is appended to the log: a configuration with the new voters, in a term
above all others. So the log says who the members are, and all replicas of one snapshot are equal
byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from store.errors import DamagedError, SnapshotError
from store.io.atomic_file import read_file, replace_file
from store.io.filesystem import FileSystem, ReadableFileSystem
from store.io.two_slot_file import TwoSlotFile
from store.log.entry import HEADER_SIZE, EntryKind, build_entry
from store.log.layout import next_position, parse_segment_name
from store.recovery.opening import StoreConfig
from store.replica import ReplicaStore
from store.state.format_file import FORMAT_NAME, Identity, decode_format, encode_format
from store.state.hard_state import MARK_NAME, VOTE_NAME, DurableMark, HardState
from store.state.snapshot_manifest import MANIFEST_NAME, Manifest, decode_manifest

PIECE_BYTES = 4 << 20
FILE_DIRECTORIES = ("commitlog", "index", "keyindex")
QUEUES = "consumequeue"
OWN_FILES = frozenset({FORMAT_NAME, VOTE_NAME, MARK_NAME})
"""State files that belong to one member; ``state/held`` is in no snapshot."""


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """A snapshot of one replica in ``directory`` of a file system."""

    fs: ReadableFileSystem
    directory: str
    manifest: Manifest
    identity: Identity

    @staticmethod
    def open(fs: ReadableFileSystem, directory: str) -> SnapshotSource:
        """Raises :class:`~store.errors.SnapshotError` for what is no snapshot, the errors of
        :func:`~store.state.snapshot_manifest.decode_manifest`, and ``OSError``."""
        path = f"{directory}/{MANIFEST_NAME}"
        try:
            data = read_file(fs, path)
        except FileNotFoundError as error:
            what = f"no snapshot: there is no {MANIFEST_NAME}; `dledger snapshot` makes one"
            raise SnapshotError(f"{directory}: {what}") from error
        manifest = decode_manifest(data, path)
        path = f"{directory}/state/{FORMAT_NAME}"
        return SnapshotSource(fs, directory, manifest, decode_format(read_file(fs, path), path))

    def files(self) -> Iterator[tuple[str, int]]:
        """The files that every member gets: path below the directory, and bytes."""
        for name in self._list("state"):
            if name not in OWN_FILES:
                yield self._sized(f"state/{name}")
        for directory in FILE_DIRECTORIES:
            for name in self._list(directory):
                start = parse_segment_name(name) if directory == "commitlog" else None
                room = None if start is None else self.manifest.end_position - start
                if room is None or room > 0:
                    yield self._sized(f"{directory}/{name}", room)
        for topic in self._list(QUEUES):
            for queue in self._list(f"{QUEUES}/{topic}"):
                for name in self._list(f"{QUEUES}/{topic}/{queue}"):
                    yield self._sized(f"{QUEUES}/{topic}/{queue}/{name}")

    def _list(self, directory: str) -> list[str]:
        with suppress(FileNotFoundError):
            return self.fs.list_directory(f"{self.directory}/{directory}")
        return []

    def _sized(self, name: str, size_max: int | None = None) -> tuple[str, int]:
        file = self.fs.open(f"{self.directory}/{name}", writable=False)
        try:
            size = file.size()
        finally:
            file.close()
        return name, size if size_max is None else min(size, size_max)


def restore_replica(
    source: SnapshotSource, fs: FileSystem, target: str, member: StoreConfig, configuration: bytes
) -> Iterator[int]:
    """Makes the data of ``member`` in ``target``, an empty directory; yields bytes copied since.

    ``configuration`` is the body of the entry that names the members. Raises
    :class:`~store.errors.SnapshotError` if the size of segments differs, the errors of
    :meth:`ReplicaStore.open`, and ``OSError``. All is durable at the end, except the name of
    ``target`` itself.
    """
    if member.segment_size != source.identity.segment_size:
        raise SnapshotError(
            f"{source.directory}: segments of {source.identity.segment_size} bytes, and "
            f"{member.owner} has segment_size = {member.segment_size}"
        )
    for name in ("state", QUEUES, *FILE_DIRECTORIES):
        fs.make_directories(f"{target}/{name}", sync=False)
    for name, size in source.files():
        fs.make_directories(f"{target}/{name}".rpartition("/")[0], sync=False)
        yield from _copy(source, name, size, fs, target)
    _write_state(source, fs, f"{target}/state", member)
    fs.sync_all(target)
    _append_configuration(source.manifest, fs, target, member, configuration)


def _copy(
    source: SnapshotSource, name: str, size: int, fs: FileSystem, target: str
) -> Iterator[int]:
    path = f"{source.directory}/{name}"
    read = source.fs.open(path, writable=False)
    try:
        written = fs.open(f"{target}/{name}", create=True)
        try:
            for at in range(0, size, PIECE_BYTES):
                wanted = min(PIECE_BYTES, size - at)
                data = read.pread(wanted, at)
                if len(data) < wanted:
                    raise DamagedError(path, at + len(data), "the file is cut short")
                written.pwrite(data, at)
                yield wanted
            written.datasync()
            written.drop_cached(size, 0)
        finally:
            written.close()
    finally:
        read.close()


def _write_state(source: SnapshotSource, fs: FileSystem, state: str, member: StoreConfig) -> None:
    manifest = source.manifest
    segments = source.fs.list_directory(f"{source.directory}/commitlog")
    mark = DurableMark(
        manifest.commit_index,
        manifest.end_position,
        manifest.chain_crc,
        manifest.commit_index,
        manifest.first_index,
        min(start for name in segments if (start := parse_segment_name(name)) is not None),
    )
    vote = HardState(manifest.term + 1)
    TwoSlotFile.create(fs, state, VOTE_NAME, vote.pack(), member.owner).close()
    TwoSlotFile.create(fs, state, MARK_NAME, mark.pack(), member.owner).close()
    identity = Identity(
        member.group,
        member.node,
        member.segment_size,
        member.incarnation,
        source.identity.version,
    )
    replace_file(fs, state, FORMAT_NAME, encode_format(identity))


def _append_configuration(
    manifest: Manifest, fs: FileSystem, target: str, member: StoreConfig, configuration: bytes
) -> None:
    """Appends the entry that names the members. It counts as committed."""
    size = HEADER_SIZE + len(configuration)
    entry = build_entry(
        EntryKind.CONFIGURATION,
        manifest.commit_index + 1,
        manifest.term + 1,
        next_position(manifest.end_position, size, member.segment_size),
        manifest.chain_crc,
        [configuration],
    )
    store = ReplicaStore.open(fs, target, member)
    try:
        store.append([entry])
        store.sync()
        store.save_mark(entry.index, entry.end, entry.chain_crc, entry.index)
    finally:
        store.close()
