"""Lists name the groups without a registered node, and no list is empty where nobody answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from types import ModuleType
from typing import Any

import pytest

from broker.cli.commands import dlq, group, topic
from broker.cli.main import main
from broker.cluster_admin.admin_client import AdminClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame
from tests.broker.cli.commands.test_member_replace import answer

ADDRESS = "10.0.0.1:10911"
TOLD = "no node of broker-b is registered any more"


class NameServer(AdminClient):
    """Knows broker-a, which has neither topics nor groups, or no broker; broker-b is gone."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names_known = names

    async def ask_namesrv(
        self, code: RequestCode, ext: Mapping[str, object] | None = None
    ) -> Frame:
        if code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return answer({"topicList": []})
        gone = {"broker-b": {"goneMillis": 1000, "members": {}}}
        return answer({"brokerAddrTable": self._names_known, "goneTable": gone})

    async def ask(self, *_: Any, **__: Any) -> Frame:
        return answer({"groups": []})


LISTS: list[tuple[ModuleType, str, str]] = [
    (topic, "topic", "run_admin"),
    (dlq, "dlq", "run_on_leaders"),
    (group, "group", "run_on_leaders"),
]


@pytest.mark.parametrize(("module", "name", "run"), LISTS)
@pytest.mark.parametrize("names", [{}, {"broker-a": {"brokerAddrs": {"0": ADDRESS}}}])
def test_a_list_tells_whose_part_is_missing(
    *,
    module: ModuleType,
    name: str,
    run: str,
    names: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def asked(_: str, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(work(NameServer(names)))

    monkeypatch.setattr(module, run, asked)
    status = main((name, "list", "--json"))
    told = capsys.readouterr()
    if names:
        assert status == 0
        assert json.loads(told.out)["unregistered_groups"] == ["broker-b"]
        assert told.err == f"dledger {name} list: {TOLD}: what only it has is missing here\n"
    else:
        assert status == 1
        assert not told.out
        assert (
            told.err == f"dledger {name} list: no broker is registered: {TOLD}; start its nodes\n"
        )
