"""What a broker needs for many topics and many idle connections, and who pays for bad clients.

The bounds are 2,000 topics of 8 queues and 10,000 idle connections within 500 MiB.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.bench.process_usage import cpu_seconds
from broker.cli.local_cluster.managed_processes import execute
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import encode_request
from tests.broker.single_broker import pull_ext, send_ext
from tests.cluster.running_cluster import RunningCluster, start_cluster

TOPICS, QUEUES, CONNECTIONS = 2_000, 8, 10_000
RESIDENT_BYTES_MAX = 500 << 20
AT_ONCE = 500
BODY = b"x" * 200
SLOW_READERS = 50
SEND_CPU_SECONDS_MAX = 5.0
PATIENCE = 120.0


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[RunningCluster]:
    """A group of one."""
    running = start_cluster(tmp_path / "data", nodes=1, starter=execute)
    yield running
    running.stop()


@pytest.fixture
def descriptors() -> None:
    """As many as the test needs for its ends of the connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 2_000:
        pytest.skip(f"this system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"process {pid} tells nothing of its memory")


def address_and_pid(cluster: RunningCluster) -> tuple[str, int]:
    (node,) = cluster.view().nodes
    assert node.address is not None
    assert node.pid is not None
    return node.address, node.pid


async def create_topics(address: str) -> None:
    client = RemotingClient(asyncio.get_running_loop())
    for first in range(0, TOPICS, AT_ONCE):
        answers = await asyncio.gather(
            *(
                client.invoke(
                    address,
                    RequestCode.UPDATE_AND_CREATE_TOPIC,
                    {
                        "topic": f"topic-{number}",
                        "defaultTopic": "TBW102",
                        "readQueueNums": str(QUEUES),
                        "writeQueueNums": str(QUEUES),
                        "perm": "6",
                        "topicFilterType": "SINGLE_TAG",
                        "order": "false",
                    },
                    timeout=PATIENCE,
                )
                for number in range(first, first + AT_ONCE)
            )
        )
        assert {answer.code for answer in answers} == {0}
    for first in range(0, TOPICS, AT_ONCE // QUEUES):
        answers = await asyncio.gather(
            *(
                client.invoke(
                    address,
                    RequestCode.SEND_MESSAGE_V2,
                    send_ext(f"topic-{number}", queue_id),
                    (BODY,),
                    timeout=PATIENCE,
                )
                for number in range(first, min(first + AT_ONCE // QUEUES, TOPICS))
                for queue_id in range(QUEUES)
            )
        )
        assert {answer.code for answer in answers} == {0}
    await client.close()


async def slowest_send(address: str, pid: int, count: int = 200) -> float:
    """Seconds of the broker's processor time that pass in the slowest of so many sends, one after
    the other. By the clock it takes longer where others want the processor too."""
    client = RemotingClient(asyncio.get_running_loop())
    slowest = 0.0
    for _ in range(count):
        began = cpu_seconds([pid])
        answer = await client.invoke(
            address, RequestCode.SEND_MESSAGE_V2, send_ext("topic-0", 0), (BODY,), timeout=PATIENCE
        )
        assert answer.code == 0
        slowest = max(slowest, cpu_seconds([pid]) - began)
    await client.close()
    return slowest


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


@pytest.mark.usefixtures("descriptors")
def test_many_topics_and_idle_connections_fit_into_the_memory_that_is_promised(
    lone: RunningCluster,
) -> None:
    address, pid = address_and_pid(lone)
    asyncio.run(create_topics(address))
    topics = resident_bytes(pid)
    began = time.monotonic()
    idle = [connect(address) for _ in range(CONNECTIONS)]
    print(f"connected within {time.monotonic() - began:.1f} s")
    try:
        assert asyncio.run(slowest_send(address, pid)) < SEND_CPU_SECONDS_MAX
        resident = resident_bytes(pid)
        print(f"resident: {topics >> 20} MiB with topics, {resident >> 20} MiB with connections")
        assert resident < RESIDENT_BYTES_MAX
    finally:
        for end in idle:
            end.close()


def test_half_a_frame_and_readers_that_do_not_read_cost_others_nothing(
    lone: RunningCluster,
) -> None:
    address, pid = address_and_pid(lone)
    lone.dledger("topic", "create", "topic-0", "-c", "DefaultCluster", "--queues", "1")
    big = "y" * 100_000
    lone.dledger("produce", "topic-0", stdin=f"{big}\n" * 60)
    alone = asyncio.run(slowest_send(address, pid))
    before = resident_bytes(pid)
    bad = [connect(address) for _ in range(2 * SLOW_READERS)]
    request = pull_request()
    try:
        for end in bad[:SLOW_READERS]:
            end.sendall(request[: len(request) // 2])
        for end in bad[SLOW_READERS:]:
            end.setblocking(False)
            try:
                for _ in range(300):
                    end.sendall(request)
            except BlockingIOError:
                pass  # the broker stopped reading: that is the back-pressure
        during = asyncio.run(slowest_send(address, pid))
        slowest = asyncio.run(slowest_send(address, pid))
        grown = resident_bytes(pid) - before
        print(
            f"slowest send: {alone * 1000:.1f} ms of processor time alone, {during * 1000:.1f} ms "
            f"while all of them ask, {slowest * 1000:.1f} ms beside them; "
            f"resident grew by {grown >> 20} MiB"
        )
        assert max(during, slowest) < SEND_CPU_SECONDS_MAX
        assert grown < RESIDENT_BYTES_MAX
    finally:
        for end in bad:
            end.close()


def pull_request() -> bytes:
    """A pull of all that one answer holds."""
    return encode_request(RequestCode.PULL_MESSAGE, 1, pull_ext("topic-0", 0, 0))
