"""The options of a measurement, and its results."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from broker.bench.failover import FailoverResult
from broker.bench.growth import Curve
from broker.bench.jobs import LoadShape, ProduceJob
from broker.bench.results import Round, SteadyLoad, Summary, summarise
from broker.bench.worker_client import LoadClient
from broker.cli.local_cluster.local_cluster import LocalCluster
from broker.cli.local_cluster.readiness import own_admin
from broker.cli.local_cluster.temporary_cluster import server_pids
from broker.cli.terminal.options import DEFAULT_CLUSTER
from broker.cluster_admin.admin_client import AdminClient, run_admin
from broker.cluster_admin.topics import create_topic, delete_topic

LOAD_SHAPES = (LoadShape(128, 4), LoadShape(1, 1), LoadShape(1, 32), LoadShape(1, 256))
QUEUES = 8

T = TypeVar("T")


def say(text: str) -> None:
    """Prints what is being measured, for people."""
    if sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class Request:
    """The options: what to measure, and how."""

    part: str
    size: int
    batch: int | None
    inflight: int | None
    seconds: float
    rounds: int
    flush: str
    namesrv: str | None
    directory: Path | None
    full: bool
    secured: bool = False

    @property
    def shapes(self) -> Sequence[LoadShape]:
        """The ways in which messages are sent, in turn."""
        if self.batch is None and self.inflight is None:
            return LOAD_SHAPES
        batch = self.batch or 1
        return (LoadShape(batch, self.inflight or (1 if batch == 1 else 4)),)


@dataclass(slots=True)
class Measured:
    """The results of one cluster."""

    nodes: int
    secured: bool = False
    """With TLS on all ports, peer ports included, and access control."""
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    """The rounds of each workload, by name."""
    floor: list[Summary] = field(default_factory=list)
    """The floor of workloads, by the same names: the bytes alone."""
    failover: FailoverResult | None = None
    growth: list[Curve] = field(default_factory=list)
    steady: SteadyLoad | None = None
    memory_bytes: int | None = None
    """The memory of all servers after the workloads."""

    @property
    def title(self) -> str:
        """The title of the cluster, for people."""
        nodes = f"{self.nodes} node{'s' if self.nodes > 1 else ''}"
        return f"{nodes}, secured" if self.secured else nodes

    @property
    def workloads(self) -> list[Summary]:
        return [summarise(name, rounds) for name, rounds in self.rounds.items()]

    def add(self, rounds: Mapping[str, Sequence[Round]]) -> None:
        """Adds rounds of workloads."""
        for name, more in rounds.items():
            self.rounds.setdefault(name, []).extend(more)

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "secured": self.secured,
            "workloads": [summary.to_json() for summary in self.workloads],
            "floor": [summary.to_json() for summary in self.floor],
            "failover": None if self.failover is None else self.failover.to_json(),
            "growth": [curve.to_json() for curve in self.growth],
            "steady": None if self.steady is None else self.steady.to_json(),
            "memory_bytes": self.memory_bytes,
        }


@dataclass(frozen=True, slots=True)
class Bench:
    """A measured cluster and its load."""

    request: Request
    namesrv: str
    client: LoadClient
    measured: Measured
    own: LocalCluster | None
    """The cluster, if the benchmark made it."""
    known_pids: tuple[int, ...] = ()
    """The pids of the servers of another cluster."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of the running servers, with the NameServer if the benchmark made the
        cluster."""
        return self.known_pids if self.own is None else server_pids(self.own)

    def ask(self, work: Callable[[AdminClient], Awaitable[T]]) -> T:
        """Runs ``work``, as an admin if the benchmark made the cluster."""
        return run_admin(self.namesrv, work, admin_of(self.own) if self.own else "")

    def produce_job(
        self,
        topics: tuple[str, ...],
        shape: LoadShape,
        warm_up_seconds: float,
        size: int | None = None,
    ) -> ProduceJob:
        """Sends messages of ``size``, else of the requested size."""
        request = self.request
        size, seconds = size or request.size, request.seconds
        return ProduceJob(topics, size, shape, warm_up_seconds, seconds, request.rounds, self.pids)

    def new_topic(self, queues: int = QUEUES) -> str:
        """Creates a topic, so that the topics of a running cluster stay unchanged."""
        topic = f"dledger-bench-{Random().getrandbits(40):010x}"
        self.ask(
            lambda admin: create_topic(
                admin, topic, queues=queues, broker=None, cluster=DEFAULT_CLUSTER
            )
        )
        return topic

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic with all its messages."""
        self.ask(lambda admin: delete_topic(admin, topic))


def admin_of(cluster: LocalCluster) -> str:
    """The profile of the cluster's first admin; empty if it is not secured."""
    return own_admin(next(iter(cluster.nodes.values())).config)
