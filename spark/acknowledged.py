"""Is what was acknowledged in the log? The list is what ``dledger produce --json`` printed.

A line is a JSON object with ``msg_id`` (RocketMQ's: address and port of the broker, then the
position in the log, in hexadecimal), ``queue_id``, ``queue_offset`` and ``broker``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark.audit import GroupAudit, Told
from spark.errors import ReplicaError
from spark.filesystems import open_file_system
from store.errors import CorruptRecordError, DamagedError, DataFormatError
from store.filesystem import FileSystem
from store.layout import segment_name, segment_start
from store.record import decode_record
from store.verify import Finding, FindingKind
from store.verify.findings import FindingLog
from store.verify.state import read_state

_HOST_DIGITS = 16
_ID_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One acknowledged message, by where its broker said that it is."""

    msg_id: str
    group: str
    queue_id: int
    queue_offset: int

    @property
    def position(self) -> int:
        return int(self.msg_id[_HOST_DIGITS:], 16)


def read_acknowledged(path: str) -> Iterator[Acknowledged]:
    """Raises :class:`~spark.errors.ReplicaError` naming the line that is none of a message."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield parse_line(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ReplicaError(f"{path}: {error}") from error


def parse_line(line: str, where: str) -> Acknowledged:
    try:
        found = json.loads(line)
        one = Acknowledged(
            str(found["msg_id"]),
            str(found["broker"]),
            int(found["queue_id"]),
            int(found["queue_offset"]),
        )
        if len(one.msg_id) != _ID_DIGITS:
            raise ValueError(f"msg_id {one.msg_id} does not have {_ID_DIGITS} digits")
        int(one.msg_id, 16)
    except (ValueError, KeyError, TypeError) as error:
        raise ReplicaError(
            f"{where}: not what dledger produce --json prints for a message: {error}"
        ) from error
    return one


def check_acknowledged(
    root: str, groups: Sequence[GroupAudit], listed: Sequence[Acknowledged]
) -> list[Told]:
    """A finding for each listed message that the committed log does not hold.

    It is looked up in the replica that knows most of the log; the audit proper tells whether the
    others hold the same.
    """
    fs, _ = open_file_system(root)
    told: list[Told] = []
    by_group = {audit.plan.group: audit for audit in groups}
    for group in sorted({one.group for one in listed}):
        ours = sorted(
            (one for one in listed if one.group == group),
            key=lambda one: (one.position, one.msg_id),
        )
        audit = by_group.get(group)
        if audit is None:
            what = f"the list names the group {group}, of which no replica was given"
            raise ReplicaError(what)
        log = CommittedLog(fs, audit)
        for one in ours:
            found = log.mismatch(one)
            if found is not None:
                told.append(log.tell(one, found))
    return told


class CommittedLog:
    """The replica of a group that knows most of it."""

    def __init__(self, fs: FileSystem, audit: GroupAudit) -> None:
        self._fs = fs
        self._group = audit.plan
        self._replica = max(audit.plan.replicas, key=lambda replica: replica.known_index)
        try:
            identity = self._replica.identity
            log = FindingLog(self._replica.name)
            state = read_state(fs, self._replica.directory, identity, log)
        except (DamagedError, DataFormatError) as error:
            raise ReplicaError(str(error)) from error
        self._first = state.mark.first_position
        self._end = state.durable_position

    def path(self, position: int) -> tuple[str, int]:
        start = segment_start(position, self._group.segment_size)
        return f"{self._replica.directory}/commitlog/{segment_name(start)}", position - start

    def mismatch(self, one: Acknowledged) -> str | None:
        """What is there instead of the message; ``None`` where it is there, or has expired."""
        if one.position < self._first:
            return None
        if one.position >= self._end:
            return f"the end of the committed log at {self._end}"
        path, byte = self.path(one.position)
        try:
            file = self._fs.open(path, writable=False)
        except FileNotFoundError:
            return "no such segment"
        try:
            size = int.from_bytes(file.pread(4, byte), "big")
            record = decode_record(file.pread(min(size, self._group.segment_size), byte))
        except CorruptRecordError as error:
            return f"no message: {error}"
        finally:
            file.close()
        if (record.position, record.queue_id, record.queue_offset) == (
            one.position,
            one.queue_id,
            one.queue_offset,
        ):
            return None
        return (
            f"message {record.queue_offset} of queue {record.queue_id} at position "
            f"{record.position}"
        )

    def tell(self, one: Acknowledged, found: str) -> Told:
        path, byte = self.path(one.position)
        finding = Finding(
            FindingKind.ENTRY,
            self._replica.name,
            None,
            None,
            path,
            byte,
            f"the acknowledged message {one.msg_id}, number {one.queue_offset} of queue "
            f"{one.queue_id}",
            found,
            "the message is lost unless the list is newer than the snapshot: report it",
        )
        return Told(finding, self._group.group, listed=True)
