"""The load over gRPC, against the server that does nothing and against one that refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bench.grpc_load import ECHO, SEND, GrpcJob
from broker.bench.grpc_workloads import _echo, _rounds
from broker.bench.worker_client import LoadError
from tests.cluster.running_cluster import free_address

JOB = GrpcJob(ECHO, "", "T", 100, 4, 0.05, 0.2, 2, ())


@pytest.mark.processes
def test_calls_and_the_time_of_their_server_are_counted() -> None:
    with _echo() as (port, pid):
        rounds = _rounds(replace(JOB, target=f"127.0.0.1:{port}", pids=(pid,)))
    assert len(rounds) == 2
    for each in rounds:
        assert each.messages > 0
        assert each.server_cpu_seconds > 0 < each.client_cpu_seconds
        assert each.p50_ms is not None
        assert each.p99_ms is not None
        assert 0 < each.p50_ms <= each.p99_ms


@pytest.mark.processes
def test_a_load_that_cannot_be_made_says_why() -> None:
    with pytest.raises(LoadError, match=r"(?s)the load failed: .*UNAVAILABLE"):
        _rounds(replace(JOB, operation=SEND, target=free_address()))
