"""A real cluster for tests: processes, sockets and files, on free ports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.cli.command_line import run_command
from broker.cli.local_cluster.local_cluster import LocalCluster, design_cluster, open_cluster
from broker.cli.local_cluster.managed_processes import Starter, end_processes
from broker.cli.local_cluster.port_layout import Ports
from broker.cli.local_cluster.readiness import wait_until_answering, wait_until_serving
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.cluster_view import GroupView, view_groups
from broker.config.node_config import NodeConfig
from tests.cluster.forked_commands import command_starter
from tests.cluster.server_starter import start_server
from tests.support.free_ports import free_member

T = TypeVar("T", str, bytes)

COMMAND_SECONDS = 120.0
END_SECONDS = 30.0
LEVEL_SECONDS = 120.0
LOOK_AGAIN_SECONDS = 0.05
CHANGING = b"another change of the members is under way"
SEGMENT_SIZE = 8 << 20


class RunningCluster:
    """One group of brokers and its NameServer. Names of nodes are short: n0, n1, n2."""

    def __init__(self, local: LocalCluster, starter: Starter = start_server) -> None:
        """``starter`` starts processes again."""
        self._starter = starter
        self._raft_log = local
        self.namesrv = str(local.namesrv)
        self.group = local.groups[0]
        self.directory = local.directory

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands: the NameServer, and the profile."""
        known = ("DLEDGER_PROFILE",)
        return {
            "NAMESRV_ADDR": self.namesrv,
            **{k: os.environ[k] for k in known if k in os.environ},
        }

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [node.config.node for node in self._raft_log.nodes.values()]

    def data(self, node: str) -> Path:
        """The directory of a node's replica."""
        return Path(self._raft_log.node(node).config.data)

    def config(self, node: str) -> NodeConfig:
        """The settings of the node."""
        return self._raft_log.node(node).config

    def view(self) -> GroupView:
        """The group as `dledger status` sees it."""
        groups = run_admin(self.namesrv, view_groups)
        return next(group for group in groups if group.group == self.group)

    def leader(self) -> str:
        """The node that leads and serves, as soon as there is one."""
        groups = wait_until_serving(self._raft_log)
        leader = groups[0].leader
        assert leader is not None
        return leader.rpartition("/")[2]

    def runs(self, node: str) -> bool:
        """Whether the node's process runs."""
        return self._raft_log.node(node).process.pid is not None

    def pid(self, node: str) -> int:
        """The id of the node's process, which must run."""
        pid = self._raft_log.node(node).process.pid
        assert pid is not None
        return pid

    @property
    def namesrv_pid(self) -> int:
        """The id of the NameServer's process, which must run."""
        pid = self._raft_log.namesrv_process.pid
        assert pid is not None
        return pid

    def kill(self, node: str) -> None:
        """kill -9; returns when the process is gone."""
        assert end_processes([self._raft_log.node(node).process], kill=True)

    def end(self, node: str) -> None:
        """Stops the node; returns when the process is gone."""
        assert end_processes([self._raft_log.node(node).process], kill=False)

    def wait_until_ended(self, node: str) -> None:
        """Returns when the process, which is stopping, is gone."""
        self._raft_log.node(node).process.reap(END_SECONDS)
        assert not self.runs(node)

    def start(self, node: str) -> None:
        """Starts the process, and does not wait for it."""
        self._raft_log.node(node).process.start(self._starter)

    def restart_name_server(self) -> None:
        """Ends the NameServer's process, and starts it with the present settings."""
        assert end_processes([self._raft_log.namesrv_process], kill=False)
        self._raft_log.namesrv_process = open_cluster(self.directory).namesrv_process
        self._raft_log.namesrv_process.start(self._starter)

    def wait_until_answering(self, node: str) -> None:
        """Returns when the node answers requests."""
        wait_until_answering(self._raft_log.node(node))

    def wait_until_level(self) -> GroupView:
        """Returns when every replica holds, and has applied, the same entries."""
        ends_at = time.monotonic() + LEVEL_SECONDS
        while True:
            wait_until_serving(self._raft_log)
            group = self.view()
            if len({(n.last_index, n.commit_index, n.applied_index) for n in group.nodes}) == 1:
                return group
            assert time.monotonic() < ends_at, f"the replicas do not come level: {group}"
            time.sleep(LOOK_AGAIN_SECONDS)

    def stop(self) -> None:
        """Stops every process."""
        self._raft_log.stop()

    def dledger(
        self, *arguments: str, stdin: str | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command against this cluster and checks its exit code."""
        done = self.run(*arguments, stdin=(stdin or "").encode(), code=code)
        stdout, stderr = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(done.args, done.returncode, stdout, stderr)

    def run(
        self, *arguments: str, stdin: bytes = b"", code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        """As :meth:`dledger`, in bytes. A group that has just started may still note its disks,
        which is a change of its members: another one is tried again."""
        ends_at = time.monotonic() + LEVEL_SECONDS
        while True:
            done = command_starter().run(arguments, self.environment, stdin, COMMAND_SECONDS)
            if CHANGING not in done.stderr or time.monotonic() > ends_at:
                break
            time.sleep(LOOK_AGAIN_SECONDS)
        assert done.returncode == code, (done.stderr + done.stdout).decode(errors="replace")
        return done

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        """A command against this cluster that runs beside the test."""
        return subprocess.Popen(
            [sys.executable, "-m", "broker", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def ask(self, *arguments: str, stdin: str | None = None, code: int = 0) -> Any:
        """The output of a command with ``--json``: a document, or a list for a stream."""
        done = self.dledger(*arguments, "--json", stdin=stdin, code=code)
        documents = [json.loads(line) for line in done.stdout.splitlines()]
        return documents[0] if len(documents) == 1 else documents


def start_cluster(
    directory: Path,
    secured: bool = False,
    /,
    *,
    nodes: int = 3,
    secured_peers: str = "off",
    tls: str = "permissive",
    starter: Starter = start_server,
    **settings: int | str,
) -> RunningCluster:
    """Starts a new cluster and waits until it serves; ``settings`` are of every ``node.toml``.

    ``secured``: with access control, ``tls`` on the ports of clients, and ``secured_peers`` is then
    TLS between nodes. ``$DLEDGER_PROFILE`` must be :func:`admin_profile`. ``starter`` is
    ``execute`` where they need the limits of this process, or memory that they share with none.
    """
    design_cluster(directory, nodes=nodes, ports=Ports(0, 0, 0)).write()
    for path in directory.glob("*/*/node.toml"):
        # Small segments: the log is zeroed ahead, which would keep the disk busy.
        text = path.read_text()
        for key, value in {"segment_size": SEGMENT_SIZE, **settings}.items():
            line = f"{key} = {json.dumps(value)}"
            text, count = re.subn(rf"^{key} = .*$", line, text, flags=re.MULTILINE)
            assert count == 1, f"{path} has no {key}"
        path.write_text(text)
    if secured:
        _secure(directory, secured_peers, tls)
    local = open_cluster(directory)
    try:
        local.start(starter)
        wait_until_serving(local)
    except BaseException:  # Ctrl-C and pytest's own outcomes too: no process may stay behind
        local.stop()
        raise
    return RunningCluster(local, starter)


def admin_profile(directory: Path) -> Path:
    """The profile of the first admin of a cluster in ``directory``."""
    return directory / "security" / "admin.toml"


def _secure(directory: Path, peers: str, tls: str) -> None:
    made = directory / "security"
    section = (
        f'\n[security]\ndirectory = {json.dumps(str(made))}\npeers = "{peers}"\ntls = "{tls}"\n'
    )
    files = sorted(directory.glob("*/*/node.toml"))
    assert run_command(["security", "init", str(made), str(files[0]), "namesrv=127.0.0.1"]) == 0
    for path in files:
        path.write_text(path.read_text() + section)
    home = directory / "namesrv"
    home.mkdir(exist_ok=True)
    (home / "namesrv.toml").write_text(section)


@contextmanager
def while_needed(process: subprocess.Popen[T]) -> Iterator[subprocess.Popen[T]]:
    """Ends the process if it still runs when the block is left: a test that fails must not wait
    for what will not come."""
    with process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def free_address() -> str:
    """An address for clients of one more node. The system gives its port to no connection."""
    return str(free_member().address)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """A group of three that serves. Processes that still run at the end are stopped by pid."""
    running = start_cluster(tmp_path / "data")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def secured_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster with access control for all tests of a module. The environment names its admin."""
    directory = tmp_path_factory.mktemp("secured") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLEDGER_PROFILE", str(admin_profile(directory)))
        running = start_cluster(directory, True)
        yield running
        running.stop()


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster for all tests of a module. They use topics of their own, and leave it running."""
    data = tmp_path_factory.mktemp("shared") / "data"
    running = start_cluster(data)
    yield running
    running.stop()


def log_bytes(data: Path) -> bytes:
    """The bytes of a stopped replica's commit log, without the zeros ahead."""
    segments = sorted((data / "commitlog").iterdir())
    return b"".join(segment.read_bytes() for segment in segments).rstrip(b"\0")
