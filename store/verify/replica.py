"""The check of one replica: one pass over its log, with everything derived checked on the way."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import msgpack

from store.batch import Batch, decode_batch
from store.entry import Entry, EntryKind
from store.errors import CorruptBatchError
from store.filesystem import Bytes, FileSystem
from store.formatfile import Identity
from store.verify.batches import BatchMismatchError, check_batch
from store.verify.entryindex import EntryIndexCheck
from store.verify.findings import Finding, FindingKind, FindingLog
from store.verify.keys import KeyCheck
from store.verify.log import LogWalk
from store.verify.queues import QueueCheck
from store.verify.state import read_state

LEADER_FAULT = "the entry is as a leader made it: report it; all replicas should have the same"

DELETE_TOPIC = "delete-topic"
EXPIRE = "expire"


@dataclass(slots=True)
class ReplicaReport:
    """What was checked, and what was found."""

    directory: str
    group: str
    node: str
    segment_size: int = 0
    first_index: int = 0
    last_index: int = -1
    commit_index: int = -1
    end_position: int = 0
    messages: int = 0
    findings: list[Finding] = field(default_factory=list)
    chains: array[int] = field(default_factory=lambda: array("q"), repr=False)
    """By index from ``first_index`` on: the chain CRC of the entry, -1 where it is unreadable."""
    positions: array[int] = field(default_factory=lambda: array("q"), repr=False)
    ends: array[int] = field(default_factory=lambda: array("q"), repr=False)
    """Likewise: where each entry begins and ends."""

    @property
    def name(self) -> str:
        """``group/node``."""
        return f"{self.group}/{self.node}"

    @property
    def known_index(self) -> int:
        """The last entry that this replica has and knows to be committed."""
        return min(self.commit_index, self.last_index)

    def chain(self, index: int) -> int | None:
        """The chain CRC of a committed entry; ``None`` where this replica cannot tell it."""
        if not self.first_index <= index <= self.known_index:
            return None
        crc = self.chains[index - self.first_index]
        return None if crc < 0 else crc

    def to_json(self) -> dict[str, object]:
        """All but the findings and the chains."""
        return {
            "replica": self.name,
            "directory": self.directory,
            "first_index": self.first_index,
            "last_index": self.last_index,
            "commit_index": self.commit_index,
            "end_position": self.end_position,
            "messages": self.messages,
            "findings": len(self.findings),
        }


class ReplicaCheck:
    """See the module. The directory must be locked, and its identity known."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        identity: Identity,
        progress: Callable[[int], None],
    ) -> None:
        self._report = ReplicaReport(
            directory, identity.group, identity.node, identity.segment_size
        )
        self._log = FindingLog(self._report.name)
        self._report.findings = self._log.findings
        self._state = state = read_state(fs, directory, identity, self._log)
        self._walk = LogWalk(fs, directory, state, self._log, progress)
        checkpoint, machine = state.checkpoint, state.machine
        self._covered_index = -1 if checkpoint is None else checkpoint.index
        self._index = EntryIndexCheck(fs, directory, self._covered_index + 1, self._log)
        self._queues = QueueCheck(
            fs,
            directory,
            [] if machine is None else machine.queues,
            self._log,
            checkpoint_path=state.checkpoint_path,
            segment_path=self._walk.segment_path,
            expired_position=0 if machine is None else machine.expired_position,
            first_position=state.mark.first_position,
        )
        self._keys = KeyCheck(
            fs,
            directory,
            self._log,
            first_position=state.mark.first_position,
            end_position=0 if checkpoint is None else checkpoint.end_position,
            lost=self._walk.lost,
        )
        self._term_starts: list[tuple[int, int]] = []
        self._last_term = 0

    def run(self) -> ReplicaReport:
        lost = 0
        for entry in self._walk.entries():
            if len(self._walk.lost) != lost:
                lost = len(self._walk.lost)
                self._queues.lose()
            self._take(entry)
        if len(self._walk.lost) != lost:
            self._queues.lose()
        self._index.finish()
        if self._state.machine is not None or self._state.checkpoint is None:
            self._queues.finish(max(self._walk.end_position, self._state.durable_position))
            self._keys.finish()
        self._check_ends()
        report, walk = self._report, self._walk
        report.first_index, report.last_index = walk.first_index, walk.last_index
        report.commit_index = self._state.commit_index
        report.end_position = walk.end_position
        report.chains, report.positions, report.ends = walk.chains, walk.positions, walk.ends
        return report

    # --- one entry

    def _take(self, entry: Entry) -> None:
        if entry.term != self._last_term:
            self._term_starts.append((entry.term, entry.index))
            self._last_term = entry.term
        self._index.take(entry)
        self._check_named(entry)
        if entry.kind is not EntryKind.DATA:
            return
        try:
            batch = decode_batch(entry.body)
            # Readable or not, what the entry's rows say is what was put into the files.
            self._take_batch(entry, batch)
            check_batch(entry, batch)
        except CorruptBatchError as error:
            self._queues.lose()
            self._tell_batch(entry, 0, expected="a batch", found=error)
        except BatchMismatchError as error:
            expected = f"{error.what} {error.expected}"
            self._tell_batch(entry, error.byte, expected=expected, found=error.found)

    def _take_batch(self, entry: Entry, batch: Batch) -> None:
        covered = entry.index <= self._covered_index
        self._report.messages += sum(run.count for run in batch.runs)
        self._queues.take(entry, batch, covered=covered)
        if covered:
            self._keys.take(entry, batch)
        for command in _file_commands(batch.commands):
            match command:
                case [str(name), str(topic), *_] if name == DELETE_TOPIC:
                    self._queues.empty(topic, covered=covered)
                case [str(name), int(position)] if name == EXPIRE:
                    self._keys.expired_position = max(self._keys.expired_position, position)

    def _tell_batch(self, entry: Entry, byte: int, *, expected: object, found: object) -> None:
        path, start = self._walk.segment_path(entry.position)
        self._log.add(
            FindingKind.BATCH,
            path,
            start + byte,
            expected=expected,
            found=found,
            advice=LEADER_FAULT,
            first=entry.index,
        )

    # --- what the small files say about entries

    def _check_named(self, entry: Entry) -> None:
        """Mark, checkpoint and manifest name an entry each: it must be the one in the log."""
        state = self._state
        found = (entry.end, entry.chain_crc)
        mark, checkpoint, manifest = state.mark, state.checkpoint, state.manifest
        if entry.index == mark.index:
            self._check_name(
                FindingKind.MARK, state.mark_path, entry, (mark.position, mark.chain_crc), found
            )
        if checkpoint is not None and entry.index == checkpoint.index:
            named = (checkpoint.end_position, checkpoint.chain_crc)
            path = state.checkpoint_path
            self._check_name(FindingKind.CHECKPOINT, path, entry, named, found)
            self._check_terms(entry)
        if manifest is not None and entry.index == manifest.commit_index:
            named = (manifest.end_position, manifest.chain_crc)
            self._check_name(FindingKind.FORMAT, state.manifest_path, entry, named, found)

    def _check_name(
        self,
        kind: FindingKind,
        path: str,
        entry: Entry,
        named: tuple[int, int],
        found: tuple[int, int],
    ) -> None:
        if named != found:
            self._log.add(
                kind,
                path,
                0,
                expected=f"entry {entry.index} to end at {found[0]} with chain {found[1]:08x}",
                found=f"{named[0]} and {named[1]:08x}",
                first=entry.index,
            )

    def _check_terms(self, entry: Entry) -> None:
        """The checkpoint's term starts must be those of the log, as far as it is kept."""
        checkpoint = self._state.checkpoint
        if checkpoint is None or self._walk.lost:
            return
        first = self._walk.first_index
        named = [start for start in checkpoint.term_starts if start[1] > first]
        found = [start for start in self._term_starts if start[1] > first]
        if named != found or checkpoint.term != entry.term:
            self._log.add(
                FindingKind.CHECKPOINT,
                self._state.checkpoint_path,
                16,
                expected=f"term {entry.term} and term starts {found}",
                found=f"term {checkpoint.term} and term starts {named}",
                first=entry.index,
            )

    def _check_ends(self) -> None:
        state = self._state
        if self._last_term > state.hard_state.term and not any(
            finding.kind is FindingKind.VOTE for finding in self._log.findings
        ):
            self._log.add(
                FindingKind.VOTE,
                state.vote_path,
                0,
                expected=f"at least the log's last term, {self._last_term}",
                found=f"term {state.hard_state.term}",
                first=self._walk.last_index,
            )


def _file_commands(commands: Bytes) -> list[object]:
    """The commands of a batch; of them the store knows those that concern its files."""
    if not len(commands):
        return []
    try:
        arrays = msgpack.unpackb(commands)
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptBatchError(f"the commands are not MessagePack: {error}") from error
    if not isinstance(arrays, list):
        raise CorruptBatchError(f"the commands are no array: {arrays!r}")
    return arrays
