"""A node is replaced only by one that is there, by the command and by the console."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from broker.cli.command_line import run_command
from broker.cli.commands import member
from broker.cluster_admin.admin_client import AdminClient, UnreachableError
from broker.command_error import CommandError
from broker.console.actions.members import Replace
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame

LEADER, LOST, NEW, OTHERS = "a:1", "a:2", "a:3", "b:1"


class Group(AdminClient):
    """broker-a, whose n2 is lost; a new n2 waits at :data:`NEW`. Notes the changes of members."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    async def leader(self, group: str) -> str:
        assert group == "broker-a"
        return LEADER

    async def ask(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        *_given: Any,
        **_named: Any,
    ) -> Frame:
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            name = {NEW: "broker-a", OTHERS: "broker-b"}.get(address)
            if name is None:
                raise UnreachableError(f"cannot connect to {address}")
            own = orjson.dumps({"peer": "p", "client": address, "http": "h"}).decode()
            return answer(
                {"table": {"raftGroup": name, "raftNode": "n2", "raftOwnMember": own}},
            )
        if code == RequestCode.CHANGE_GROUP_MEMBERS:
            self.changes.append(str((ext or {})["action"]))
        voters = ["n0", "n1", *([] if self.changes[-1:] == ["remove"] else ["n2"])]
        place = {"address": LOST, "peer": "p", "http": "h", "lag_entries": 0, "incarnation": "1"}
        return answer(
            {
                "group": "broker-a",
                "node": "n0",
                "leader": "n0",
                "voters": voters,
                "old_voters": [],
                "learners": [],
                "members": {"n2": place},
            }
        )


def answer(document: object) -> Frame:
    return Frame(0, 1, body=orjson.dumps(document))


@pytest.mark.parametrize(
    ("address", "told"), [("a:9", "cannot connect to a:9"), (OTHERS, "at b:1 is broker-b/n2")]
)
async def test_the_console_removes_nothing_for_a_mistyped_address(address: str, told: str) -> None:
    group = Group()
    visit: Any = SimpleNamespace(admin=group)
    values = {"group": "broker-a", "node": "n2", "address": address}
    with pytest.raises(CommandError, match=told):
        await Replace().run(visit, values)
    assert group.changes == []


async def test_the_console_replaces_a_node_by_the_new_one() -> None:
    group = Group()
    visit: Any = SimpleNamespace(admin=group)
    await Replace().run(visit, {"group": "broker-a", "node": "n2", "address": NEW})
    assert group.changes == ["remove", "add"]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    """Commands ask this group."""
    group = Group()

    def run(_namesrv: str, work: Callable[[AdminClient], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(work(group))

    monkeypatch.setattr(member, "run_admin", run)
    monkeypatch.setattr(member, "local_cluster", lambda *_: None)
    return group


def test_the_command_removes_nothing_for_a_mistyped_address(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["member", "replace", "broker-a", "n2", "a:9"]) == 1
    assert "cannot connect to a:9" in capsys.readouterr().err
    assert group.changes == []
    assert run_command(["member", "replace", "broker-a", "n2", NEW]) == 0
    assert group.changes == ["remove", "add"]


def test_members_are_shown_with_their_group_too(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["member", "list", "broker-a", "--json"]) == 0
    shown = orjson.loads(capsys.readouterr().out)
    assert (shown["leader"], shown["leader_node"]) == ("n0", "broker-a/n0")
    assert shown["voters"] == ["n0", "n1", "n2"]
    assert shown["voter_nodes"] == ["broker-a/n0", "broker-a/n1", "broker-a/n2"]
    assert shown["members"]["n2"]["node"] == "broker-a/n2"


def test_a_node_may_be_named_with_its_group(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["member", "replace", "broker-a", "broker-a/n2", NEW]) == 0
    assert group.changes == ["remove", "add"]
    assert run_command(["member", "replace", "broker-a", "broker-b/n2", NEW]) == 2
    assert "'broker-b/n2' is not a node" in capsys.readouterr().err
