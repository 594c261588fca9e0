"""Consumers that are far behind read from a follower."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.config.node_config import broker_id_of
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from store.message.record import iter_records
from tests.broker.single_broker import pull_ext
from tests.cluster.running_cluster import RunningCluster, start_cluster


@pytest.fixture(scope="module")
def wary_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Its leader takes everybody for far behind who has not read the newest message."""
    running = start_cluster(tmp_path_factory.mktemp("wary") / "data", follower_reads_percent=0)
    yield running
    running.stop()


def pull(address: str, offset: int, **changed: str) -> Frame:
    """The answer of one node to a pull from queue 0 of the topic letters."""

    async def ask() -> Frame:
        client = RemotingClient(asyncio.get_running_loop())
        try:
            ext = pull_ext("letters", 0, offset) | changed
            return await client.invoke(address, RequestCode.PULL_MESSAGE, ext, timeout=10.0)
        finally:
            await client.close()

    return asyncio.run(ask())


def test_a_follower_serves_who_is_far_behind_until_he_is_near_again(
    wary_cluster: RunningCluster,
) -> None:
    wary_cluster.dledger("topic", "create", "letters", "--queues", "1")
    wary_cluster.dledger("produce", "letters", stdin="one\ntwo\nthree\n")
    group = wary_cluster.wait_until_level()
    leader = wary_cluster.leader()
    addresses = {
        broker_id_of(node.node.rpartition("/")[2]): node.address
        for node in group.nodes
        if node.address is not None
    }

    first = pull(addresses[broker_id_of(leader)], 0, maxMsgNums="1")
    suggested = int(str(first.ext["suggestWhichBrokerId"]))
    assert suggested in addresses.keys() - {broker_id_of(leader)}

    second = pull(addresses[suggested], 1, maxMsgNums="1")
    assert second.code == ResponseCode.SUCCESS
    assert [record.body for record in iter_records(second.body)] == [b"two"]
    assert second.ext["suggestWhichBrokerId"] == str(suggested)

    last = pull(addresses[suggested], 2)
    assert [record.body for record in iter_records(last.body)] == [b"three"]
    near = pull(addresses[suggested], 3)
    assert (near.code, near.ext["suggestWhichBrokerId"]) == (ResponseCode.PULL_NOT_FOUND, "0")


def test_a_group_may_wish_for_a_certain_follower(wary_cluster: RunningCluster) -> None:
    leader = wary_cluster.leader()
    address = next(
        node.address
        for node in wary_cluster.view().nodes
        if node.node.endswith(f"/{leader}") and node.address is not None
    )

    async def wish(broker_id: int) -> None:
        client = RemotingClient(asyncio.get_running_loop())
        body = b'{"groupName":"readers","whichBrokerWhenConsumeSlowly":%d}' % broker_id
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await client.invoke(address, code, {}, (body,))).code == ResponseCode.SUCCESS
        await client.close()

    wary_cluster.wait_until_level()
    for node in wary_cluster.nodes:
        if node != leader:
            asyncio.run(wish(broker_id_of(node)))
            answer = pull(address, 0, maxMsgNums="1")
            assert answer.code == ResponseCode.SUCCESS, answer
            assert answer.ext["suggestWhichBrokerId"] == str(broker_id_of(node))
