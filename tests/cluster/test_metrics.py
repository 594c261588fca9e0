"""``/metrics`` of real processes, read while messages flow, against what was sent and consumed."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from broker.prometheus import catalog
from broker.prometheus.metric import Kind
from broker.prometheus.text_page import PAGE_SECONDS
from tests.broker.prometheus.pages import Page
from tests.cluster.running_cluster import RunningCluster, start_cluster

pytestmark = pytest.mark.processes

COUNTERS = frozenset(each.name for each in catalog.METRICS if each.kind is Kind.COUNTER)
SENT, CONSUMED = 4_000, 1_500


def get(address: str, path: str) -> tuple[int, str]:
    host, _, port = address.partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=30)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def scrape(address: str) -> Page:
    status, text = get(address, "/metrics")
    assert status == 200, text
    return Page.parse(text)


class Scraper(threading.Thread):
    """Reads every node again and again, as Prometheus does, and keeps all pages, at least two of
    each node."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self.pages: dict[str, list[Page]] = {address: [] for address in addresses}
        self._ended = threading.Event()

    def run(self) -> None:
        self._scrape()
        while not self._ended.wait(0.3):
            self._scrape()
        self._scrape()

    def _scrape(self) -> None:
        for address, pages in self.pages.items():
            pages.append(scrape(address))

    def end(self) -> None:
        self._ended.set()
        self.join(timeout=60)
        assert not self.is_alive()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> RunningCluster:
    directory: Path = tmp_path_factory.mktemp("metrics") / "cluster"
    return start_cluster(directory)


def test_what_all_nodes_tell_while_messages_flow_is_what_was_sent(cluster: RunningCluster) -> None:
    try:
        nodes = {node.node: node.http for node in cluster.view().nodes}
        addresses = [address for address in nodes.values() if address is not None]
        assert len(addresses) == 3
        cluster.dledger("topic", "create", "orders", "--queues", "4", "-c", "DefaultCluster")
        scraper = Scraper(addresses)
        scraper.start()
        bodies = "".join(f"body {number}\n" for number in range(SENT))
        acknowledged = cluster.ask("produce", "orders", "--batch", "20", stdin=bodies)
        taken = cluster.ask(
            *("consume", "orders", "--group", "g", "--from", "earliest"),
            *("--count", str(CONSUMED), "--timeout", "60"),
        )
        scraper.end()
        assert (len(acknowledged), len(taken)) == (SENT, CONSUMED)
        for pages in scraper.pages.values():
            assert len(pages) > 1
            for before, after in pairwise(pages):
                for key, value in before.samples.items():
                    if key[0] in COUNTERS or key[0].endswith("_bucket"):
                        assert after.samples[key] >= value, key

        cluster.wait_until_level()
        leader = cluster.leader()
        time.sleep(PAGE_SECONDS)  # a page may be that old
        told = {name.rpartition("/")[2]: scrape(at or "") for name, at in nodes.items()}
        stored = sum(
            page.sum("rocketmq_messages_in_total", topic="orders") for page in told.values()
        )
        assert stored == SENT
        out = sum(
            page.sum("rocketmq_messages_out_total", topic="orders", consumer_group="g")
            for page in told.values()
        )
        # A client may have fetched more than it has shown.
        assert CONSUMED <= out <= SENT
        assert {node for node, page in told.items() if page["dledger_raft_serving"]} == {leader}
        assert told[leader]["dledger_raft_may_lose_nodes"] == 1
        assert set(told[leader].values("dledger_raft_peer_lag_entries").values()) == {0}
        of_group = cluster.ask("group", "describe", "g")
        lags = told[leader].values("dledger_consumer_lag_queue_messages", consumer_group="g")
        by_queue = {int(dict(labels)["queue"]): lag for labels, lag in lags.items()}
        described = {
            queue["queue_id"]: queue["lag"]
            for queue in of_group["queues"]
            if queue["topic"] == "orders"
        }
        assert by_queue == described
        for page in told.values():
            # A node syncs each entry, but several at once where they wait.
            entries = page["dledger_raft_last_index"] + 1
            assert page["dledger_apply_seconds_count"] == entries
            assert 0 < page["dledger_log_sync_seconds_count"] <= entries + 10
            assert page["dledger_apply_seconds_sum"] > 0
            assert page["dledger_event_loop_lag_seconds_count"] > 0
            assert page["process_open_fds"] > 0
    finally:
        cluster.stop()


def test_a_name_server_serves_metrics_and_probes_if_it_is_given_a_port(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "broker",
        "namesrv",
        "--port",
        "0",
        "--http-port",
        "0",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            listens = json.loads(process.stdout.readline())
            for path in ("/livez", "/readyz", "/healthz"):
                assert get(listens["http"], path) == (200, '{"status":"ok"}\n')
            told = scrape(listens["http"])
            assert told["dledger_nameserver_brokers"] == 0
            assert told.value("dledger_connections", port="http") == 1
        finally:
            process.terminate()
        assert process.wait(timeout=30) == 0
