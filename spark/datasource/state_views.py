"""The views of the broker's state: ``topics``, ``groups``, ``offsets`` and ``transactions``.

The checkpoint of a snapshot has the state after its last entry. The state is small compared with
the log: one task reads a whole view of one replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from spark.datasource.options import View
from spark.datasource.schemas import COLUMNS
from spark.datasource.snapshot_state import SnapshotState, snapshot_state
from spark.datasource.snapshots import Snapshot
from spark.datasource.view_rows import to_datetime
from spark.errors import ReplicaError
from store.field_checks import array
from store.verify.state.broker_state import BrokerTables

_TYPES: dict[str, type] = {"string": str, "boolean": bool, "timestamp": datetime}
_LIMITS = {"int": 1 << 31, "bigint": 1 << 63}


def state_rows(snapshot: Snapshot, view: View) -> Iterator[tuple[Any, ...]]:
    """Rows of the view, in the order of their names.

    Raises :class:`~spark.errors.ReplicaError` with the checkpoint's file if that has no broker
    state.
    """
    found = snapshot_state(snapshot)
    if found is None:
        return
    try:
        tables = BrokerTables.decode(found.machine.broker)
    except ValueError as error:
        raise ReplicaError(
            f"{found.path}, byte 16: the broker state cannot be read: {error}"
        ) from error
    kinds = [kind for _, kind in COLUMNS[view]][2:]
    try:
        rows = [array(list(row), len(kinds)) for row in _VIEWS[view](tables, found)]
    except (TypeError, ValueError) as error:
        raise ReplicaError(f"{found.path}, byte 16: {view}: {error}") from error
    for values in rows:
        for value, kind in zip(values, kinds, strict=True):
            if not _fits(value, kind):
                raise ReplicaError(f"{found.path}, byte 16: {view}: {value!r} is no {kind}")
        yield snapshot.name, found.index, *values


def _fits(value: object, kind: str) -> bool:
    if value is None:
        return True
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind])
    limit = _LIMITS[kind]
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def _topics(tables: BrokerTables, _found: SnapshotState) -> Iterator[Sequence[Any]]:
    for _, topic in sorted(tables.topics.items()):
        yield topic


def _groups(tables: BrokerTables, _found: SnapshotState) -> Iterator[Sequence[Any]]:
    for _, group in sorted(tables.groups.items()):
        yield group


def _offsets(tables: BrokerTables, found: SnapshotState) -> Iterator[Sequence[Any]]:
    ends = {(queue.topic, queue.queue_id): queue[2:] for queue in found.machine.queues}
    for (group, topic), queues in sorted(tables.offsets.items()):
        for queue_id, offset in sorted(queues.items()):
            yield group, topic, queue_id, offset, *ends.get((topic, queue_id), (None, None))


def _transactions(tables: BrokerTables, _found: SnapshotState) -> Iterator[Sequence[Any]]:
    for offset, (
        position,
        group,
        stored_ms,
        immunity_ms,
        checks,
        checked_ms,
    ) in tables.transactions.items():
        yield (
            offset,
            position,
            group,
            to_datetime(stored_ms),
            immunity_ms if immunity_ms >= 0 else None,
            checks,
            to_datetime(checked_ms) if checked_ms else None,
        )


_VIEWS = {
    View.TOPICS: _topics,
    View.GROUPS: _groups,
    View.OFFSETS: _offsets,
    View.TRANSACTIONS: _transactions,
}
STATE_VIEWS = frozenset(_VIEWS)
