"""The programs of docs/clients.md run as they stand there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.test_real_clients import HERE, INSTALLED, node_program
from tests.clients.test_rocketmq_5 import endpoints
from tests.cluster.running_cluster import RunningCluster

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def programs(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def python(program: str) -> list[str]:
    return [str(INSTALLED / "rocketmq_5" / "bin" / "python"), "-c", program]


def node(program: str) -> list[str]:
    return [node_program(), "-e", program]


PROGRAMS = [
    pytest.param(python, programs("python")[0], id="Python, gRPC"),
    pytest.param(node, programs("js")[0], id="Node.js, gRPC", marks=pytest.mark.node),
    pytest.param(node, programs("js")[1], id="Node.js, remoting", marks=pytest.mark.node),
]


@pytest.mark.parametrize(("command", "program"), PROGRAMS)
def test_a_program_sends_and_receives(
    cluster: RunningCluster, tmp_path: Path, command: Callable[[str], list[str]], program: str
) -> None:
    cluster.dledger("topic", "create", "greetings")
    # A list of nodes is no address for the client of Node.js.
    nodes = endpoints(cluster) if command is python else endpoints(cluster).partition(";")[0]
    done = subprocess.run(
        command(program),
        env={"HOME": str(tmp_path), "ENDPOINTS": nodes, "NAMESRV_ADDR": cluster.namesrv},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("hello") == 1, done.stdout


def test_the_page_has_a_program_for_each_official_client() -> None:
    languages = ("python", "js", "java", "cpp", "go", "rust", "csharp")
    assert [bool(programs(language)) for language in languages] == [True] * len(languages)
