"""A group is created where there is none, by the command and by the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from broker.cluster_admin.admin_client import AdminClient
from broker.cluster_admin.consumer_groups import create_group
from broker.command_error import CommandError
from broker.console.actions.groups import CreateGroup
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame

KEPT = {"groupName": "g", "retryMaxTimes": 3, "consumeEnable": False}


class Groups(AdminClient):
    """Broker groups a and b with the settings of the consumer group g."""

    def __init__(self, **configs: dict[str, Any] | None) -> None:
        self.configs = configs

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        return {name: name for name in self.configs}

    async def ask(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        body: Sequence[bytes] = (),
        **_named: Any,
    ) -> Frame:
        if code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            self.configs[address] = orjson.loads(b"".join(body))
        config = self.configs[address]
        table = {} if config is None else {"g": config}
        return Frame(0, 1, body=orjson.dumps({"subscriptionGroupTable": table}))


async def test_a_group_is_created_only_where_there_is_none() -> None:
    groups = Groups(a=dict(KEPT), b=None)
    await create_group(groups, "g", {"retryMaxTimes": 5})
    assert groups.configs == {"a": KEPT, "b": {"groupName": "g", "retryMaxTimes": 5}}
    with pytest.raises(CommandError, match="there is a group g"):
        await create_group(groups, "g", {})


async def test_so_does_the_console() -> None:
    groups = Groups(a=dict(KEPT), b=None)
    visit: Any = SimpleNamespace(admin=groups)
    values = {"group": "g", "retry_max": "5"}
    assert "on 1 broker group?" in (await CreateGroup().preview(visit, values)).question
    await CreateGroup().run(visit, values)
    assert groups.configs == {"a": KEPT, "b": {"groupName": "g", "retryMaxTimes": 5}}
