"""A snapshot: the files of a running replica in another directory.

Files that no longer change are linked: closed segments, full files of the entry index and of
ConsumeQueues, key index files, the checkpoint. Of files that still grow, the bytes below the
snapshot's end are copied. They are committed, so they do not change. Copying is done in steps, with
other work between them. ``manifest.json`` is written last. A directory without it is no snapshot.

A linked file is still the running replica's file, so copy a snapshot before you change it. If
nothing can be linked, for example to another file system, everything is copied.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from store.errors import DamagedError, SnapshotError, StoreError
from store.index.block_seals import ROW_SIZE as QUEUE_ROW_SIZE
from store.index.block_seals import SEAL_SUFFIX
from store.index.queue_tails import TAILS_NAME
from store.io.atomic_file import read_file, replace_file
from store.io.filesystem import FileSystem
from store.io.two_slot_file import SLOT_COUNT, SLOT_SIZE, decode_slot, encode_slot, slot_owner
from store.log.entry_row import ROW_SIZE as INDEX_ROW_SIZE
from store.log.layout import parse_segment_name, segment_name, segment_start
from store.state.checkpoint import NAME_PREFIX, Checkpoint, decode_checkpoint
from store.state.format_file import FORMAT_NAME, decode_format
from store.state.hard_state import MARK_NAME, VOTE_NAME, DurableMark
from store.state.machine_state import decode_machine_state
from store.state.snapshot_manifest import MANIFEST_NAME, Manifest, encode_manifest

SNAPSHOTS = "snapshots"
"""The only directory within a replica's own that may hold snapshots of it."""

STEP_BYTES = 4 << 20
# A link is not possible: another file system, or one without links.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})


class _Copy(NamedTuple):
    source: str
    target: str
    size: int | None
    """Bytes from the beginning; ``None`` for the whole file."""


