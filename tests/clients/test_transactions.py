"""Transactions of the C++ core 2.1, unchanged, while the leader is killed under them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.clients.test_real_clients import HERE, INSTALLED, needs_linux_wheel, running
from tests.cluster.running_cluster import start_cluster

TRANSACTIONS = 120
KILLED_AFTER = 50
PACKAGE = INSTALLED / "rocketmq_2"


@needs_linux_wheel
def test_transactions_end_once_each_as_their_producer_says_when_a_leader_is_killed(
    tmp_path: Path,
) -> None:
    """The next leader asks about what was left open, once the client has said that it is there,
    which it does every 30 s: the broker must not have given it up by then."""
    if not PACKAGE.exists():
        pytest.fail("the C++ client with transactions is not set up: run `make clients`")
    cluster = start_cluster(
        tmp_path / "data",
        transaction_timeout_ms=3_000,
        transaction_check_interval_ms=2_000,
        transaction_check_max=1_000,
    )
    try:
        cluster.dledger("topic", "create", "payments", "--queues", "4")
        script = str(HERE / "cpp_transactions.py")
        command = [sys.executable, script, cluster.namesrv, "payments", str(TRANSACTIONS)]
        sent, asked = [], []
        with running(command, tmp_path, PYTHONPATH=str(PACKAGE)) as lines:
            for told in map(json.loads, lines):
                if "open" in told:
                    break
                if "asked" in told:
                    asked.append(told)
                    continue
                sent.append(told["n"])
                if len(sent) == KILLED_AFTER:
                    killed = cluster.leader()
                    cluster.kill(killed)
                    cluster.start(killed)
            read = ("consume", "payments", "--group", "g", "--from", "earliest")
            consumed = cluster.dledger(*read, "--count", str(TRANSACTIONS // 2)).stdout
        queues = cluster.ask("topic", "describe", "payments")["queues"]
    finally:
        cluster.stop()

    assert sent == list(range(TRANSACTIONS))
    assert {True, False} <= {each["committed"] for each in asked}
    assert sorted(map(int, consumed.split())) == [n for n in range(TRANSACTIONS) if n % 2 == 0]
    assert sum(queue["max_offset"] for queue in queues) == TRANSACTIONS // 2
