"""Looks for a list of acknowledged messages in the log.

The list has a JSON object for each message, one a line or all in one JSON array. ``msg_id`` is
RocketMQ's: address and port of the broker, then the position in the log, in hexadecimal. Optional
fields are ``queue_id``, ``queue_offset`` and ``broker`` (from ``dledger produce --json``), and
``topic`` and ``unique_key`` (from ``dledger consume --json`` and ``dledger message``). A line
that is no object is only a ``msg_id``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from spark.audit.audit import GroupAudit, GroupFinding
from spark.audit.log_records import LogRecords
from spark.errors import ReplicaError
from spark.remote_file_system import open_file_system
from store.errors import CorruptRecordError, DamagedError, DataFormatError
from store.io.filesystem import FileSystem
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import MessageRecord
from store.verify import Finding, FindingKind, GroupPlan
from store.verify.files.audit_files import AuditFiles
from store.verify.findings import FindingLog
from store.verify.plan.ranges import ReplicaPlan
from store.verify.state.state_reader import read_state

# Hosts have 4 or 16 bytes; the port has 4 and the position 8.
_ID_DIGITS = (32, 56)
_POSITION_DIGITS = 16
_TEXTS = ("broker", "topic", "unique_key")
_NUMBERS = ("queue_id", "queue_offset")
LOST = "the message is lost unless the list is newer than the snapshot: report it"
UNREAD = "whether the message is there is unknown: make the file readable, and audit again"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One acknowledged message, as the broker answered. ``None``: unknown."""

    msg_id: str
    group: str | None
    queue_id: int | None = None
    queue_offset: int | None = None
    topic: str | None = None
    unique_key: str | None = None

    @property
    def position(self) -> int:
        return int(self.msg_id[-_POSITION_DIGITS:], 16)

    def fits(self, record: MessageRecord) -> bool:
        """Whether a record has the known fields of the message."""
        unique = find_property(record.properties, UNIQUE_KEY) or b""
        return record.position == self.position and all(
            expected is None or expected == found
            for expected, found in (
                (self.queue_id, record.queue_id),
                (self.queue_offset, record.queue_offset),
                (self.topic, record.topic),
                (self.unique_key, unique.decode(errors="replace")),
            )
        )

    def __str__(self) -> str:
        queue = "" if self.queue_id is None else f" of queue {self.queue_id}"
        number = "" if self.queue_offset is None else f", number {self.queue_offset}{queue}"
        return f"the acknowledged message {self.msg_id}{number}"


def read_acknowledged(path: str) -> list[Acknowledged]:
    """The list in a file; ``-`` is standard input.

    Raises :class:`~spark.errors.ReplicaError` with the line that is no message.
    """
    try:
        if path == "-":
            return list(parse_list(sys.stdin.read(), "standard input"))
        with open(path, encoding="utf-8") as file:
            return list(parse_list(file.read(), path))
    except (OSError, UnicodeDecodeError) as error:
        raise ReplicaError(f"{path}: {error}") from error


def parse_list(text: str, name: str) -> Iterator[Acknowledged]:
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ReplicaError(f"{name}: begins as a JSON array and is none: {error}") from error
        for number, one in enumerate(found, 1):
            yield parse_message(one, f"{name}, message {number}")
        return
    # Not splitlines: JSON has separators of other kinds unescaped in its texts.
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{name}, line {number}"
        stripped = line.strip()
        if stripped.startswith("{"):
            try:
                yield parse_message(json.loads(stripped), where)
            except ValueError as error:
                raise ReplicaError(f"{where}: not one JSON object: {error}") from error
        elif stripped:
            yield parse_message({"msg_id": stripped}, where)


def parse_message(found: Any, where: str) -> Acknowledged:
    try:
        group, topic, unique_key = (
            None if found.get(name) is None else str(found[name]) for name in _TEXTS
        )
        queue_id, queue_offset = (
            None if found.get(name) is None else int(found[name]) for name in _NUMBERS
        )
        msg_id = str(found["msg_id"])
        one = Acknowledged(msg_id, group, queue_id, queue_offset, topic, unique_key)
        if len(one.msg_id) not in _ID_DIGITS:
            raise ValueError(f"msg_id {one.msg_id} does not have {_ID_DIGITS[0]} digits")
        int(one.msg_id, 16)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReplicaError(
            f"{where}: not what dledger produce --json prints for a message: {error}"
        ) from error
    return one


