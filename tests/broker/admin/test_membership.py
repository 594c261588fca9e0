"""What a leader tells NameServers of the members of its group."""

from __future__ import annotations

from broker.admin.membership import member_addresses
from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from dledger.raft.configuration import Configuration, MemberAddress
from dledger.wire.endpoint import Endpoint
from tests.broker.single_broker import SingleBroker

LEARNER = {
    "action": "add",
    "node": "n1",
    "peerAddr": "127.0.0.1:40912",
    "brokerAddr": "127.0.0.1:10912",
    "httpAddr": "127.0.0.1:8081",
}


async def test_the_announcement_names_the_members_that_the_log_says(broker: SingleBroker) -> None:
    own = str(broker.config.own.address)
    assert broker.broker.announcements.current().members == (own,)
    added = await broker.ask(RequestCode.CHANGE_GROUP_MEMBERS, LEARNER)
    assert added.code == ResponseCode.SUCCESS
    assert broker.broker.announcements.current().members == (own, "127.0.0.1:10912")
    removal = {"action": "remove", "node": "n1"}
    removed = await broker.ask(RequestCode.CHANGE_GROUP_MEMBERS, removal)
    assert removed.code == ResponseCode.SUCCESS
    assert broker.broker.announcements.current().members == (own,)


def test_a_node_names_its_own_addresses_and_not_those_that_it_was_added_with() -> None:
    before = MemberAddress("10.0.0.9:1", "10.0.0.9:2", "10.0.0.9:3")
    now = Member(*(Endpoint("10.0.0.1", port) for port in (1, 2, 3)))
    config = NodeConfig(
        group="broker-a",
        node="n1",
        data="/x",
        members={"n1": now},
        namesrv=("10.0.0.1:9876",),
        join=True,
    )
    configuration = Configuration(("n0", "n1"), addresses={"n0": before, "n1": before})
    assert member_addresses(config, configuration) == {
        "n0": before,
        "n1": MemberAddress("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"),
    }
