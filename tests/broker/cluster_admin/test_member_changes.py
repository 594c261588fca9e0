"""Changes of members wait for an election, as other commands do."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

import orjson
import pytest

from broker.cluster_admin.admin_client import LEADER_SECONDS, AdminClient, NoLeaderError
from broker.cluster_admin.member_changes import GroupMembers
from broker.remoting.protocol.frame import Frame
from tests.support.virtual_network import NetworkedLoop

ADDRESS = "10.0.0.1:10911"


def group(leaders: Any) -> GroupMembers:
    admin = AsyncMock(spec=AdminClient)
    admin.leader.side_effect = leaders
    body = orjson.dumps({"node": "n0", "leader": "n0", "voters": ["n0"]})
    admin.ask.return_value = Frame(0, 1, body=body)
    return GroupMembers(admin, "broker-a")


async def test_the_members_are_told_after_an_election(loop: NetworkedLoop) -> None:
    electing = NoLeaderError("broker-a has no leader now")
    began = loop.time()
    found = await group([electing, electing, ADDRESS]).members()
    assert found["voters"] == ["n0"]
    assert 0 < loop.time() - began < LEADER_SECONDS


async def test_a_group_that_elects_nobody_is_told(loop: NetworkedLoop) -> None:
    began = loop.time()
    with pytest.raises(NoLeaderError, match="has no leader now"):
        await group(NoLeaderError("broker-a has no leader now")).leader()
    assert loop.time() - began >= LEADER_SECONDS