def check_acknowledged(
    root: str, groups: Sequence[GroupAudit], listed: Sequence[Acknowledged]
) -> list[GroupFinding]:
    """A finding for each listed message that the committed log does not hold.

    Messages are looked up in the replica that knows the most committed entries, and in the others
    what it does not show. The rest of the audit checks that the replicas are equal.
    """
    fs, _ = open_file_system(root)
    findings: list[GroupFinding] = []
    by_group = {audit.plan.group: audit for audit in groups}
    if len(by_group) == 1:
        listed = [replace(one, group=one.group or next(iter(by_group))) for one in listed]
    nameless = next((one for one in listed if one.group is None), None)
    if nameless is not None:
        raise ReplicaError(
            f"the message {nameless.msg_id} of the list names no broker, and replicas of "
            f"{len(by_group)} groups were given: audit one group at a time"
        )
    for group in sorted({one.group or "" for one in listed}):
        ours = sorted(
            (one for one in listed if one.group == group),
            key=lambda one: (one.position, one.msg_id),
        )
        audit = by_group.get(group)
        if audit is None:
            what = f"the list names the group {group}, of which no replica was given"
            raise ReplicaError(what)
        with closing(CommittedLogs(fs, audit.plan)) as logs:
            for one in ours:
                finding = logs.look_for(one)
                if finding is not None:
                    findings.append(GroupFinding(finding, group, listed=True))
    return findings


class CommittedLogs:
    """The logs of all replicas of a group, first that which knows the most committed entries.

    Raises :class:`~spark.errors.ReplicaError` if that one's state cannot be read.
    """

    def __init__(self, fs: FileSystem, group: GroupPlan) -> None:
        self._fs = fs
        self._group = group
        self._replicas = sorted(group.replicas, key=lambda replica: -replica.known_index)
        self._opened = ExitStack()
        self._first = self._open(self._replicas[0])

    @cached_property
    def _others(self) -> list[CommittedLog]:
        """The logs of the others whose state can be read."""
        logs = []
        for replica in self._replicas[1:]:
            with suppress(ReplicaError):
                logs.append(self._open(replica))
        return logs

    def _open(self, replica: ReplicaPlan) -> CommittedLog:
        return self._opened.enter_context(closing(CommittedLog(self._fs, self._group, replica)))

    def look_for(self, one: Acknowledged) -> Finding | None:
        """What is wrong with a message; ``None`` if a log holds it, or it has expired.

        It is unread, and not lost, if no log shows what is in its place.
        """
        wrong = self._first.mismatch(one)
        if wrong is None:
            return None
        log = self._first
        for other in self._others:
            if not other.covers(one):
                continue
            told = other.mismatch(one)
            if told is None:
                return None
            if wrong.unread and not told.unread:
                log, wrong = other, told
        return log.finding(one, wrong)

    def close(self) -> None:
        """Closes the files that are open."""
        self._opened.close()


class Mismatch(NamedTuple):
    """What is in the place of a message. ``unread``: a file could not be read there."""

    found: str
    unread: bool = False


class CommittedLog:
    """The committed log of one replica.

    Raises :class:`~spark.errors.ReplicaError` if the replica's state cannot be read.
    """

    def __init__(self, fs: FileSystem, group: GroupPlan, replica: ReplicaPlan) -> None:
        self._replica = replica
        try:
            identity = self._replica.identity
            log = FindingLog(self._replica.name)
            state = read_state(fs, self._replica.directory, identity, log)
        except (DamagedError, DataFormatError) as error:
            raise ReplicaError(str(error)) from error
        self._first = state.mark.first_position
        self._end = state.durable_position
        # A file that cannot be read counts as empty.
        self._files = AuditFiles(fs)
        self._records = LogRecords(self._files, self._replica.directory, group.segment_size)

    def close(self) -> None:
        """Closes the file that is open."""
        self._records.close()

    def covers(self, one: Acknowledged) -> bool:
        """Whether the place of the message is in the log."""
        return self._first <= one.position < self._end

    def mismatch(self, one: Acknowledged) -> Mismatch | None:
        """What is in the place of the message. ``None`` if the message is there, or has expired."""
        if one.position < self._first:
            return None
        if one.position >= self._end:
            return Mismatch(f"the end of the committed log at {self._end}")
        try:
            record = self._records.read(one.position)
        except CorruptRecordError as error:
            return Mismatch(f"no message: {error}", self._is_unread(one))
        if record is None:
            return Mismatch("no such segment", self._is_unread(one))
        if one.fits(record):
            return None
        return Mismatch(
            f"message {record.queue_offset} of queue {record.queue_id} of {record.topic} at "
            f"position {record.position}"
        )

    def _is_unread(self, one: Acknowledged) -> bool:
        """Whether the segment of a message, or a directory above it, could not be read."""
        path, _byte = self._records.locate(one.position)
        return any(
            unread and f"{path}/".startswith(f"{failed}/")
            for failed, (_position, _why, unread) in self._files.failures.items()
        )

    def finding(self, one: Acknowledged, wrong: Mismatch) -> Finding:
        path, byte = self._records.locate(one.position)
        advice = UNREAD if wrong.unread else LOST
        log = FindingLog(self._replica.name)
        log.add(FindingKind.ENTRY, path, byte, str(one), wrong.found, advice, unread=wrong.unread)
        return log.findings[0]
