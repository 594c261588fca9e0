"""Snapshots as tables: what is in them, what is left out, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation has it
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from spark.datasource.options import ReadOptions, View
from spark.datasource.schemas import spark_schema
from store.io.os_filesystem import OsFileSystem
from tests.spark.snapshots import ENTRIES, flip, write_snapshot
from tests.store.sample_replica import message


def load(session: SparkSession, path: Path | str, **options: object) -> DataFrame:
    return session.read.format("dledger").options(**options).load(str(path))  # type: ignore[arg-type]  # options of any type


def segments(replica: Path) -> list[Path]:
    return sorted((replica / "commitlog").iterdir())


def test_messages_are_those_that_were_sent(session: SparkSession, group: Path) -> None:
    found = load(session, group, view="messages", replica="n1", topic="orders", bodies="true")
    shown = found.where("index <= 2").select(
        "replica", "index", "topic", "queue_id", "queue_offset", "unique_key", "tags", "body"
    )
    rows = [
        ("broker-a/n1", 1, "orders", 0, 0, "u1", "tag1", bytes([1]) * 20),
        ("broker-a/n1", 1, "orders", 0, 1, "u1001", "tag2", bytes([1001 % 251]) * 20),
        ("broker-a/n1", 2, "orders", 0, 2, "u2", "tag2", bytes([2]) * 20),
        ("broker-a/n1", 2, "orders", 0, 3, "u1002", "tag0", bytes([1002 % 251]) * 20),
    ]
    assert bytes(message(2).body) == bytes([2]) * 20
    assertDataFrameEqual(shown, session.createDataFrame(rows, shown.schema))
    assertSchemaEqual(
        found.schema,
        session.createDataFrame([], spark_schema(ReadOptions(View.MESSAGES, bodies=True))).schema,
    )
    times = found.select(F.unix_millis("born_timestamp"), F.unix_millis("store_timestamp"))
    assert times.first() == (1_700_000_000_000, 1_700_000_000_001)


def test_columns_that_are_named_are_those_of_all(session: SparkSession, group: Path) -> None:
    whole = load(session, group, view="messages", bodies="true")
    named = "properties,queue_offset,body,born_timestamp,topic"
    some = load(session, group, view="messages", columns=named)
    assert ",".join(some.columns) == named
    # Maps cannot be compared as they are.
    maps = F.to_json("properties").alias("properties")
    others = ["queue_offset", "body", "born_timestamp", "topic"]
    assertDataFrameEqual(some.select(maps, *others), whole.select(maps, *others))
    rows = load(session, group, view="consumequeue", columns="path, tags_code", topic="bills")
    assert rows.columns == ["path", "tags_code"]
    assert "has no column offset" in refusal(session, group, view="messages", columns="offset")


def test_each_segment_is_read_by_many_tasks_and_each_entry_once(
    session: SparkSession, group: Path
) -> None:
    found = load(session, group, view="entries", rangeBytes=4000)
    tasks = found.select(F.spark_partition_id()).distinct().count()
    assert tasks > 3 * len(segments(group / "broker-a" / "n0"))
    counts = (
        found.where("body_crc_ok")
        .groupBy("replica")
        .agg(F.count("index"), F.count_distinct("index"), F.min("index"), F.max("index"))
    )
    rows = [(f"broker-a/n{node}", ENTRIES, ENTRIES, 0, ENTRIES - 1) for node in range(3)]
    assertDataFrameEqual(counts, session.createDataFrame(rows, counts.schema))


def test_consume_queues_point_at_the_messages(session: SparkSession, group: Path) -> None:
    rows = load(session, group, view="consumequeue")
    messages = load(session, group, view="messages")
    columns = ["replica", "topic", "queue_id", "queue_offset", "position", "size"]
    assertDataFrameEqual(rows.select(columns), messages.select(columns))


def test_the_entry_index_points_at_the_entries(session: SparkSession, group: Path) -> None:
    columns = ["replica", "index", "term", "kind", "position", "size"]
    entries, rows = (load(session, group, view=view) for view in ("entries", "index"))
    assertDataFrameEqual(rows.select(columns), entries.select(columns))


def test_the_key_index_has_a_row_for_each_key_of_a_message(
    session: SparkSession, group: Path
) -> None:
    rows = load(session, group, view="keyindex", replica="n0")
    # A unique key, k<number> and "all".
    assert rows.count() == 3 * 3 * (ENTRIES - 1)


def test_a_range_of_entries_is_inclusive_at_both_ends(session: SparkSession, group: Path) -> None:
    found = load(session, group, replica="n0", fromIndex=3, toIndex=5).select("index")
    assertDataFrameEqual(found, session.createDataFrame([(3,), (4,), (5,)], found.schema))


@pytest.fixture(params=["true", "false"])
def pushdown(session: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """The option, with Spark's setting that hands filters to sources written in Python."""
    setting = "spark.sql.python.filterPushdown.enabled"
    session.conf.set(setting, "true")
    try:
        yield request.param
    finally:
        session.conf.unset(setting)


