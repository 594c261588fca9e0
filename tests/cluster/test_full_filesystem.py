"""A file system of the operating system's own that runs full under a leader.

It needs the right to mount a small tmpfs; where that is missing the test says so and is skipped.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.running_cluster import RunningCluster, start_cluster

SMALL = "n0"
SIZE = 96 << 20
SEGMENT = 2 << 20
SECONDS = 40.0
LINES = 50


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where n0 keeps its data: a file system of 96 MiB."""
    home = tmp_path / "data" / "broker-a" / SMALL
    home.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "dledger-test", str(home)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield home
    subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.fixture
def cluster(small_disk: Path, tmp_path: Path) -> Iterator[RunningCluster]:
    """A group of three that prefers the node with the small disk."""
    assert small_disk.is_mount()
    running = start_cluster(
        tmp_path / "data",
        segment_size=SEGMENT,
        max_message_size=SEGMENT // 4,
        preferred_leader=SMALL,
    )
    yield running
    running.stop()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def fill(path: Path, spare: int) -> None:
    """Takes all room but ``spare`` bytes. The node may take some of it meanwhile."""
    with path.open("ab", buffering=0) as filler:
        while (room := _free(path) - spare) > 0:
            try:
                filler.write(bytes(min(room, 1 << 20)))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return


def _free(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def test_a_leader_whose_file_system_is_full_hands_over_and_leads_again_when_there_is_room(
    cluster: RunningCluster, small_disk: Path
) -> None:
    wait_until(lambda: cluster.leader() == SMALL, "the preferred leader does not lead")
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster")
    sent = 0

    def produce() -> None:
        nonlocal sent
        lines = "".join(f"line {sent + number} {'x' * 2000}\n" for number in range(LINES))
        told = cluster.ask("produce", "orders", stdin=lines)
        sent += len(told)

    produce()
    # Not one byte is left: what follows cannot be written there, and costs the node nothing else.
    fill(small_disk / "filler", 0)
    wait_until(lambda: cluster.leader() != SMALL, "a full leader does not hand over")
    produce()
    produce()
    assert cluster.runs(SMALL)
    log = (small_disk / "log" / "node.log").read_text()
    assert "the disk is full, messages are refused" in log
    assert "gives up the leadership" in log

    (small_disk / "filler").unlink()
    wait_until(lambda: cluster.leader() == SMALL, "the preferred leader does not lead again")
    produce()
    told = cluster.ask(
        *("consume", "orders", "--group", "readers", "--from", "earliest"),
        *("--count", str(sent), "--timeout", "30"),
    )
    bodies = {message["body"].split(" ")[1] for message in told}
    assert bodies == {str(number) for number in range(4 * LINES)}
    cluster.wait_until_level()
