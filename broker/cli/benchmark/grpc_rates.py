"""RocketMQ 5's gRPC compared with 4.x's remoting, with HTTP, and with a server that does nothing
(grpcio's own cost)."""

from __future__ import annotations

from broker.bench.grpc_workloads import GrpcPlace, measure_grpc
from broker.bench.jobs import HttpJob, LoadShape
from broker.bench.worker_client import LoadError
from broker.cli.benchmark.measured import Bench, say
from broker.cli.benchmark.rates import WARM_UP_SECONDS
from broker.cluster_admin.cluster_view import view_groups

IN_FLIGHT = 32


def measure_grpc_rates(bench: Bench) -> None:
    """Measures sends by all protocols, receive requests with acknowledgements, and empty calls."""
    nodes = [node for group in bench.ask(view_groups) for node in group.nodes]
    leaders = [
        (node.grpc, node.http)
        for node in nodes
        if node.role == "leader" and node.grpc is not None and node.http is not None
    ]
    if len(leaders) != 1:
        raise LoadError("the cluster must have one group, and its leader must serve gRPC and HTTP")
    ((grpc, http),) = leaders
    topics = [bench.new_topic(), bench.new_topic()]
    shape = LoadShape(1, bench.request.inflight or IN_FLIGHT)
    job = bench.produce_job((topics[0],), shape, WARM_UP_SECONDS)
    bench.measured.add(
        measure_grpc(bench.client, GrpcPlace(grpc, bench.pids), job, lambda: topics[1], say)
    )
    name = f"HTTP: send, {shape.in_flight} in flight"
    say(name)
    by_http = HttpJob(
        http, topics[0], job.size, shape, WARM_UP_SECONDS, job.seconds, job.rounds, bench.pids
    )
    bench.measured.add({name: bench.client.measure(by_http)})
    for topic in topics:
        bench.delete_topic(topic)