def test_options_narrow_what_is_read_and_filters_what_is_shown(
    session: SparkSession, group: Path, pushdown: str
) -> None:
    options = {"view": "messages", "pushdown": pushdown}
    narrow = load(
        session, group, **options, replica="n2", fromIndex=4, toIndex=5, topic="bills"
    ).select("replica", "index", "topic")
    rows = [("broker-a/n2", 4, "bills"), ("broker-a/n2", 5, "bills")]
    assert narrow.rdd.getNumPartitions() == 1
    assertDataFrameEqual(narrow, session.createDataFrame(rows, narrow.schema))
    wide = load(session, group, **options).where(
        "replica = 'broker-a/n2' and index >= 4 and index < 6 and topic = 'bills'"
    )
    assertDataFrameEqual(wide.select("replica", "index", "topic"), narrow)


def test_no_query_narrows_another_of_the_same_data(
    session: SparkSession, group: Path, pushdown: str
) -> None:
    one = "replica = 'broker-a/n1'"
    found = load(session, group, pushdown=pushdown)
    assert found.count() == 3 * ENTRIES
    assert found.where(one).count() == ENTRIES
    assert found.count() == 3 * ENTRIES
    assert found.where("index < 5").count() == 15
    assert found.where("replica in ('broker-a/n0', 'broker-a/n2')").count() == 2 * ENTRIES
    assert found.where("index = 29 or index = 0").count() == 6
    assert found.where("replica = 'broker-a/nobody'").count() == 0
    found.createOrReplaceTempView("entries_of_all")
    assert session.sql(f"select count(*) from entries_of_all where {one}").first() == (ENTRIES,)
    assert session.sql("select count(*) from entries_of_all").first() == (3 * ENTRIES,)
    few = found.where("index >= 3 and index <= 7")
    assert few.union(found.where("index = 20")).union(found).count() == 15 + 3 + 3 * ENTRIES
    assert few.unionByName(few.where(one)).count() == 15 + 5
    n0, n1 = (found.where(f"replica = 'broker-a/{node}'") for node in ("n0", "n1"))
    assert n0.join(n1, "index").count() == ENTRIES
    assert n0.where("index < 10").join(n1.where("index >= 5"), "index").count() == 5
    assert found.join(n0, "index", "left_anti").count() == 0
    assert found.join(n0.where("index < 10"), "index", "left_anti").count() == 3 * (ENTRIES - 10)
    assert n0.selectExpr("index as one").crossJoin(n1.where("index = 2")).count() == ENTRIES


def test_a_cached_plan_holds_what_its_own_query_wanted(
    session: SparkSession, group: Path, pushdown: str
) -> None:
    found = load(session, group, pushdown=pushdown)
    kept = found.where("index < 4").cache()
    try:
        assert kept.count() == 12
        assert found.count() == 3 * ENTRIES
        assert found.where("index >= 4").count() == 3 * (ENTRIES - 4)
        assert kept.where("replica = 'broker-a/n0'").count() == 4
        assert kept.count() == 12
    finally:
        kept.unpersist()


def test_a_prepared_query_is_not_narrowed_by_one_prepared_behind_it(
    session: SparkSession, group: Path, pushdown: str
) -> None:
    found = load(session, group, view="messages", pushdown=pushdown)
    wide = found.where("index >= 1")
    narrow = found.where("topic = 'bills' and index = 7")
    for query in (wide, narrow):
        assert "Scan" in query._jdf.queryExecution().executedPlan().toString()
    assert narrow.count() == 3
    assert wide.count() == 3 * 3 * (ENTRIES - 1)