class SnapshotWriter:
    """Makes one snapshot, step by step (:meth:`steps`). Background thread."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        target: str,
        *,
        checkpoint: Checkpoint,
        beginning: tuple[int, int],
        time_ms: int,
    ) -> None:
        """``beginning``: first index and first position of the log."""
        self._fs = fs
        self._directory = directory
        self._target = target
        self._checkpoint = checkpoint
        self._first_index, self._first_position = beginning
        path = f"{directory}/state/{FORMAT_NAME}"
        self._identity = decode_format(read_file(fs, path), path)
        self._copies: list[_Copy] = []
        self._made: dict[str, None] = {}
        self.manifest = Manifest(
            group=self._identity.group,
            node=self._identity.node,
            term=checkpoint.term,
            first_index=self._first_index,
            commit_index=checkpoint.index,
            end_position=checkpoint.end_position,
            chain_crc=checkpoint.chain_crc,
            time_ms=time_ms,
        )

    def steps(self) -> Iterator[int]:
        """Makes the snapshot. Yields the bytes copied since, a few MiB at most.

        The first step makes all links, so that no file can expire before. Raises
        :class:`~store.errors.SnapshotError`, after it has removed what it made.
        """
        try:
            check_target(self._fs, self._directory, self._target)
            self._link_all()
            yield 0
            for copy in self._copies:
                yield from self._copy(copy)
            self._write_state()
            for directory in self._made:
                self._fs.sync_directory(directory)
            replace_file(self._fs, self._target, MANIFEST_NAME, encode_manifest(self.manifest))
        except SnapshotError:
            raise
        except (OSError, StoreError) as error:
            with suppress(OSError):  # where nothing could be made there is nothing to remove
                self._fs.remove_tree(self._target)
            raise SnapshotError(f"{self._target}: the snapshot failed: {error}") from error

    def _link_all(self) -> None:
        end = self.manifest.end_position
        for name in ("state", "commitlog", "index", "consumequeue", "keyindex"):
            self._make(name)
        size = self._identity.segment_size
        start = segment_start(self._first_position, size)
        while start < end:
            name = f"commitlog/{segment_name(start)}"
            if start + size < end:
                self._link(name)
            else:
                self._copy_later(name, end - start)
            start += size
        self._take_rows("index", (self.manifest.commit_index + 1) * INDEX_ROW_SIZE)
        # The checkpoints in memory have no machine state, so the file is read.
        name = f"state/{NAME_PREFIX}{self._checkpoint.index:020d}"
        path = f"{self._directory}/{name}"
        checkpoint = decode_checkpoint(read_file(self._fs, path), path)
        self._link(name)
        for queue in decode_machine_state(checkpoint.state).queues:
            name = f"consumequeue/{queue.topic}/{queue.queue_id}"
            if self._fs.exists(f"{self._directory}/{name}"):
                self._make(name)
                self._take_rows(name, queue.end_offset * QUEUE_ROW_SIZE)
                self._take_seals(name)
        if self._fs.exists(f"{self._directory}/state/{TAILS_NAME}"):
            self._link(f"state/{TAILS_NAME}")
        for name in self._names("keyindex"):
            position = parse_segment_name(name)
            if position is not None and position < end:
                self._link(f"keyindex/{name}")

    def _names(self, name: str) -> list[str]:
        path = f"{self._directory}/{name}"
        return self._fs.list_directory(path) if self._fs.exists(path) else []

    def _make(self, name: str) -> None:
        path = f"{self._target}/{name}"
        self._fs.make_directories(path)
        self._made[path] = None

    def _take_rows(self, directory: str, end: int) -> None:
        """Takes the files of rows below byte ``end``. A file is named by its first byte."""
        names = [name for name in self._names(directory) if parse_segment_name(name) is not None]
        for name, following in zip(names, [*names[1:], ""], strict=True):
            start = int(name)
            if following and int(following) <= end:
                self._link(f"{directory}/{name}")
            elif start < end:
                self._copy_later(f"{directory}/{name}", end - start)

    def _take_seals(self, directory: str) -> None:
        """Takes the files of seals. A file that still grows is copied as it is: seals of rows that
        the snapshot lacks count for nothing."""
        names = [name for name in self._names(directory) if name.endswith(SEAL_SUFFIX)]
        for name in names[:-1]:
            self._link(f"{directory}/{name}")
        for name in names[-1:]:
            self._copy_later(f"{directory}/{name}", None)

    def _link(self, name: str) -> None:
        try:
            self._fs.link(f"{self._directory}/{name}", f"{self._target}/{name}")
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            self._copy_later(name, None)

    def _copy_later(self, name: str, size: int | None) -> None:
        self._copies.append(_Copy(f"{self._directory}/{name}", f"{self._target}/{name}", size))

    def _copy(self, copy: _Copy) -> Iterator[int]:
        source = self._fs.open(copy.source, writable=False)
        try:
            target = self._fs.open(copy.target, create=True)
            try:
                end = source.size() if copy.size is None else copy.size
                for at in range(0, end, STEP_BYTES):
                    wanted = min(STEP_BYTES, end - at)
                    data = source.pread(wanted, at)
                    if len(data) < wanted:
                        raise DamagedError(copy.source, at + len(data), "the file is cut short")
                    target.pwrite(data, at)
                    target.datasync()
                    target.drop_cached(wanted, at)
                    yield wanted
            finally:
                target.close()
        finally:
            source.close()

    def _write_state(self) -> None:
        """Copies the vote and the format, and writes the mark of the snapshot's end."""
        fs, checkpoint = self._fs, self._checkpoint
        state = f"{self._target}/state"
        path = f"{self._directory}/state/{VOTE_NAME}"
        data = read_file(fs, path)
        # It may be written at the same time. One of the two slots is intact at any moment.
        slots = [decode_slot(data[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
        vote = max((slot for slot in slots if slot is not None), default=None)
        if vote is None:
            raise DamagedError(path, 0, "neither of the two slots is whole")
        owner = slot_owner(data) or slot_owner(data[SLOT_SIZE:])
        replace_file(fs, state, VOTE_NAME, encode_slot(*vote, owner) * SLOT_COUNT)
        mark = DurableMark(
            checkpoint.index,
            checkpoint.end_position,
            checkpoint.chain_crc,
            checkpoint.index,
            self._first_index,
            self._first_position,
        )
        replace_file(fs, state, MARK_NAME, encode_slot(1, mark.pack(), owner) * SLOT_COUNT)
        source = read_file(fs, f"{self._directory}/state/{FORMAT_NAME}")
        replace_file(fs, state, FORMAT_NAME, source)


def check_target(fs: FileSystem, directory: str, target: str) -> None:
    """Raises :class:`~store.errors.SnapshotError` for a directory that must not be written to.

    ``directory`` is the replica's own. A snapshot must not be among its files.
    """
    check_target_path(directory, target)
    try:
        if fs.exists(target) and fs.list_directory(target):
            raise SnapshotError(f"{target}: not empty; name a new directory")
    except OSError as error:
        raise SnapshotError(f"{target}: {error.strerror or error}") from error


def check_target_path(directory: str, target: str) -> None:
    """As :func:`check_target`, but by the path alone: it does not read the disk."""
    parts = target.split("/")
    if not target.startswith("/") or ".." in parts or "\0" in target:
        raise SnapshotError(f"{target!r}: name the directory by an absolute path, without ..")
    ours, theirs = f"{directory}/", f"{target.rstrip('/')}/"
    if theirs.startswith(f"{ours}{SNAPSHOTS}/") and theirs != f"{ours}{SNAPSHOTS}/":
        return
    if theirs.startswith(ours) or ours.startswith(theirs):
        raise SnapshotError(f"{target}: a snapshot cannot be in the directory of the live data")
