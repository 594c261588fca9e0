"""The audit on executors of their own finds what a check without Spark finds, and names it."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from spark.audit.acknowledged_messages import Acknowledged, check_acknowledged, read_acknowledged
from spark.audit.audit import Audit, run_audit, timed_range
from spark.audit.spark_task_runner import SparkRun
from spark.audit.targets import find_targets
from spark.bench.snapshot_data import give_to
from spark.cli import main
from spark.errors import ReplicaError
from spark.report.result_files import FINDINGS, summarize
from store.io.os_filesystem import OsFileSystem
from store.message.batch import QueueRun
from store.verify import FindingKind, verify_replicas
from tests.spark.snapshots import (
    ENTRIES,
    NODES,
    TIME_MS,
    copy_out,
    edit_manifest,
    flip,
    write_snapshot,
)
from tests.store.replica_directories import (
    make_dangling,
    make_loop,
    make_pipe,
    write_format,
    write_manifest,
)
from tests.store.sample_replica import Replica, message
from tests.store.small_logs import simulated

RANGE_BYTES = 4096


@pytest.fixture
def replicas(group: Path, tmp_path: Path) -> list[Path]:
    """Snapshots of three replicas, to be damaged."""
    shutil.copytree(group / "broker-a", tmp_path / "broker-a")
    return [tmp_path / "broker-a" / node for node in NODES]


def audit(session: SparkSession, replicas: list[Path]) -> Audit:
    """The audit, whose findings must be those of the check without Spark."""
    directories = [str(replica) for replica in replicas]
    found = run_audit(session, directories, RANGE_BYTES)
    alone = verify_replicas(OsFileSystem(), directories, range_bytes=RANGE_BYTES).findings
    assert sorted(map(str, alone)) == sorted(str(told.finding) for told in found.findings)
    return found


def segment(replica: Path, number: int) -> Path:
    return sorted((replica / "commitlog").iterdir())[number]


def test_equal_replicas_are_consistent_and_shuffle_nothing(
    session: SparkSession, replicas: list[Path]
) -> None:
    found = audit(session, replicas)
    assert found.findings == []
    (group,) = found.groups
    assert len(group.results) > 3
    assert sum(result.messages for result in group.results) == 3 * (ENTRIES - 1)
    assert {word for result in group.results for word in result.agreement} == {"same"}
    sent = ENTRIES - 1
    assert found.counts.totals() == {"orders": 2 * sent, "bills": sent}
    run = SparkRun(session, str(replicas[0]))
    frame = run.frame(timed_range, [b""], [(0, b"")] * len(group.results))
    assert frame.rdd.getNumPartitions() == len(group.results)
    assert "Exchange" not in frame._jdf.queryExecution().toString()


def test_a_lagging_replica_is_no_finding(
    session: SparkSession, group: Path, tmp_path: Path
) -> None:
    late = write_snapshot(tmp_path, "n1", entries=ENTRIES - 9)
    others = [group / "broker-a" / node for node in ("n0", "n2")]
    found = audit(session, [others[0], late, others[1]])
    assert found.findings == []
    assert found.groups[0].results[-1].agreement == ("same", "behind", "same")


def test_a_flipped_bit_is_named_with_the_majority_against_it(
    session: SparkSession, replicas: list[Path]
) -> None:
    flip(segment(replicas[1], 0), 300)
    (told,) = audit(session, replicas).findings
    assert (told.finding.kind, told.finding.replica) == (FindingKind.ENTRY, "broker-a/n1")
    assert (told.finding.index_first, told.finding.path) == (1, str(segment(replicas[1], 0)))
    assert told.finding.majority == ("broker-a/n0", "broker-a/n2")


def test_another_entry_whose_checksums_are_right_is_a_divergence(
    session: SparkSession, replicas: list[Path], tmp_path: Path
) -> None:
    forked = write_snapshot(tmp_path / "forked", "n2", fork=True)
    (told,) = audit(session, [*replicas[:2], forked]).findings
    assert (told.finding.kind, told.finding.replica) == (FindingKind.DIVERGENCE, "unknown")
    assert told.finding.path.startswith(str(forked))
    assert (told.finding.index_first, told.finding.index_last) == (ENTRIES - 1, ENTRIES - 1)
    assert told.finding.majority == ("broker-a/n0", "broker-a/n1")


def test_between_two_replicas_there_is_no_majority(
    session: SparkSession, replicas: list[Path], tmp_path: Path
) -> None:
    forked = write_snapshot(tmp_path / "forked", "n2", fork=True)
    (told,) = audit(session, [replicas[0], forked]).findings
    assert (told.finding.replica, told.finding.majority) == ("unknown", ())


def test_a_misdirected_queue_row_is_found(session: SparkSession, replicas: list[Path]) -> None:
    files = (replicas[0] / "consumequeue/orders/0").iterdir()
    path = sorted(file for file in files if not file.suffix)[1]
    flip(path, 27)
    (told,) = audit(session, replicas).findings
    assert (told.finding.kind, told.finding.path) == (FindingKind.CONSUME_QUEUE, str(path))


def test_a_manifest_that_names_another_chain_is_found(
    session: SparkSession, replicas: list[Path]
) -> None:
    edit_manifest(replicas[2], chain_crc=1)
    kinds = {told.finding.kind for told in audit(session, replicas).findings}
    assert FindingKind.FORMAT in kinds


def test_what_is_acknowledged_must_be_in_the_log(
    session: SparkSession, replicas: list[Path], tmp_path: Path
) -> None:
    rows = (
        session.read.format("dledger")
        .options(view="messages", replica="n0")
        .load(str(tmp_path / "broker-a"))
        .select("msg_id", "queue_id", "queue_offset")
        .collect()
    )
    lines = [json.dumps({**row.asDict(), "broker": "broker-a"}) for row in rows]
    listed = tmp_path / "acknowledged"
    lost = {"msg_id": "0A" * 8 + f"{97:016X}", "queue_id": 0, "queue_offset": 7}
    late = {"msg_id": "0A" * 8 + f"{1 << 40:016X}", "queue_id": 0, "queue_offset": 8}
    lines += [json.dumps({**one, "broker": "broker-a"}) for one in (lost, late)]
    listed.write_text("\n".join(lines))
    groups = audit(session, replicas).groups
    told = check_acknowledged(str(replicas[0]), groups, read_acknowledged(str(listed)))
    assert [(one.kind, one.finding.position) for one in told] == [
        ("acknowledged", 97),
        ("acknowledged", 0),
    ]
    assert str(told[0]).startswith(f"broker-a/n0: acknowledged: {told[0].finding.path}, byte 97")
    shown = [Acknowledged(row["msg_id"], None) for row in rows]
    assert check_acknowledged(str(replicas[0]), groups, shown) == []
    other = Acknowledged(rows[0]["msg_id"], None, topic="another")
    (wrong,) = check_acknowledged(str(replicas[0]), groups, [other])
    assert "of queue 0 of orders" in wrong.finding.found
    assert "number 7 of queue 0" in told[0].finding.expected
    assert "the end of the committed log" in told[1].finding.found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('\n{"msg_id": "1"}\n', "line 2: not what dledger produce"),
        ("0A0A", "line 1: not what dledger produce"),
        ('{"msg_id": ', "line 1: not one JSON object"),
        ('[{"msg_id": "' + "0A" * 16 + '"}, 7]', "message 2: not what dledger produce"),
        ("[", "begins as a JSON array and is none"),
    ],
)
def test_a_line_that_is_no_message_is_refused(text: str, line: str, tmp_path: Path) -> None:
    listed = tmp_path / "acknowledged"
    listed.write_text(text)
    with pytest.raises(ReplicaError, match=line):
        read_acknowledged(str(listed))


def test_lists_of_other_shapes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = "0A" * 8 + f"{97:016X}"
    consumed = {"topic": "t", "queue_id": 1, "queue_offset": 2, "msg_id": one, "unique_key": "u"}
    listed = tmp_path / "acknowledged"
    listed.write_text(json.dumps([consumed]))
    assert read_acknowledged(str(listed)) == [Acknowledged(one, None, 1, 2, "t", "u")]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{one}\n\n{one.lower()}\n"))
    assert [found.position for found in read_acknowledged("-")] == [97, 97]


def test_the_command_leaves_tables_a_summary_and_a_page(
    session: SparkSession,
    replicas: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert main(["audit", str(replicas[0].parent), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["consistent"] is True
    flip(segment(replicas[1], 0), 300)
    assert main(["audit", *map(str, replicas), "--out", str(out)]) == 1
    assert "broker-a/n1: entry" in capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["findings"], summary["findings_by_kind"]) == (1, {"entry": 1})
    found = session.read.parquet(str(out / "findings.parquet"))
    assert found.columns == FINDINGS.names
    named = found.select("kind", "replica", "index_first", "majority")
    rows = [("entry", "broker-a/n1", 1, ["broker-a/n0", "broker-a/n2"])]
    assertDataFrameEqual(named, session.createDataFrame(rows, named.schema))
    assert session.read.parquet(str(out / "ranges.parquet")).count() == 3
    page = (out / "report.html").read_text()
    assert 'class="damaged"' in page
    assert "http" not in page
    # The session was there before the command, which must not stop it.
    assert session.range(2).count() == 2


def test_messages_that_came_twice_are_told_where_that_is_asked(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fs = simulated()
    replica = Replica(fs)
    for offset, number in enumerate((1, 2, 1)):
        replica.send([QueueRun("orders", 0, offset, [message(number)])])
    replica.checkpoint()
    for _ in replica.store.begin_snapshot("/snap", TIME_MS).steps():
        pass
    replica.close()
    copy_out(fs, "/snap", tmp_path / "n0")
    assert main(["audit", str(tmp_path / "n0")]) == 0
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "n0"), "--duplicates", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings_by_kind"] == {"duplicate": 1}


def test_replicas_behind_a_url_are_audited(
    session: SparkSession, replicas: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """``local`` is a scheme of fsspec, read as an object store would be."""
    url = f"local://{replicas[0].parent}"
    assert main(["audit", url]) == 0
    flip(segment(replicas[1], 0), 300)
    assert main(["audit", url]) == 1
    assert "broker-a/n1: entry" in capsys.readouterr().out


def test_replicas_are_found_below_a_directory_and_named_by_absolute_paths(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(group)
    expected = [str(group / "broker-a" / node) for node in NODES]
    assert find_targets(["broker-a/"]) == find_targets(["."]) == expected


def test_what_cannot_be_read_is_named_and_the_rest_is_audited(
    session: SparkSession,
    replicas: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_pipe(segment(replicas[0], 1))
    make_loop(replicas[1] / "state" / "vote")
    write_manifest(replicas[1] / "manifest.json", node="\ud800")
    make_dangling(replicas[2] / "consumequeue" / "orders")
    found = audit(session, replicas)
    assert {told.finding.path for told in found.findings} >= {
        str(segment(replicas[0], 1)),
        str(replicas[1] / "state" / "vote"),
        str(replicas[1] / "manifest.json"),
        str(replicas[2] / "consumequeue" / "orders"),
    }
    out = tmp_path / "out"
    assert main(["audit", *map(str, replicas), "--out", str(out)]) == 1
    assert "Traceback" not in "".join(capsys.readouterr())
    rows = pq.read_table(out / "findings.parquet").to_pylist()
    assert any("Too many levels of symbolic links" in row["found"] for row in rows)
    assert (out / "summary.json").exists()


def test_copies_and_replicas_of_other_groups_are_told_as_verify_tells_them(
    session: SparkSession, replicas: list[Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(replicas[1], tmp_path / "copy"))
    link = tmp_path / "link"
    link.symlink_to(replicas[0])
    found = audit(session, [*replicas, copy, link])
    assert [(told.kind, told.finding.found) for told in found.findings] == [
        ("format", f"{link} is the same directory"),
        ("format", f"the disk of broker-a/n1 a second time, as in {replicas[1]}"),
    ]
    write_format(copy / "state" / "format", {"group": "broker-b"})
    write_manifest(copy / "manifest.json", group="broker-b")
    give_to(str(copy), "broker-b/n1")
    session.sparkContext.setJobGroup("two groups", "the audit of two groups")
    found = audit(session, [*replicas, copy])
    # Their plans, and the ranges of both; derived files are one task here.
    assert len(session.sparkContext.statusTracker().getJobIdsForGroup("two groups")) == 2
    assert [(told.kind, told.group, told.finding.found) for told in found.findings] == [
        ("format", "broker-b", "the groups broker-a, broker-b")
    ]


def test_the_summary_says_of_which_states_nothing_is_known(
    session: SparkSession, replicas: list[Path], tmp_path: Path
) -> None:
    shutil.rmtree(replicas[2])
    replicas[2] = write_snapshot(tmp_path / "later", "n2", entries=ENTRIES + 4)
    found = audit(session, replicas)
    assert found.findings == []
    (group,) = summarize(found)["groups"]
    assert [one["state"] for one in group["replicas"]] == ["same", "same", "unknown"]


def test_codes_tell_what_could_not_be_read_from_what_is_wrong(
    session: SparkSession, replicas: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(each) for each in replicas]
    assert main(["audit", *names]) == 0
    path = replicas[1] / "state" / "format"
    path.write_bytes(b"dledger data format 3\nwhatever comes\n")
    assert main(["audit", *names]) == 2
    assert f"{path}, byte 0" in capsys.readouterr().out
    (replicas[2] / "state" / "vote").unlink()
    assert main(["audit", *names]) == 1


def test_help_says_what_the_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--help"]) == 0
    assert "exit code: 0 consistent; 1 something is wrong; 2 nothing" in capsys.readouterr().out


def test_what_cannot_be_audited_ends_with_one_line_and_code_2(
    session: SparkSession,
    replicas: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == (
        f"spark audit: {tmp_path}/none: there is no such directory\n"
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["audit", str(empty)]) == 2
    (replicas[0] / "lock").touch()
    held = OsFileSystem().lock(str(replicas[0] / "lock"))
    assert main(["audit", *map(str, replicas)]) == 2
    assert "a running node has this data open" in capsys.readouterr().err
    held.release()
