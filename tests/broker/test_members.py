"""What a leader tells NameServers of the members of its group."""

from __future__ import annotations

from pathlib import Path

from broker.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import SingleBroker, with_broker

LEARNER = {
    "action": "add",
    "node": "n1",
    "peerAddr": "127.0.0.1:40912",
    "brokerAddr": "127.0.0.1:10912",
    "httpAddr": "127.0.0.1:8081",
}


def test_the_announcement_names_the_members_that_the_log_says(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        own = str(broker.config.own.address)
        assert broker.broker.announcement().members == (own,)
        added = await broker.ask(RequestCode.CHANGE_GROUP_MEMBERS, LEARNER)
        assert added.code == ResponseCode.SUCCESS
        assert broker.broker.announcement().members == (own, "127.0.0.1:10912")
        removal = {"action": "remove", "node": "n1"}
        removed = await broker.ask(RequestCode.CHANGE_GROUP_MEMBERS, removal)
        assert removed.code == ResponseCode.SUCCESS
        assert broker.broker.announcement().members == (own,)

    with_broker(scenario, tmp_path)
