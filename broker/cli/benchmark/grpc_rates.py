"""RocketMQ 5's gRPC compared with 4.x's remoting, and with a server that does nothing (grpcio's own
cost)."""

from __future__ import annotations

from broker.bench.grpc_workloads import GrpcPlace, measure_grpc
from broker.bench.jobs import LoadShape
from broker.bench.worker_client import LoadError
from broker.cli.benchmark.measured import Bench, say
from broker.cli.benchmark.rates import WARM_UP_SECONDS
from broker.cluster_admin.cluster_view import view_groups

IN_FLIGHT = 32


def measure_grpc_rates(bench: Bench) -> None:
    """Measures sends by both protocols, receive requests with acknowledgements, and empty calls."""
    nodes = [node for group in bench.ask(view_groups) for node in group.nodes]
    leaders = [node.grpc for node in nodes if node.role == "leader" and node.grpc is not None]
    if len(leaders) != 1:
        raise LoadError("the cluster must have one group, and its leader must serve gRPC")
    topics = [bench.new_topic(), bench.new_topic()]
    shape = LoadShape(1, bench.request.inflight or IN_FLIGHT)
    job = bench.produce_job((topics[0],), shape, WARM_UP_SECONDS)
    place = GrpcPlace(leaders[0], bench.pids)
    bench.measured.add(measure_grpc(bench.client, place, job, lambda: topics[1], say))
    for topic in topics:
        bench.delete_topic(topic)
