"""A node that exports its spans over OTLP, to a server that reads them as a collector does."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.cluster.running_cluster import start_cluster
from tests.cluster.test_server_logs import EVENT

pytestmark = pytest.mark.processes

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(ThreadingHTTPServer):
    """Keeps what is posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[ExportTraceServiceRequest] = []

    @property
    def names(self) -> set[tuple[str, str, str]]:
        """Of each span: its name, its trace and its parent."""
        return {
            (span.name, span.trace_id.hex(), span.parent_span_id.hex())
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_spans_of_a_message_arrive_at_the_endpoint(
    tmp_path: Path, collector: Collector
) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    cluster = start_cluster(tmp_path / "cluster", nodes=1, tracing=endpoint)
    try:
        (http,) = [node.http for node in cluster.view().nodes]
        assert http is not None
        _post(http, {"body": "x", "properties": {"traceparent": f"00-{TRACE}-{PARENT}-01"}})
        assert cluster.ask(
            "consume", "orders", "--group", "g", "--from", "earliest", "--count", "1"
        )
    finally:
        cluster.stop()  # which sends the last spans
    below_producer = {name for name, trace, parent in collector.names if parent == PARENT}
    assert below_producer == {"send orders", "deliver orders"}
    assert {trace for _, trace, _ in collector.names} == {TRACE}
    (resource, *_) = [each.resource for each in collector.requests[0].resource_spans]
    told = {each.key: each.value.string_value for each in resource.attributes}
    assert (told["service.name"], told["service.instance.id"]) == ("dledger", "broker-a/n0")


def test_a_node_stops_in_order_where_nobody_takes_its_spans(tmp_path: Path) -> None:
    cluster = start_cluster(tmp_path / "cluster", nodes=1, tracing="http://127.0.0.1:9/v1/traces")
    (http,) = [node.http for node in cluster.view().nodes]
    assert http is not None
    _post(http, {"body": "x", "properties": {"traceparent": f"00-{TRACE}-{PARENT}-01"}})
    began_at = time.monotonic()
    cluster.end("n0")  # which kills it after 30 s
    assert time.monotonic() - began_at < 15
    log = (cluster.data("n0") / "log" / "node.log").read_text()
    assert "opentelemetry" in log
    assert all(EVENT.fullmatch(line) for line in log.splitlines()), log
    cluster.stop()


def _post(address: str, document: object) -> None:
    request = urllib.request.Request(
        f"http://{address}/topics/orders/messages",
        json.dumps(document).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
