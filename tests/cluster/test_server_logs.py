"""The logs of real processes: quiet at a clean start, and changed while they run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.running_cluster import RunningCluster, start_cluster

pytestmark = pytest.mark.processes

EVENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) [\w.]+: .+")
CLEAN_LINES_MAX = 6
SECONDS = 30.0


def until(holds: Callable[[], object], what: str) -> None:
    """Other processes can only be asked again."""
    ends_at = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < ends_at, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = start_cluster(tmp_path_factory.mktemp("logs") / "cluster")
    yield running
    running.stop()


def log_of(cluster: RunningCluster, node: str) -> Path:
    return cluster.data(node) / "log" / "node.log"


def pid_of(cluster: RunningCluster, node: str) -> int:
    (found,) = [each.pid for each in cluster.view().nodes if each.node.endswith(node)]
    assert found is not None
    return found


def test_a_clean_start_says_a_few_lines_and_nothing_is_wrong(cluster: RunningCluster) -> None:
    cluster.wait_until_level()
    logs = [log_of(cluster, node) for node in cluster.nodes]
    logs.append(cluster.directory / "namesrv" / "log" / "namesrv.log")
    for log in logs:
        lines = log.read_text().splitlines()
        assert 0 < len(lines) <= CLEAN_LINES_MAX, lines
        for line in lines:
            event = EVENT.fullmatch(line)
            assert event is not None, line
            assert event.group(1) == "INFO", line


def test_a_restarted_node_and_those_that_stay_are_as_quiet(cluster: RunningCluster) -> None:
    node = cluster.leader()
    others = {other: log_of(cluster, other).read_text() for other in cluster.nodes if other != node}
    before = log_of(cluster, node).read_text()
    cluster.end(node)
    cluster.start(node)
    cluster.wait_until_level()
    for log, old in [(node, before), *others.items()]:
        lines = log_of(cluster, log).read_text().removeprefix(old).splitlines()
        assert len(lines) <= CLEAN_LINES_MAX, lines
        assert not [line for line in lines if " ERROR " in line or "Traceback" in line]


def test_a_hangup_opens_the_log_again_and_takes_its_settings(cluster: RunningCluster) -> None:
    node = cluster.nodes[0]
    log, pid = log_of(cluster, node), pid_of(cluster, node)
    moved = log.with_name("moved.log")
    log.rename(moved)
    config = cluster.data(node) / "node.toml"
    text = config.read_text()
    assert 'log_format = "text"' in text
    changed = text.replace('log_format = "text"', 'log_format = "json"')
    config.write_text(changed.replace("proof_ms = 400", "proof_ms = 401"))
    try:
        os.kill(pid, signal.SIGHUP)
        until(log.exists, "the log is not opened again")
        until(lambda: "was reopened" in log.read_text(), "nothing is said")
        told = [json.loads(line) for line in log.read_text().splitlines()]
        assert all(document["node"].endswith(f"/{node}") for document in told)
        assert [document["message"] for document in told[:2]] == [
            "proof_ms was changed in the file and needs a restart",
            "log_format is json now, it was text",
        ]
        assert (told[2]["log_format"], told[2]["log_level"]) == ("json", "info")

        config.write_text("nonsense = 1\n" + text)
        os.kill(pid, signal.SIGHUP)
        until(lambda: "nonsense" in log.read_text(), "a wrong file is not told of")
        assert cluster.runs(node)
    finally:
        config.write_text(text)
        os.kill(pid, signal.SIGHUP)
    until(lambda: "up, as text" in log.read_text(), "the old settings do not come back")


def test_a_hangup_changes_what_a_node_does_without_a_restart(cluster: RunningCluster) -> None:
    before = {node: pid_of(cluster, node) for node in cluster.nodes}
    files = {node: cluster.data(node) / "node.toml" for node in cluster.nodes}
    texts = {node: file.read_text() for node, file in files.items()}
    try:
        for node, file in files.items():
            text = texts[node].replace("auto_create_topics = true", "auto_create_topics = false")
            file.write_text(text)
            os.kill(before[node], signal.SIGHUP)
        settings = {"autoCreateTopicEnable": "false"}
        until(
            lambda: (
                cluster.ask("config", "get", "autoCreateTopicEnable")
                == {"groups": {cluster.group: settings}}
            ),
            "the leader goes on as before",
        )
    finally:
        for node, file in files.items():
            file.write_text(texts[node])
            os.kill(before[node], signal.SIGHUP)
    assert before == {node: pid_of(cluster, node) for node in cluster.nodes}


def test_a_name_server_takes_its_file_again_at_a_hangup(tmp_path: Path) -> None:
    file, log = tmp_path / "namesrv.toml", tmp_path / "namesrv.log"
    file.write_text("port = 0\nhttp_port = 0\n")
    command = [sys.executable, "-m", "broker", "namesrv", "--config", str(file)]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as server,
    ):
        try:
            until(lambda: "listens" in log.read_text(), "it does not start")
            file.write_text('log_level = "debug"\nport = 0\nhttp_port = 1\n')
            server.send_signal(signal.SIGHUP)
            until(lambda: "was reopened, from debug up" in log.read_text(), "nothing is said")
            assert "http_port was changed in the file and needs a restart" in log.read_text()
        finally:
            server.terminate()
    assert server.returncode == 0


def test_a_command_changes_the_level_of_all_nodes(cluster: RunningCluster) -> None:
    sizes = {node: log_of(cluster, node).stat().st_size for node in cluster.nodes}
    done = cluster.ask("config", "set", "logLevel", "debug")
    assert done == {"key": "logLevel", "value": "debug", "groups": [cluster.group]}
    try:
        told = cluster.ask("config", "get", "logLevel")
        assert told == {"groups": {cluster.group: {"logLevel": "debug"}}}
        cluster.wait_until_level()
        target = next(node for node in cluster.nodes if node != cluster.leader())
        cluster.dledger("leader", "transfer", cluster.group, target)
        for node in cluster.nodes:
            added = log_of(cluster, node).read_text()[sizes[node] :]
            assert "the log level of the group is used: debug" in added
            # Who campaigns is told at this level alone.
            assert (" DEBUG " in added) == (node == target)
    finally:
        cluster.dledger("config", "set", "logLevel", "info")
    refused = cluster.dledger("config", "set", "logLevel", "loud", code=1)
    assert "debug or info or warning or error" in refused.stderr
    unknown = cluster.dledger("config", "get", "logLevle", code=2)
    assert "did you mean logLevel" in unknown.stderr
