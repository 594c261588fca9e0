"""Checkpoints: a point of the log up to which everything derived from it is on disk.

``state/checkpoint-<index, 20 digits>``, big-endian::

    byte  type  field
       0  4s    magic "DLCP"
       4  u32   version, 1
       8  u32   CRC32C of the bytes from 12
      12  u32   length of the payload
      16        payload: a MessagePack array [index, end position, chain CRC, term,
                [[term, first index], ...], commit index, state as binary];
                then, if the log says who the members are, their configuration as binary

A checkpoint is written under a temporary name and then renamed. The newest two are kept. If the
newest is damaged at rest, recovery starts from the one before and reads more of the log. A
checkpoint that a peer is fetching is kept until the peer has it: else a large one would never
arrive.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

import msgpack
from crc32c import crc32c

from store.errors import DamagedError
from store.field_checks import U32_MAX, array, binary, integer
from store.io.atomic_file import TEMPORARY_SUFFIX, read_checked_file, replace_file
from store.io.filesystem import FileSystem
from store.io.unreadable_blocks import UNREADABLE

CHECKPOINT_MAGIC = b"DLCP"
CHECKPOINT_VERSION = 1
CHECKPOINT_HEADER = struct.Struct(">4sIII")
NAME_PREFIX = "checkpoint-"
CHECKPOINTS_KEPT = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after applying the entries up to and with ``index``.

    ``end_position`` is where that entry ends, ``chain_crc`` and ``term`` are its own;
    ``term_starts`` lists (term, first index) in order; ``state`` belongs to the state machine.
    """

    index: int
    end_position: int
    chain_crc: int
    term: int
    term_starts: tuple[tuple[int, int], ...]
    commit_index: int
    state: bytes = field(repr=False)
    configuration: bytes = b""


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    fields: list[object] = [
        checkpoint.index,
        checkpoint.end_position,
        checkpoint.chain_crc,
        checkpoint.term,
        checkpoint.term_starts,
        checkpoint.commit_index,
        checkpoint.state,
    ]
    if checkpoint.configuration:
        fields.append(checkpoint.configuration)
    payload: bytes = msgpack.packb(fields)
    length = struct.pack(">I", len(payload))
    crc = crc32c(payload, crc32c(length))
    header = CHECKPOINT_HEADER.pack(CHECKPOINT_MAGIC, CHECKPOINT_VERSION, crc, len(payload))
    return header + payload


