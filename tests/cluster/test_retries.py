"""Requests that are sent again to a real cluster whose leader was killed: stored once."""

from __future__ import annotations

import asyncio

from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.frame import Frame
from tests.broker.single_broker import send_ext
from tests.cluster.running_cluster import RunningCluster

REQUESTS = 200
RETRY_SECONDS = 0.1
TRIES = 100


def requests(topic: str) -> list[tuple[dict[str, str], bytes]]:
    """As clients of RocketMQ send them, each message with a unique key of its own."""
    return [
        (send_ext(topic, n % 4, f"UNIQ_KEY\x017F00000100002A9F{n:016X}\x02"), b"%d" % n)
        for n in range(REQUESTS)
    ]


async def send_all(address: str, topic: str) -> list[Frame]:
    """The answers; tried again while the node does not lead yet."""
    client = RemotingClient(asyncio.get_running_loop())

    async def send(ext: dict[str, str], body: bytes) -> Frame:
        for _ in range(TRIES):
            try:
                answer = await client.invoke(
                    address, RequestCode.SEND_MESSAGE_V2, ext, (body,), timeout=3
                )
                if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                    return answer
            except CallError:
                pass
            await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError(f"no answer to {body!r}")

    try:
        return await asyncio.gather(*(send(*each) for each in requests(topic)))
    finally:
        await client.close()


def leader_address(cluster: RunningCluster) -> str:
    leader = f"{cluster.group}/{cluster.leader()}"
    address = next(node.address for node in cluster.view().nodes if node.node == leader)
    assert address is not None
    return address


def test_the_next_leader_answers_retries_as_the_killed_one_did(cluster: RunningCluster) -> None:
    cluster.dledger("topic", "create", "orders", "--queues", "4")
    first = asyncio.run(send_all(leader_address(cluster), "orders"))
    killed = cluster.leader()
    cluster.kill(killed)
    again = asyncio.run(send_all(leader_address(cluster), "orders"))
    assert [answer.ext for answer in again] == [answer.ext for answer in first]
    assert {answer.code for answer in again} == {ResponseCode.SUCCESS}
    lines = cluster.dledger(
        "consume", "orders", "--group", "g", "--from", "earliest", "--count", str(REQUESTS)
    ).stdout.split()
    assert sorted(map(int, lines)) == list(range(REQUESTS))
    queues = cluster.ask("topic", "describe", "orders")["queues"]
    assert sum(queue["max_offset"] for queue in queues) == REQUESTS