def test_a_filtered_stream_narrows_no_table(
    session: SparkSession, group: Path, tmp_path: Path, pushdown: str
) -> None:
    seen: list[int] = []
    stream = session.readStream.format("dledger").option("pushdown", pushdown).load(str(group))

    def note(batch: DataFrame, _number: int) -> None:
        seen.append(batch.count())
        seen.append(batch.where("index < 2").count())
        seen.append(batch.count())

    stream.where("replica = 'broker-a/n1'").writeStream.option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).foreachBatch(note).trigger(availableNow=True).start().awaitTermination()
    assert seen == [ENTRIES, 2, ENTRIES]
    assert load(session, group, pushdown=pushdown).count() == 3 * ENTRIES


def test_a_url_that_fsspec_opens_is_read_as_a_path_is(session: SparkSession, group: Path) -> None:
    local = load(session, group / "broker-a", replica="n0")
    url = load(session, f"local://{group}/broker-a", replica="n0")
    assertDataFrameEqual(url.drop("path"), local.drop("path"))


def test_a_stream_goes_on_where_it_stopped(session: SparkSession, tmp_path: Path) -> None:
    root, state = tmp_path / "snapshots", tmp_path / "checkpoint"
    seen: list[tuple[int, list[int]]] = []

    def note(batch: DataFrame, number: int) -> None:
        seen.append((number, sorted(row["index"] for row in batch.select("index").collect())))

    def run() -> None:
        stream = session.readStream.format("dledger").load(str(root)).writeStream
        stream.option("checkpointLocation", str(state)).foreachBatch(note).trigger(
            availableNow=True
        ).start().awaitTermination()

    write_snapshot(root / "monday", "n0", entries=10)
    run()
    tuesday = write_snapshot(root / "tuesday", "n0", entries=14)
    run()
    run()
    assert [indexes for _, indexes in seen if indexes] == [[*range(10)], [*range(10, 14)]]
    # The newest snapshot is deleted, and one is being made.
    shutil.rmtree(tuesday)
    wednesday = write_snapshot(root / "wednesday", "n0", entries=16)
    manifest = (wednesday / "manifest.json").rename(tmp_path / "manifest.json")
    run()
    assert len([indexes for _, indexes in seen if indexes]) == 2
    manifest.rename(wednesday / "manifest.json")
    run()
    assert [indexes for _, indexes in seen if indexes][2:] == [[14, 15]]


@pytest.fixture
def replica(group: Path, tmp_path: Path) -> Path:
    """One snapshot, to be damaged."""
    return Path(shutil.copytree(group / "broker-a" / "n0", tmp_path / "n0"))


def refusal(session: SparkSession, path: Path | str, **options: object) -> str:
    with pytest.raises(PySparkException) as caught:
        load(session, path, **options).collect()
    return str(caught.value)


def test_what_is_no_snapshot_is_refused_by_name(session: SparkSession, replica: Path) -> None:
    assert f"{replica}/none: no such directory" in refusal(session, replica / "none")
    assert "unknown option veiw" in refusal(session, replica, veiw="entries")
    assert "option replica=n7" in refusal(session, replica, replica="n7")
    (replica / "manifest.json").unlink()
    assert f"{replica}/manifest.json: missing" in refusal(session, replica)


def test_a_truncated_segment_is_named_with_the_byte(session: SparkSession, replica: Path) -> None:
    path = segments(replica)[0]
    OsFileSystem().open(str(path)).truncate(1000)
    assert f"{path}, byte 907: entry 2 has" in refusal(session, replica, view="messages")


def test_a_damaged_body_is_marked_in_entries_and_refused_in_messages(
    session: SparkSession, replica: Path
) -> None:
    flip(segments(replica)[0], 300)
    wrong = load(session, replica).where("not body_crc_ok").select("index")
    assertDataFrameEqual(wrong, session.createDataFrame([(1,)], wrong.schema))
    assert f"{segments(replica)[0]}, byte 96" in refusal(session, replica, view="messages")
