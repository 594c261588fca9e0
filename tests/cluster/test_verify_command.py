"""`verify` on the data of a cluster that was stopped."""

from __future__ import annotations

import pytest

from tests.cluster.running_cluster import RunningCluster


@pytest.fixture
def stopped(cluster: RunningCluster) -> RunningCluster:
    """Three replicas with the same twenty messages."""
    cluster.dledger("topic", "create", "orders", "--queues", "2")
    lines = "".join(f"line {number}\n" for number in range(20))
    cluster.dledger("produce", "orders", "--batch", "3", stdin=lines)
    cluster.wait_until_level()
    cluster.stop()
    return cluster


def test_whole_replicas_agree_and_are_counted(stopped: RunningCluster) -> None:
    found = stopped.ask("verify", str(stopped.directory))

    assert found["consistent"] is True
    assert [replica["replica"] for replica in found["replicas"]] == [
        "broker-a/n0",
        "broker-a/n1",
        "broker-a/n2",
    ]
    assert [replica["messages"] for replica in found["replicas"]] == [20, 20, 20]


def test_one_flipped_bit_is_found_and_its_replica_named(stopped: RunningCluster) -> None:
    segment = stopped.data("n1") / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    at = data.index(b"line 7")
    data[at] ^= 1
    segment.write_bytes(data)

    done = stopped.dledger("verify", str(stopped.directory), code=1)

    # Behind them is what was found between the replicas. A new leader may have added an entry while
    # the others stopped; then it is said that its state was not compared.
    told = [line for line in done.stdout.splitlines() if line.startswith("broker-a/")]
    *findings, n0, n1, n2 = told
    assert all(finding.startswith("broker-a/n1: ") for finding in findings)
    assert any(str(segment) in finding for finding in findings)
    assert n0.endswith("nothing found")
    assert n1.endswith((" finding", " findings"))
    assert n2.endswith("nothing found")


def test_a_directory_without_replicas_is_bad_usage(stopped: RunningCluster) -> None:
    done = stopped.dledger("verify", str(stopped.directory / "namesrv"), code=2)

    assert "holds no replica" in done.stderr
