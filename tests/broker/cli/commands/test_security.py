"""``dledger security``: each group has the accounts in its own log, and none is passed over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import orjson
import pytest

from broker.cli.command_line import run_command
from broker.cli.commands import security
from broker.cluster_admin import admin_client
from broker.cluster_admin.admin_client import AdminClient, RefusedError
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame

NOTHING_ALLOWED = {
    "admin": False,
    "defaultTopicPerm": "DENY",
    "defaultGroupPerm": "DENY",
    "topicPerms": [],
    "groupPerms": [],
    "whiteRemoteAddress": "",
}


class Groups(AdminClient):
    """Broker groups with the access keys of their accounts; ``gone`` ones have no node. A group's
    leader has the group's name as its address. If it is in ``deposed``, it makes the first change
    and then answers that it leads no more."""

    def __init__(
        self, *, gone: tuple[str, ...] = (), deposed: tuple[str, ...] = (), **accounts: list[str]
    ) -> None:
        self.accounts = accounts
        self.keys: dict[str, set[object]] = {name: set() for name in accounts}
        """The secret keys that each group was told."""
        self._gone = gone
        self._deposed = list(deposed)

    async def ask_namesrv(
        self, code: RequestCode, ext: Mapping[str, object] | None = None
    ) -> Frame:
        brokers = {name: {"brokerAddrs": {"0": name}} for name in self.accounts}
        gone = {name: {"goneMillis": 1_000, "members": {}} for name in self._gone}
        return answer({"brokerAddrTable": brokers, "goneTable": gone})

    async def ask(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        *_given: Any,
        **_named: Any,
    ) -> Frame:
        known, ext = self.accounts[address], ext or {}
        if code == RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG:
            told = [{"accessKey": name, **NOTHING_ALLOWED} for name in known]
            return answer({"plainAccessConfigs": told})
        name = str(ext["accessKey"])
        if code == RequestCode.DELETE_ACL_CONFIG:
            known.remove(name)
        elif name not in known:
            known.append(name)
        self.keys[address].add(ext.get("secretKey"))
        if address in self._deposed:
            self._deposed.remove(address)
            raise RefusedError(address, ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader")
        return answer({})


def answer(document: object) -> Frame:
    return Frame(0, 1, body=orjson.dumps(document))


Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(admin_client, "ASK_AGAIN_SECONDS", 0)

    def command(groups: Groups, *words: str) -> tuple[int, Any, str]:
        """Runs the command; returns exit code, document and stderr."""

        def run(_namesrv: str, work: Callable[[AdminClient], Coroutine[Any, Any, Any]]) -> Any:
            return asyncio.run(work(groups))

        monkeypatch.setattr(security, "run_admin", run)
        monkeypatch.setattr(security, "run_on_leaders", run)
        code = run_command(["security", *words, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return command


def test_a_group_without_a_node_is_told(command: Run) -> None:
    for words in (
        ("add", "new-app"),
        ("set", "first-app", "--new-key"),
        ("remove", "first-app", "--yes"),
    ):
        groups = Groups(gone=("b",), a=["first-app"])
        code, document, told = command(groups, "user", *words)
        assert code == 1, words
        assert document["unregistered_groups"] == document["gone_groups"] == ["b"]
        assert "no node of b is registered" in told
        assert groups.accounts["a"] == {"add": ["first-app", "new-app"], "remove": []}.get(
            words[0], ["first-app"]
        )


@pytest.mark.parametrize("deposed", [("b",), ("a", "b")])
def test_a_change_of_the_leader_does_not_leave_an_account_in_half_of_the_groups(
    command: Run, deposed: tuple[str, ...]
) -> None:
    groups = Groups(deposed=deposed, a=[], b=[])
    code, document, told = command(groups, "user", "add", "first-app")
    assert (code, told) == (0, "")
    assert groups.accounts == {"a": ["first-app"], "b": ["first-app"]}
    assert groups.keys == {name: {document["secret_key"]} for name in "ab"}

    groups = Groups(deposed=deposed, a=["first-app"], b=["first-app"])
    assert command(groups, "user", "remove", "first-app", "--yes")[0] == 0
    assert groups.accounts == {"a": [], "b": []}


def test_a_change_makes_no_account_where_there_is_none(command: Run) -> None:
    for words in (("set", "first-app", "--new-key"), ("add", "first-app")):
        groups = Groups(a=["first-app"], b=[])
        code, _, told = command(groups, "user", *words)
        assert code == 1
        assert "first-app is not on b" in told
        assert groups.accounts == {"a": ["first-app"], "b": []}
        assert groups.keys == {"a": set(), "b": set()}


def test_an_account_that_is_there_or_not_is_told(command: Run) -> None:
    for words, told in (
        (("add", "first-app"), "there is an account first-app"),
        (("set", "second-app", "--new-key"), "there is no account second-app"),
        (("remove", "second-app", "--yes"), "there is no account second-app"),
    ):
        code, _, err = command(Groups(a=["first-app"], b=["first-app"]), "user", *words)
        assert code == 1
        assert told in err


def test_keys_are_not_sealed_again_without_a_word_in_a_group_without_a_node(command: Run) -> None:
    code, document, told = command(Groups(gone=("b",), a=["first-app", "second-app"]), "reseal")
    assert code == 1
    assert document == {"resealed": 2, "unregistered_groups": ["b"], "gone_groups": ["b"]}
    assert "no node of b is registered" in told


def test_without_any_group_nothing_is_said_to_be_done(command: Run) -> None:
    for words in (("reseal",), ("user", "add", "first-app")):
        code, document, told = command(Groups(gone=("b",)), *words)
        assert (code, document) == (1, None)
        assert "no broker" in told


@pytest.mark.parametrize(
    ("accounts", "begins"),
    [
        ([], "there is no account; `dledger security user add NAME` makes one"),
        (["a"], "ACCESS KEY"),
    ],
    ids=["none", "one"],
)
def test_no_account_is_said_instead_of_an_empty_table(
    accounts: list[str],
    begins: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(_namesrv: str, work: Callable[[AdminClient], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(work(Groups(a=accounts)))

    monkeypatch.setattr(security, "run_on_leaders", run)
    assert run_command(["security", "user", "list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith(begins)
    assert len(rows) == len(accounts)
