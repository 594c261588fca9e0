"""The check of the broker's state in each checkpoint: the log is replayed and compared."""

from __future__ import annotations

from collections.abc import Sequence

from store.errors import DamagedError, DataFormatError
from store.io.filesystem import ReadableFileSystem
from store.state.checkpoint import CHECKPOINT_HEADER, Checkpoint, encode_checkpoint
from store.state.machine_state import MachineState, decode_machine_state, encode_machine_state
from store.verify.files.small_files import read_checkpoint, read_head
from store.verify.findings import FindingKind, FindingLog
from store.verify.plan.ranges import ReplicaRange
from store.verify.state.broker_state import BrokerTables, decode_fields, first_difference, same
from store.verify.state.state_files import StateFiles


def check_broker(
    fs: ReadableFileSystem, state: StateFiles, parts: Sequence[ReplicaRange], log: FindingLog
) -> set[int]:
    """Replays the log from entry 0, or from the oldest checkpoint if entry 0 has expired.

    Returns the entries of the checkpoints whose broker state follows from the log alone. ``parts``:
    the ranges of the replica, in order. No range goes beyond a checkpoint. Behind lost entries and
    behind commands of a later version, the state is unknown.
    """
    tables = BrokerTables() if state.mark.first_index == 0 else None
    is_proved = tables is not None
    right: set[int] = set()
    behind = -1
    for saved in state.checkpoints:
        path, index = saved.path, saved.index
        found = _read_broker(fs, path, index, log)
        if found is None:
            continue
        if tables is not None:
            # Ranges behind the newest checkpoint have no state. Their entries may be lost.
            covered = [part for part in parts if part.state is not None]
            between = [part for part in covered if behind < part.last_index <= index]
            reaches = bool(between) and between[-1].last_index == index
            if not reaches or not _apply(tables, between):
                tables = None
        if tables is None:
            is_proved = False
            tables = _decode(found, path, index, log)
            if index + 1 < state.mark.first_index:
                tables = None  # entries between the checkpoint and the log are missing
        elif _compare(tables, found, path, index, log) and is_proved:
            right.add(index)
        behind = index
    return right


def _read_broker(fs: ReadableFileSystem, path: str, index: int, log: FindingLog) -> bytes | None:
    """The broker's state in a checkpoint; ``None`` if there is none or it cannot be read."""
    try:
        checkpoint = read_checkpoint(fs, path)
        machine = decode_machine_state(checkpoint.state)
    except (DamagedError, DataFormatError, FileNotFoundError):
        return None
    _check_encoding(fs, path, checkpoint, machine, log)
    if not machine.broker and not machine.segment_times:
        return None
    try:
        decode_fields(machine.broker)
    except ValueError as error:
        _report(log, path, index, "the state of a broker", str(error))
        return None
    return machine.broker


def _apply(tables: BrokerTables, parts: Sequence[ReplicaRange]) -> bool:
    """Replays ranges. ``False`` if their effects are not fully known."""
    for part in parts:
        if part.state is None or part.state.lost:
            return False
        try:
            tables.apply(part.state.effects, part.state.last_ms)
        except ValueError:
            return False
    return True


def _decode(found: bytes, path: str, index: int, log: FindingLog) -> BrokerTables | None:
    try:
        tables = BrokerTables.decode(found)
        if not same(tables.fields(), decode_fields(found)):
            raise ValueError("parts that no state has, or that are not in order")
    except (ValueError, TypeError) as error:
        _report(log, path, index, "the state of a broker", str(error))
        return None
    return tables


def _compare(tables: BrokerTables, found: bytes, path: str, index: int, log: FindingLog) -> bool:
    """Whether the state is as replayed. Reports the first difference."""
    expected, fields = tables.fields(), decode_fields(found)
    if same(expected, fields):
        return True
    name, right, wrong = first_difference(expected, fields)
    _report(log, path, index, f"as {name} of the broker, as the log makes it: {right}", wrong)
    return False


def _report(log: FindingLog, path: str, index: int, expected: str, found: str) -> None:
    log.add(FindingKind.CHECKPOINT, path, 16, expected, found, first=index)


def _check_encoding(
    fs: ReadableFileSystem,
    path: str,
    checkpoint: Checkpoint,
    machine: MachineState,
    log: FindingLog,
) -> None:
    """Checks the encoding: equal states must have equal bytes, so there is only one.

    Fields have their shortest form, and queues are in order. The CRC in the header covers the whole
    payload.
    """
    keys = [each[:2] for each in machine.queues]
    right = encode_checkpoint(checkpoint)[: CHECKPOINT_HEADER.size]
    if (
        encode_machine_state(machine) != checkpoint.state
        or keys != sorted(set(keys))
        or read_head(fs, path, CHECKPOINT_HEADER.size) != right
    ):
        found = "other fields, another encoding, or queues that are not in order"
        _report(log, path, checkpoint.index, "the state as a broker writes it", found)
