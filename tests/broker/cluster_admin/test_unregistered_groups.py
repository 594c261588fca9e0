"""A group without a registered node may have what nobody else has: none calls that unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from broker.cluster_admin.admin_client import (
    AdminClient,
    NoLeaderError,
    NoTopicError,
    open_admin,
)
from broker.cluster_admin.consumer_group_views import find_group, group_names
from broker.cluster_admin.message_lookup import find_by_id, trace_events
from broker.cluster_admin.settings import leaders_by_group
from broker.command_error import CommandError, UsageError
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import MISSING, RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from broker.security.credentials import NO_SECURITY
from tests.support.virtual_network import NetworkedLoop

ADDRESS = "10.0.0.1:10911"
MESSAGE = "7F00000100002A9F0000000000001000"
GONE = "no node of broker-b is registered any more"


@asynccontextmanager
async def cluster(
    loop: NetworkedLoop, addresses: Mapping[str, Mapping[int, str]]
) -> AsyncIterator[AdminClient]:
    """A NameServer that is the broker too, and knows no topic. ``addresses``: those of registered
    groups; broker-b is gone."""
    table = {
        name: {"cluster": "DefaultCluster", "brokerName": name, "brokerAddrs": given}
        for name, given in addresses.items()
    }
    gone = {"broker-b": {"cluster": "DefaultCluster", "goneMillis": 1000, "members": {}}}
    bodies: dict[int, Any] = {
        RequestCode.GET_BROKER_CLUSTER_INFO: {"brokerAddrTable": table, "goneTable": gone},
        RequestCode.GET_CONSUMER_GROUPS: {"groups": []},
    }

    def serve(connection: Connection, request: Frame) -> None:
        if request.code in bodies:
            body = orjson.dumps(bodies[request.code], option=orjson.OPT_NON_STR_KEYS)
            connection.respond(request, body=[body])
        elif request.code == RequestCode.VIEW_MESSAGE_BY_ID:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, "none", {MISSING: "true"})
        else:
            connection.respond(request, ResponseCode.TOPIC_NOT_EXIST, "no route")

    server = RemotingServer(loop, "10.0.0.1", 10911, serve)
    await server.start()
    async with open_admin(ADDRESS, NO_SECURITY) as admin:
        yield admin
    await server.stop()


Work = Callable[[AdminClient], Awaitable[object]]
LOOKS: dict[str, Work] = {
    "route": lambda admin: admin.route("orders"),
    "message": lambda admin: find_by_id(admin, MESSAGE),
    "trace": lambda admin: trace_events(admin, MESSAGE),
    "group": lambda admin: find_group(admin, "billing"),
    "settings": lambda admin: leaders_by_group(admin, "broker-b"),
}
LISTS: dict[str, Work] = {
    "groups": group_names,
    "masters": lambda admin: admin.masters("DefaultCluster"),
    "unregistered": lambda admin: admin.unregistered(),
}


@pytest.mark.parametrize("look", LOOKS)
async def test_nothing_is_called_unknown_that_a_group_may_have(
    loop: NetworkedLoop, look: str
) -> None:
    async with cluster(loop, {"broker-a": {0: ADDRESS}}) as admin:
        with pytest.raises(CommandError, match=GONE):
            await LOOKS[look](admin)


@pytest.mark.parametrize("work", [name for name in {**LOOKS, **LISTS} if name != "settings"])
async def test_where_no_broker_is_registered_nothing_is_known(
    loop: NetworkedLoop, work: str
) -> None:
    async with cluster(loop, {}) as admin:
        with pytest.raises(CommandError, match=f"^no broker is registered: {GONE}; start its node"):
            await {**LOOKS, **LISTS}[work](admin)


async def test_a_group_is_led_whatever_the_others_are_like(loop: NetworkedLoop) -> None:
    async with cluster(loop, {"broker-a": {0: ADDRESS}, "broker-c": {2: ADDRESS}}) as admin:
        assert await leaders_by_group(admin, "broker-a") == {"broker-a": ADDRESS}
        with pytest.raises(NoLeaderError, match="broker-c has no leader now"):
            await admin.leader("broker-c")
        with pytest.raises(UsageError, match="there is no group 'x'; known are: broker-a, broke"):
            await admin.leader("x")


def test_the_words_for_a_topic_that_there_is_not() -> None:
    assert "topic t does not exist in the source cluster; `dl" in str(NoTopicError("t", "source"))
    told = "no registered broker has topic t in the source cluster, but no node of b, c is registe"
    assert told in str(NoTopicError("t", "source", ["b", "c"]))
