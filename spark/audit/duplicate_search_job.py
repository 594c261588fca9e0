"""The search for messages that are in the log twice, as a Spark job.

A task searches a slice of the hashes. It reads its part of each file of the key index, so nothing
is shuffled.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from spark.audit.audit import GroupAudit, GroupFinding
from spark.audit.duplicate_search import HASHES, DuplicateSearch
from spark.errors import ReplicaError, last_line
from spark.remote_file_system import open_file_system
from store.verify import FindingKind

MESSAGES_OF_A_SLICE = 1 << 22
SCHEMA = "findings binary"
# A replica with such a finding is not searched.
HINDERING = frozenset(
    {
        FindingKind.ENTRY,
        FindingKind.SEGMENT,
        FindingKind.KEY_INDEX,
        FindingKind.BATCH,
        FindingKind.ENTRY_INDEX,
        FindingKind.CHECKPOINT,
        FindingKind.MARK,
        FindingKind.FORMAT,
    }
)


def find_duplicates(
    session: SparkSession, root: str, groups: Sequence[GroupAudit], reported: Sequence[GroupFinding]
) -> list[GroupFinding]:
    """A finding for each message that is in the log twice.

    Of each group, the replica that knows the most committed entries is searched. Raises
    :class:`~spark.errors.ReplicaError` if all replicas of a group are damaged.
    """
    found: list[GroupFinding] = []
    hindered = {one.finding.replica for one in reported if one.finding.kind in HINDERING}
    for audit in groups:
        replicas = audit.plan.replicas
        fit = [place for place, one in enumerate(replicas) if one.name not in hindered]
        if not fit:
            raise ReplicaError(
                f"{audit.plan.group}: in each replica log or key index are damaged, so that "
                "duplicates cannot be looked for: audit without --duplicates"
            )
        place = max(fit, key=lambda place: replicas[place].known_index)
        messages = sum(result.messages for result in audit.results)
        slices = max(1, -(-messages // MESSAGES_OF_A_SLICE))
        frame = session.range(0, slices, 1, slices)
        try:
            rows = frame.mapInArrow(slice_task(root, audit, place, slices), SCHEMA).collect()
        except PythonException as error:
            raise ReplicaError(f"duplicates could not be looked for: {last_line(error)}") from error
        for row in rows:
            found += [GroupFinding(one, audit.plan.group) for one in pickle.loads(row["findings"])]
    return sorted(found, key=lambda one: (one.finding.index_first or 0, one.finding.position))


def slice_task(
    root: str, audit: GroupAudit, place: int, slices: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    group = audit.plan

    def search(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fs, _ = open_file_system(root)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                low, high = number * HASHES // slices, (number + 1) * HASHES // slices
                findings = DuplicateSearch(fs, group, place).find(low, high)
                yield pa.RecordBatch.from_pydict(
                    {"findings": pa.array([pickle.dumps(findings)], pa.binary())}
                )

    return search
