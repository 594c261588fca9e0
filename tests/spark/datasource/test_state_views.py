"""The views of the broker's state, comments of columns, and what users do with tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation has it
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from broker.state.broker_state import BrokerState
from broker.topics_and_groups import GroupConfig
from spark.datasource.options import View
from spark.datasource.schemas import COLUMNS
from spark.datasource.snapshots import find_snapshots
from spark.datasource.state_views import state_rows
from spark.errors import ReplicaError
from tests.spark.conftest import ROOT
from tests.spark.snapshots import ENTRIES, STATE, TIME_MS, copy_out, write_group
from tests.store.sample_replica import Replica
from tests.store.small_logs import simulated

NAME = "broker-a/n1"
LAST = ENTRIES - 1
NAMELESS = GroupConfig(1)  # type: ignore[arg-type]  # refused below


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snapshots with :data:`STATE` in their checkpoints."""
    root = tmp_path_factory.mktemp("views")
    write_group(root, broker=STATE)
    return root


def load(session: SparkSession, path: Path, view: View) -> DataFrame:
    options = {"view": view.value, "replica": "n1"}
    return session.read.format("dledger").options(**options).load(str(path))


def test_the_views_of_the_state_have_what_the_broker_had(
    session: SparkSession, group: Path
) -> None:
    expected: dict[View, list[tuple[object, ...]]] = {
        View.TOPICS: [("bills", 2, 2, 6, 0, True), ("orders", 1, 1, 6, 0, False)],
        View.GROUPS: [("readers", True, True, True, 1, 3, 0, 1, True)],
        View.OFFSETS: [
            ("readers", "bills", 0, 14, 0, 14),
            ("readers", "bills", 1, 5, 0, 15),
            ("readers", "orders", 0, 50, 0, 58),
        ],
    }
    for view, rows in expected.items():
        found = load(session, group, view)
        whole = [(NAME, LAST, *row) for row in rows]
        assertDataFrameEqual(found, session.createDataFrame(whole, found.schema))
    found = load(session, group, View.TRANSACTIONS).select(
        "half_offset",
        "position",
        "producer_group",
        F.unix_millis("store_timestamp"),
        "immunity_ms",
        "checks",
        F.unix_millis("checked_timestamp"),
    )
    assert found.collect() == [(7, 4711, "payers", TIME_MS, None, 1, TIME_MS + 60)]


def test_the_example_of_the_lag_counts_what_a_group_has_not_consumed(
    session: SparkSession, group: Path
) -> None:
    document = Path(ROOT, "docs/spark.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(# The lag.*?)```", document, re.DOTALL)
    assert found is not None
    names = {"session": session, "path": str(group)}
    exec(found[1], names)  # noqa: S102 - the example of the documentation
    lag = names["lag"]
    assert isinstance(lag, DataFrame)
    rows = {(row["topic"], row["queue_id"]): (row["lag"], row["oldest"]) for row in lag.collect()}
    assert {key: count for key, (count, _) in rows.items()} == {
        ("orders", 0): 8,
        ("bills", 0): 0,
        ("bills", 1): 10,
    }
    assert rows["bills", 0][1] is None
    assert rows["bills", 1][1] is not None


def test_describe_says_what_each_column_is(session: SparkSession, group: Path) -> None:
    load(session, group, View.OFFSETS).createOrReplaceTempView("offsets_of_n1")
    described = session.sql("describe offsets_of_n1").collect()
    assert [row["col_name"] for row in described] == [name for name, _ in COLUMNS[View.OFFSETS]]
    assert all(row["comment"] for row in described)
    for view in View:
        schema = load(session, group, view).schema
        assert all(column.metadata["comment"] for column in schema), view


def test_what_is_written_as_parquet_is_read_back_the_same(
    session: SparkSession, group: Path, tmp_path: Path
) -> None:
    for view in (View.MESSAGES, View.TRANSACTIONS):
        found = load(session, group, view)
        found.write.parquet(str(tmp_path / view))
        again = session.read.parquet(str(tmp_path / view))
        assertSchemaEqual(again.schema, found.schema)
        assert [one.metadata for one in again.schema] == [one.metadata for one in found.schema]
        assertDataFrameEqual(again, found)


@pytest.mark.parametrize(
    ("broker", "what"),
    [
        (b"no broker's", "the broker state cannot be read"),
        (BrokerState(groups={"readers": NAMELESS}).to_bytes(), "1 is no string"),
    ],
)
def test_a_state_that_is_no_brokers_is_refused_with_its_file(
    tmp_path: Path, broker: bytes, what: str
) -> None:
    fs = simulated()
    replica = Replica(fs)
    replica.broker_bytes = broker
    replica.no_op()
    replica.checkpoint()
    for _ in replica.store.begin_snapshot("/snap", TIME_MS).steps():
        pass
    replica.close()
    copy_out(fs, "/snap", tmp_path / "n0")
    (snapshot,) = find_snapshots([str(tmp_path)])
    with pytest.raises(ReplicaError, match=rf"n0/state/checkpoint-0+, byte 16: .*{what}"):
        list(state_rows(snapshot, View.GROUPS))
