"""Consumers written by others on a cluster whose leader takes everything for long out of memory.

So a new group decides by itself where it begins, and who has not read the newest message reads
from a follower.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from broker.cluster_admin.admin_client import document_of, run_admin
from broker.remoting.protocol.codes import RequestCode
from tests.clients.consumer_processes import Member, members
from tests.clients.test_groups import produce
from tests.cluster.running_cluster import RunningCluster, start_cluster


@pytest.fixture(scope="module")
def forgetful_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Its memory holds nothing, by its own reckoning."""
    running = start_cluster(tmp_path_factory.mktemp("forgetful") / "data", follower_reads_percent=0)
    yield running
    running.stop()


def next_second() -> str:
    """The beginning of the next second, once it is there, as the client writes times.

    Of that second by name: ``strftime`` and ``localtime`` without a time read a coarser clock,
    which is still in the second before for some milliseconds.
    """
    coming = int(time.time()) + 1
    while time.time() < coming:
        time.sleep(0.02)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(coming))


def reads_the_queue(member: Member) -> None:
    member.wait(lambda: member.queues == [0], "the queue is its own")


def begins_with(member: Member) -> int:
    """The first message that came, once one has."""
    member.wait(lambda: bool(member.got), "a message")
    return member.numbers[0]


def gets(member: Member, numbers: list[int]) -> None:
    member.wait(lambda: len(member.got) >= len(numbers), f"messages {numbers}")
    assert member.numbers == numbers
    member.leave()


def messages_from(cluster: RunningCluster, node: str) -> int:
    """How many messages a node has given to consumers."""
    address = next(seen.address for seen in cluster.view().nodes if seen.node.endswith(f"/{node}"))
    assert address is not None
    answer = run_admin(
        cluster.namesrv, lambda admin: admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    )
    return int(document_of(answer)["table"]["getMessages"])


def test_a_new_group_begins_with_the_first_message_the_last_or_that_of_a_time(
    forgetful_cluster: RunningCluster,
) -> None:
    forgetful_cluster.dledger("topic", "create", "dated", "--queues", "1")
    produce(forgetful_cluster, "dated", range(3))
    between = next_second()
    produce(forgetful_cluster, "dated", range(3, 6))
    with (
        members(forgetful_cluster, "dated", "from_first") as first,
        members(forgetful_cluster, "dated", "from_time") as timed,
        members(forgetful_cluster, "dated", "from_last") as last,
    ):
        all_of_them = [
            first(),
            timed(**{"from": "CONSUME_FROM_TIMESTAMP", "time": between}),
            last(**{"from": "CONSUME_FROM_LAST_OFFSET"}),
        ]
        for member in all_of_them:
            reads_the_queue(member)
        newest = 5
        while not all_of_them[-1].got:
            newest += 1  # it may not have asked yet where the queue ends
            produce(forgetful_cluster, "dated", [newest])
        gets(all_of_them[0], list(range(newest + 1)))
        # Of the message before a time and that behind it, RocketMQ 4.9 takes the nearer one.
        for member, may_begin in ((all_of_them[1], (2, 3)), (all_of_them[2], range(6, newest + 1))):
            assert begins_with(member) in may_begin
            gets(member, list(range(begins_with(member), newest + 1)))


def test_a_client_follows_when_it_is_sent_to_a_follower(forgetful_cluster: RunningCluster) -> None:
    forgetful_cluster.dledger("topic", "create", "long", "--queues", "1")
    produce(forgetful_cluster, "long", range(200))
    with members(forgetful_cluster, "long", "laggards") as join:
        gets(join(), list(range(200)))
    followers = [node for node in forgetful_cluster.nodes if node != forgetful_cluster.leader()]
    assert sum(messages_from(forgetful_cluster, node) for node in followers) > 0
