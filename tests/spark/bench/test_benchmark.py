"""The benchmark's own measuring: processes, shuffled bytes, and what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.bench.benchmark import compare_sizes, log_events, shuffled
from spark.bench.process_usage import cpu_seconds, descendants, peak_memory
from spark.bench.result_table import table_lines
from spark.cli import main

BUSY = "x = bytearray(50 << 20); sum(range(2_000_000)); print(flush=True); input()"


def test_processes_below_this_one_count_with_their_time_and_memory() -> None:
    before = cpu_seconds()
    shell = ["sh", "-c", f'"{sys.executable}" -c "{BUSY}"; true']
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdin is not None
        started.stdout.readline()
        assert started.pid in set(descendants())
        assert os.getpid() not in set(descendants())
        assert cpu_seconds() - before > 0.02
        assert peak_memory("50 << 20") > 50 << 20
        assert peak_memory("no such command") == 0
        started.stdin.close()


def test_processes_that_have_ended_meanwhile_count_too() -> None:
    """Spark ends workers that were idle for a minute: what they did is no less done."""
    busy = "sum(range(2_000_000)); print(flush=True); input()"
    shell = ["sh", "-c", f'"{sys.executable}" -c "{busy}"; echo; read line']
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdin is not None
        started.stdout.readline()
        before = cpu_seconds()
        started.stdin.write(b"\n")
        started.stdin.flush()
        started.stdout.readline()
        assert cpu_seconds() >= before
        started.stdin.close()


def test_shuffled_bytes_are_those_that_tasks_wrote(tmp_path: Path) -> None:
    event = {
        "Event": "SparkListenerTaskEnd",
        "Task Metrics": {"Shuffle Write Metrics": {"Shuffle Bytes Written": 7}},
    }
    lines = [event, {"Event": "SparkListenerJobEnd"}, event]
    (tmp_path / "app").write_text(
        "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    )
    assert shuffled(str(tmp_path)) == 14
    assert log_events("/e")["spark.eventLog.dir"] == "file:///e"


def test_what_a_job_costs_once_is_not_in_the_rate_between_two_sizes() -> None:
    rows = [
        {
            "bytes": size * 10**9,
            "plain_seconds": size,
            "plain_cpu_seconds": size,
            "spark_seconds": size + 5,
            "spark_cpu_seconds": 2 * size + 5,
            "shuffle_bytes": size,
        }
        for size in (1, 3)
    ]
    found = compare_sizes(rows)
    assert found["marginal_spark_to_plain"] == 1.0
    assert found["marginal_spark_gb_per_cpu_second"] == 0.5
    assert [row["spark_to_plain"] for row in rows] == [0.167, 0.375]
    assert [row["cpu_per_gib_to_first"] for row in rows] == [1.0, 0.524]


def test_the_command_prints_what_it_measured(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--gib", "0.001", "0.002", "--repeats", "1", "--dir", str(tmp_path), "--linked"]
    assert main(["bench", *given, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(row["messages"], row["gib"]) for row in printed["sizes"]] == [
        *(("uniform", 0.001), ("uniform", 0.002), ("mixed", 0.001), ("mixed", 0.002))
    ]
    assert set(printed["marginal"]) == {"uniform", "mixed"}
    for row in printed["sizes"]:
        ratio = row["check_gb_per_cpu_second"] / row["read_gb_per_cpu_second"]
        assert row["check_to_read"] == pytest.approx(ratio, abs=0.01)
        assert row["narrow_row_microseconds"] > 0
    told = [line.split()[:2] for line in table_lines(printed) if line]
    assert told.count(["mixed", "0.002"]) == 2
    assert all(row["bytes"] > 3 * row["gib"] * (1 << 30) for row in printed["sizes"])
    assert printed["sizes"][0]["worker_peak_bytes"] > 1 << 20
    assert list(tmp_path.iterdir()) == []
