"""The views of the broker's state: ``topics``, ``groups``, ``offsets`` and ``transactions``.

A snapshot has the state as of its last entry, in its checkpoint. Each view is small beside the log:
one task reads all of it for one replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from broker.state.broker_state import BrokerState
from dledger.errors import InvariantError
from spark.datasource.options import View
from spark.datasource.schemas import COLUMNS
from spark.datasource.snapshot_state import SnapshotState, snapshot_state
from spark.datasource.snapshots import Snapshot
from spark.datasource.view_rows import moment
from spark.errors import ReplicaError

_TYPES: dict[str, type] = {"string": str, "boolean": bool, "timestamp": datetime}
_LIMITS = {"int": 1 << 31, "bigint": 1 << 63}


def state_rows(snapshot: Snapshot, view: View) -> Iterator[tuple[Any, ...]]:
    """Rows of the view, in order of their names.

    Raises :class:`~spark.errors.ReplicaError` naming the checkpoint where it is not a broker's.
    """
    found = snapshot_state(snapshot)
    if found is None:
        return
    try:
        state = BrokerState.from_bytes(found.machine.broker)
    except InvariantError as error:
        raise ReplicaError(f"{found.path}, byte 16: {error}") from error
    kinds = [kind for _, kind in COLUMNS[view]][2:]
    try:
        rows = list(_VIEWS[view](state, found))
    except TypeError as error:
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


def _topics(state: BrokerState, _found: SnapshotState) -> Iterator[tuple[Any, ...]]:
    for _, topic in sorted(state.topics.items()):
        yield (
            topic.name,
            topic.read_queues,
            topic.write_queues,
            topic.perm,
            topic.sys_flag,
            topic.order,
        )


def _groups(state: BrokerState, _found: SnapshotState) -> Iterator[tuple[Any, ...]]:
    for _, group in sorted(state.groups.items()):
        yield (
            group.name,
            group.consume_enable,
            group.consume_from_min_enable,
            group.consume_broadcast_enable,
            group.retry_queues,
            group.retry_max_times,
            group.broker_id,
            group.which_broker_when_slow,
            group.notify_ids_changed,
        )


def _offsets(state: BrokerState, found: SnapshotState) -> Iterator[tuple[Any, ...]]:
    ends = {(queue.topic, queue.queue_id): queue[2:] for queue in found.machine.queues}
    for (group, topic), queues in sorted(state.offsets.items()):
        for queue_id, offset in sorted(queues.items()):
            yield group, topic, queue_id, offset, *ends.get((topic, queue_id), (None, None))


def _transactions(state: BrokerState, _found: SnapshotState) -> Iterator[tuple[Any, ...]]:
    for offset, one in state.transactions.items():
        yield (
            offset,
            one.position,
            one.group,
            moment(one.stored_ms),
            one.immunity_ms if one.immunity_ms >= 0 else None,
            one.checks,
            moment(one.checked_ms) if one.checked_ms else None,
        )


_VIEWS = {
    View.TOPICS: _topics,
    View.GROUPS: _groups,
    View.OFFSETS: _offsets,
    View.TRANSACTIONS: _transactions,
}
STATE_VIEWS = frozenset(_VIEWS)
