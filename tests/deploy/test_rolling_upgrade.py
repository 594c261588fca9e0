"""A loaded group goes from an earlier version to this one, node by node; both are wheels."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.cli.local_cluster.port_layout import Ports, plan_cluster
from tests.cluster.running_cluster import SEGMENT_SIZE, while_needed
from tests.cluster.steady_load import Load
from tests.support.wheels import (
    FILES,
    PACKAGES,
    ROOT,
    build_present_wheel,
    build_wheel,
    install_wheel,
    run,
)

pytestmark = pytest.mark.processes

EARLIER = "4c8e62749734f9c91b43a631997a84f02bda7e97"
"""The last commit of 0.1.0: data of format 1, and no word of features."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NODES = ("n0", "n1", "n2")
TOPIC = "orders"
WAIT_SECONDS = 90.0
LOOK_AGAIN_SECONDS = 0.1


def sources(commit: str) -> tarfile.TarFile:
    """What a wheel is made of, as the history has it; the test is skipped where it has not."""
    if shutil.which("git") is None:
        pytest.skip("git is not here, and so there is no earlier version")
    git = ("git", "-C", ROOT, "archive", commit, "--", *PACKAGES, *FILES)
    done = subprocess.run(git, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the history does not reach back to {commit[:12]}: {done.stderr.decode()}")
    return tarfile.open(fileobj=io.BytesIO(done.stdout))


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dledger` of the earlier version."""
    home = tmp_path_factory.mktemp("earlier")
    with sources(EARLIER) as archive:
        archive.extractall(home / "source", filter="data")
    return install_wheel(build_wheel(home / "source"), home / "venv") / "dledger"


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dledger` of the files here."""
    home = tmp_path_factory.mktemp("present")
    wheel = build_present_wheel(home / "source")
    return install_wheel(wheel, home / "venv") / "dledger"


class Group:
    """Three nodes and a NameServer in ``home``, with the files of 0.1.0."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for config in plan_cluster(home / "data", len(NODES), ["broker-a"], Ports(0, 0, 0)):
            self.namesrv = str(config.namesrv[0])
            lines = [
                f'group = "{config.group}"',
                f'node = "{config.node}"',
                f'namesrv = ["{self.namesrv}"]',
                f"segment_size = {SEGMENT_SIZE}",
            ]
            for name, each in config.members.items():
                lines += [f"[members.{name}]", f'peer = "{each.peer}"']
                lines += [f'address = "{each.address}"', f'http = "{each.http}"']
            self.data(config.node).mkdir(parents=True)
            (self.data(config.node) / "node.toml").write_text("\n".join(lines) + "\n")

    def data(self, node: str) -> Path:
        return self.home / "data" / "broker-a" / node

    @property
    def namesrv_option(self) -> tuple[str, str]:
        """For commands."""
        return "--namesrv", self.namesrv

    def format(self, node: str) -> str:
        return (self.data(node) / "state" / "format").read_text().partition("\n")[0]

    def has_proofs(self, node: str) -> bool:
        """Whether the log has the command that 0.1.0 does not know."""
        segments = sorted((self.data(node) / "commitlog").iterdir())
        return any(b"proof" in segment.read_bytes() for segment in segments)

    def upgrade(self, process: str, program: Path) -> None:
        """TERM, then the other program. Returns when all is in touch again."""
        pid = int((self.home / "data" / process / "pid").read_text().split()[0])
        assert Path(f"/proc/{pid}/cwd").resolve() == self.home
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}/exe"), f"{process} ends")
        run(program, "start", process, cwd=self.home)
        wait_for(lambda: self.may_lose(program) == 1, f"all see {process}")

    def may_lose(self, program: Path) -> int:
        """How many more nodes the group may lose."""
        health = (program, "health", "--json", *self.namesrv_option)
        done = subprocess.run(health, capture_output=True, text=True, check=False)
        return int(json.loads(done.stdout)["may_lose"])

    def leader(self, program: Path) -> str:
        told = json.loads(run(program, "status", "--json", *self.namesrv_option, cwd=self.home))
        return str(told["groups"][0]["leader"]).rpartition("/")[2]


def wait_for(holds: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < ends_at, f"{what}: not in {WAIT_SECONDS} s"
        time.sleep(LOOK_AGAIN_SECONDS)


def versions(group: Group, program: Path) -> list[str | None]:
    told = json.loads(run(program, "status", "--json", *group.namesrv_option, cwd=group.home))
    return [node["version"] for node in told["groups"][0]["nodes"]]


@pytest.fixture
def group(earlier: Path, tmp_path: Path) -> Iterator[Group]:
    """It runs the earlier version, and is ended with the test."""
    made = Group(tmp_path)
    try:
        run(earlier, "up", "--detach", cwd=tmp_path)
        run(earlier, "topic", "create", TOPIC, *made.namesrv_option, cwd=tmp_path)
        yield made
    finally:
        run(earlier, "down", cwd=tmp_path)


def test_each_node_is_upgraded_under_load_and_nothing_is_lost(
    group: Group, earlier: Path, present: Path
) -> None:
    old_leader = group.leader(earlier)
    first, last = (node for node in NODES if node != old_leader)
    reading = (earlier, "consume", TOPIC, "--group", "g", "--from", "earliest", "--json")
    idle = ("--timeout", str(WAIT_SECONDS))  # by then there is a message, or none will come
    with while_needed(
        subprocess.Popen(
            (*reading, *idle, *group.namesrv_option),
            cwd=group.home,
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as consumer:
        load = Load(group.namesrv, TOPIC, (earlier,))
        try:
            group.upgrade(f"broker-a/{first}", present)
            # Now the new program leads two that know less than it does.
            transfer = ("leader", "transfer", "broker-a", first, *group.namesrv_option)
            run(present, *transfer, cwd=group.home)
            assert group.leader(present) == first
            group.upgrade(f"broker-a/{last}", present)
            assert not group.has_proofs(first)
            assert versions(group, present).count(None) == 1  # 0.1.0 does not tell
            assert "versions differ: " in run(
                present, "status", *group.namesrv_option, cwd=group.home
            )
            assert group.format(old_leader) == "dledger data format 1"
            group.upgrade(f"broker-a/{old_leader}", present)
            group.upgrade("namesrv", present)
            wait_for(lambda: group.has_proofs(first), "what all know now is written")
            assert versions(group, present) == [PROJECT["version"]] * len(NODES)
        finally:
            sent = load.end()
        assert consumer.stdout is not None
        seen: set[str] = set()
        for line in consumer.stdout:
            seen.add(json.loads(line)["body"])
            if len(seen) == sent:
                break
        assert seen == {f"line {number}" for number in range(sent)}
    assert [group.format(node) for node in NODES] == ["dledger data format 2"] * len(NODES)
    run(present, "down", cwd=group.home)
    found = run(present, "verify", *(group.data(node) for node in NODES), cwd=group.home)
    assert "between the replicas: nothing found" in found