def decode_checkpoint(data: bytes, path: str) -> Checkpoint:
    """Raises :class:`~store.errors.DamagedError` if the bytes are not a whole checkpoint."""
    if len(data) < CHECKPOINT_HEADER.size:
        raise DamagedError(path, len(data), "the file is cut short")
    magic, version, crc, length = CHECKPOINT_HEADER.unpack_from(data)
    if (magic, version) != (CHECKPOINT_MAGIC, CHECKPOINT_VERSION):
        raise DamagedError(path, 0, f"not a checkpoint of version {CHECKPOINT_VERSION}")
    if len(data) != CHECKPOINT_HEADER.size + length:
        raise DamagedError(path, 12, f"{length} bytes of payload stated, file of {len(data)} bytes")
    if crc32c(data[12:]) != crc:
        raise DamagedError(path, 8, "CRC of the checkpoint")
    try:
        fields = array(msgpack.unpackb(data[CHECKPOINT_HEADER.size :]))
        index, end_position, chain, term, starts, commit_index, state, *more = fields
        (configuration,) = more or (b"",)
        return Checkpoint(
            integer(index, -1),
            integer(end_position),
            integer(chain, high=U32_MAX),
            integer(term),
            tuple(_term_start(pair) for pair in array(starts)),
            integer(commit_index, -1),
            binary(state),
            binary(configuration),
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise DamagedError(path, 16, f"payload of the checkpoint: {error}") from error


def _term_start(pair: object) -> tuple[int, int]:
    term, first_index = array(pair, 2)
    return integer(term), integer(first_index)


class Checkpoints:
    """The checkpoints in a directory, oldest first. One thread at a time."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._kept: dict[int, Checkpoint] = {}
        self._fetched: set[int] = set()  # of which a piece was read since the last save
        self._corrupt: list[str] = []
        self.damage: list[DamagedError] = []

    def load(self) -> list[Checkpoint]:
        """The whole checkpoints, oldest first. :attr:`damage` lists the damaged ones."""
        found = []
        for name in self._fs.list_directory(self._directory):
            digits = name.removeprefix(NAME_PREFIX)
            path = f"{self._directory}/{name}"
            if digits == name:
                continue
            if not digits.isdigit():
                if name.endswith(TEMPORARY_SUFFIX):
                    self._fs.remove(path)  # left by a crash; its save never returned
                continue
            try:
                checkpoint = decode_checkpoint(read_checked_file(self._fs, path), path)
                if checkpoint.index != int(digits):
                    raise DamagedError(path, 16, f"holds the checkpoint of {checkpoint.index}")
            except DamagedError as error:
                self.damage.append(error)
                self._corrupt.append(path)
                continue
            self._keep(checkpoint)
            found.append(checkpoint)
        return found

    @property
    def oldest(self) -> Checkpoint | None:
        """The oldest checkpoint that recovery may need, without its state."""
        needed = sorted(self._kept)[-CHECKPOINTS_KEPT:]
        return self._kept[needed[0]] if needed else None

    @property
    def newest(self) -> Checkpoint | None:
        """The newest checkpoint kept, without its state."""
        return self._kept[max(self._kept)] if self._kept else None

    def save(self, checkpoint: Checkpoint, *, alone: bool = False) -> None:
        """Durably adds the newest checkpoint, then removes all but the newest two whole ones and
        those of which a piece was read since the last save; or adds one that stands ``alone``, and
        removes all others."""
        path = self._path(checkpoint.index)
        name = path.rpartition("/")[2]
        self._remove_old()  # what a fetch has left may be the room that this needs
        try:
            replace_file(self._fs, self._directory, name, encode_checkpoint(checkpoint))
        except OSError:
            self._fetched = set()
            self._discard(path + TEMPORARY_SUFFIX)
            raise
        self._keep(checkpoint)
        if alone:
            self._remove([index for index in self._kept if index != checkpoint.index])
        self._remove_old()
        self._fetched = set()
        for corrupt in self._corrupt:
            if corrupt != path:  # else the new one stands in its place
                self._discard(corrupt)
        self._corrupt = []

    @property
    def indexes(self) -> list[int]:
        """Of the whole checkpoints, oldest first. Any thread."""
        return sorted(self._kept)

    def _remove_old(self) -> None:
        for index in sorted(self._kept)[:-CHECKPOINTS_KEPT]:
            if index not in self._fetched:
                del self._kept[index]
                self._fs.remove(self._path(index))

    def drop_before(self, position: int) -> None:
        """Durably removes the checkpoints whose entries end before ``position``. Who fetches one
        begins again."""
        ended = [each.index for each in self._kept.values() if each.end_position < position]
        self._remove(ended)

    def drop_after(self, index: int) -> None:
        """Durably removes the checkpoints of later entries, the newest first."""
        self._remove([each for each in self._kept if each > index])

    def _remove(self, indexes: list[int]) -> None:
        for index in sorted(indexes, reverse=True):
            del self._kept[index]
            self._fs.remove(self._path(index))
            self._fs.sync_directory(self._directory)

    def read_piece(self, index: int, offset: int, size: int) -> tuple[int, int, bytes]:
        """A piece of the file of a checkpoint: its index, the file's size, the bytes.

        Any thread. An ``index`` of -1 asks for the newest. The index returned is -1 if there is
        none, or no such one any more. Raises :class:`~store.errors.DamagedError` if the disk cannot
        read it.
        """
        checkpoint = self.newest if index == -1 else self._kept.get(index)
        if checkpoint is None:
            return -1, 0, b""
        self._fetched.add(checkpoint.index)
        try:
            file = self._fs.open(self._path(checkpoint.index), writable=False)
        except FileNotFoundError:
            return -1, 0, b""  # newer ones were saved meanwhile
        try:
            return checkpoint.index, file.size(), file.pread(size, offset)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            raise DamagedError(file.path, offset, f"cannot be read: {error}") from error
        finally:
            file.close()

    def _keep(self, checkpoint: Checkpoint) -> None:
        self._kept[checkpoint.index] = replace(checkpoint, state=b"")

    def _path(self, index: int) -> str:
        return f"{self._directory}/{NAME_PREFIX}{index:020d}"

    def _discard(self, path: str) -> None:
        if self._fs.exists(path):
            self._fs.remove(path)
