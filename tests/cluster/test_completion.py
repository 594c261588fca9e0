"""What a shell is told that completes a command: names that the cluster knows."""

from __future__ import annotations

import socket

import pytest
from click.shell_completion import BashComplete

from broker.cli.command_line import dledger
from broker.cli.commands import name_completion
from broker.cli.terminal.program import COMPLETION
from tests.cluster.running_cluster import COMMAND_SECONDS, RunningCluster

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def named(shared_cluster: RunningCluster) -> str:
    """The NameServer of a cluster with names."""
    for topic in ("fruit", "fish", "%RETRY%eaters"):
        shared_cluster.dledger("topic", "create", topic)
    shared_cluster.dledger("group", "create", "eaters")
    return shared_cluster.namesrv


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_completion, "PATIENCE_SECONDS", COMMAND_SECONDS)


def completed(line: str) -> list[str]:
    """What may stand in the place of the line's last word."""
    *words, begun = line.split(" ")
    shell = BashComplete(dledger, {}, "dledger", COMPLETION)
    return [each.value for each in shell.get_completions(words, begun)]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("topic describe f", ["fish", "fruit"]),
        ("produce fr", ["fruit"]),
        ("consume fruit --group ea", ["eaters"]),
        ("group reset-offset eaters --topic fi", ["fish"]),
        ("dlq show e", ["eaters"]),
        ("message query --topic %RETRY%e", ["%RETRY%eaters"]),
        ("topic create f", []),
    ],
)
def test_names_that_exist_are_completed(
    named: str, monkeypatch: pytest.MonkeyPatch, line: str, names: list[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", named)
    assert completed(line) == names


def test_retries_come_only_when_they_are_meant(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", named)
    found = completed("consume ")
    assert {"fish", "fruit"} <= {*found}
    assert not any(name.startswith("%") for name in found)


def test_the_cluster_that_the_line_names_is_asked(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert completed("topic describe f") == []
    assert completed(f"topic describe --namesrv {named} f") == ["fish", "fruit"]


def test_a_cluster_that_does_not_answer_gives_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_completion, "PATIENCE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:{silent.getsockname()[1]}")
        assert completed("topic describe f") == []
