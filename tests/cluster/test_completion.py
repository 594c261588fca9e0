"""What a shell is told that completes a command: names that the cluster knows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster.running_cluster import COMMAND_SECONDS, RunningCluster

pytestmark = pytest.mark.processes


def completed(line: str, environment: dict[str, str]) -> list[str]:
    """What may stand in the place of the line's last word."""
    words = line.split(" ")
    asked = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_DLEDGER_COMPLETE": "bash_complete",
    }
    done = subprocess.run(
        [sys.executable, "-m", "broker"],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        env=environment | asked,
        check=False,
    )
    assert done.stderr == "", done.stderr
    return [each.partition(",")[2] for each in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def named(shared_cluster: RunningCluster) -> dict[str, str]:
    """The environment of a cluster with names."""
    for topic in ("fruit", "fish", "%RETRY%eaters"):
        shared_cluster.dledger("topic", "create", topic)
    shared_cluster.dledger("group", "create", "eaters")
    return shared_cluster.environment


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("dledger topic describe f", ["fish", "fruit"]),
        ("dledger produce fr", ["fruit"]),
        ("dledger consume fruit --group ea", ["eaters"]),
        ("dledger group reset-offset eaters --topic fi", ["fish"]),
        ("dledger dlq show e", ["eaters"]),
        ("dledger message query --topic %RETRY%e", ["%RETRY%eaters"]),
    ],
)
def test_names_that_exist_are_completed(named: dict[str, str], line: str, names: list[str]) -> None:
    assert completed(line, named) == names


def test_retries_come_only_when_they_are_meant(named: dict[str, str]) -> None:
    found = completed("dledger consume ", named)
    assert {"fish", "fruit"} <= {*found}
    assert not any(name.startswith("%") for name in found)


def test_the_cluster_that_the_line_names_is_asked(named: dict[str, str]) -> None:
    nobody = {"NAMESRV_ADDR": "127.0.0.1:1"}
    assert completed("dledger topic describe f", nobody) == []
    asked = f"dledger topic describe --namesrv {named['NAMESRV_ADDR']} f"
    assert completed(asked, nobody) == ["fish", "fruit"]


def test_a_new_name_is_not_completed(named: dict[str, str]) -> None:
    assert completed("dledger topic create f", named) == []
