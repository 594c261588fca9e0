"""Clients whose routes are old go on while the leadership moves, and while the leader restarts."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError
from tests.broker.single_broker import send_ext
from tests.cluster.running_cluster import (
    END_SECONDS,
    RunningCluster,
    start_cluster,
    while_needed,
)

TOPIC = "stale"
SENDS = 40
DRAIN_SECONDS = 20
PROBES = (0, SENDS // 2)
"""Before and after the leader is told to stop."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = start_cluster(
        tmp_path_factory.mktemp("rolling") / "data", drain_seconds=DRAIN_SECONDS
    )
    running.dledger("topic", "create", TOPIC, "--queues", "1")
    yield running
    running.stop()


@dataclass
class StaleClient:
    """Sends to one address, whoever leads, and never asks for a route. Nothing is sent again."""

    address: str
    stored: list[bytes] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def send(self, client: RemotingClient, body: bytes) -> None:
        ext = send_ext(TOPIC, 0)
        try:
            answer = await client.invoke(
                self.address, RequestCode.SEND_MESSAGE_V2, ext, (body,), timeout=5.0
            )
        except CallError as error:
            self.failed.append(f"{body!r}: {error}")
            return
        if answer.code == ResponseCode.SUCCESS:
            self.stored.append(body)
        else:
            self.failed.append(f"{body!r}: {answer.code} {answer.remark}")


def consumed(cluster: RunningCluster, count: int) -> list[str]:
    """The bodies of a queue, in order, as a new group gets them."""
    arguments = ("--group", f"all-{count}", "--from", "earliest", "--count", str(count))
    return cluster.dledger("consume", TOPIC, *arguments).stdout.splitlines()


def test_a_client_goes_on_while_the_leadership_moves(cluster: RunningCluster) -> None:
    leader = cluster.leader()
    stale = StaleClient(str(cluster.config(leader).own.address))
    target = next(node for node in cluster.nodes if node != leader)

    async def run() -> None:
        client = RemotingClient(asyncio.get_running_loop())
        for number in range(SENDS):
            if number == SENDS // 4:
                moving.append(cluster.popen("leader", "transfer", cluster.group, target))
            await stale.send(client, b"moved %d" % number)
            await asyncio.sleep(0.05)
        await client.close()

    moving: list[subprocess.Popen[str]] = []
    asyncio.run(run())
    with while_needed(moving[0]) as transfer:
        assert transfer.wait(END_SECONDS) == 0
    assert cluster.leader() == target
    assert stale.failed == []
    assert consumed(cluster, SENDS) == [f"moved {number}" for number in range(SENDS)]


def test_a_message_over_http_goes_through_any_node_while_the_leadership_moves(
    cluster: RunningCluster,
) -> None:
    cluster.dledger("topic", "create", "posted", "--queues", "1")
    ports = [cluster.config(node).own.http for node in cluster.nodes]
    target = next(node for node in cluster.nodes if node != cluster.leader())

    def post(number: int) -> int:
        at = ports[number % len(ports)]
        with closing(http.client.HTTPConnection(at.host, at.port, timeout=10)) as connection:
            document = json.dumps({"body": f"posted {number}"})
            connection.request("POST", "/topics/posted/messages", document)
            answer = connection.getresponse()
            answer.read()
            return answer.status

    statuses = [post(number) for number in range(SENDS // 4)]
    with while_needed(cluster.popen("leader", "transfer", cluster.group, target)) as transfer:
        statuses += [post(number) for number in range(SENDS // 4, SENDS)]
        assert transfer.wait(END_SECONDS) == 0
    assert cluster.leader() == target
    assert set(statuses) == {200}
    arguments = ("--group", "posts", "--from", "earliest", "--count", str(SENDS))
    consumed = cluster.dledger("consume", "posted", *arguments).stdout.splitlines()
    assert consumed == [f"posted {number}" for number in range(SENDS)]


def test_a_leader_that_is_told_to_stop_forwards_until_its_clients_have_left(
    cluster: RunningCluster,
) -> None:
    leader = cluster.leader()
    own = cluster.config(leader).own
    stale = StaleClient(str(own.address))
    pid = cluster.pid(leader)
    probed: dict[int, tuple[int, int]] = {}

    def probe(path: str) -> int:
        with closing(http.client.HTTPConnection(own.http.host, own.http.port)) as connection:
            connection.request("GET", path)
            return connection.getresponse().status

    async def run() -> None:
        client = RemotingClient(asyncio.get_running_loop())
        for number in range(SENDS):
            if number == SENDS // 4:
                os.kill(pid, signal.SIGTERM)
            await stale.send(client, b"restarted %d" % number)
            if number in PROBES:
                probed[number] = probe("/livez"), probe("/readyz")
            await asyncio.sleep(0.05)
        await client.close()

    asyncio.run(run())
    assert stale.failed == []
    assert [probed[number] for number in PROBES] == [(200, 200), (200, 503)]
    cluster.wait_until_ended(leader)
    assert cluster.leader() != leader
    cluster.start(leader)
    cluster.wait_until_level()
    assert consumed(cluster, 2 * SENDS)[-SENDS:] == [f"restarted {n}" for n in range(SENDS)]
