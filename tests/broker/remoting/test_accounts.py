"""Accounts by raw requests: how they are made, changed, removed and kept, codes 50 to 54."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.security.cluster_secrets import ClusterSecrets
from tests.broker.remoting.test_access import ADMIN, ask, denied, guarded, put_account
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return guarded()


async def test_accounts_are_told_changed_and_removed(broker: SingleBroker) -> None:
    async def told(broker: SingleBroker) -> dict[str, Any]:
        answer = await broker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert b"secret" not in answer.body
        found: dict[str, Any] = orjson.loads(answer.body)
        return found

    async def version(broker: SingleBroker) -> object:
        answer = await broker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        assert answer.ext["brokerName"] == "broker-a"
        return answer.ext["version"]

    before = await version(broker)
    await put_account(
        broker,
        "reader-123",
        secretKey="reader-secret",
        defaultTopicPerm="SUB",
        groupPerms="b=SUB,a=DENY",
    )
    assert await version(broker) != before
    await put_account(broker, "reader-123", defaultGroupPerm="SUB", whiteRemoteAddress="10.*.*.*")
    account = (await told(broker))["plainAccessConfigs"][1]
    assert account == {
        "accessKey": "reader-123",
        "admin": False,
        "defaultGroupPerm": "SUB",
        "defaultTopicPerm": "SUB",
        "groupPerms": ["a=DENY", "b=SUB"],
        "topicPerms": [],
        "whiteRemoteAddress": "10.*.*.*",
    }
    gone = await broker.ask(RequestCode.DELETE_ACL_CONFIG, {"accessKey": "reader-123"})
    assert gone.code == 0
    assert [each["accessKey"] for each in (await told(broker))["plainAccessConfigs"]] == [
        ADMIN.access_key
    ]
    again = await broker.ask(RequestCode.DELETE_ACL_CONFIG, {"accessKey": "reader-123"})
    assert again.code == 1


async def test_several_changes_at_once_are_all_made(broker: SingleBroker) -> None:
    await put_account(broker, "reader-123", secretKey="reader-secret")
    answers = await asyncio.gather(
        put_account(broker, "reader-123", defaultTopicPerm="SUB"),
        put_account(broker, "reader-123", defaultGroupPerm="SUB"),
        put_account(broker, "reader-123", admin="no", topicPerms="orders"),
        put_account(broker, "reader-123", topicPerms="orders=PUB"),
    )
    assert [each.code for each in answers] == [0, 0, 1, 0]
    answer = await broker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    account = orjson.loads(answer.body)["plainAccessConfigs"][1]
    assert (account["defaultTopicPerm"], account["defaultGroupPerm"]) == ("SUB", "SUB")
    assert account["topicPerms"] == ["orders=PUB"]


@pytest.mark.parametrize(
    "fields",
    [
        {"accessKey": "short", "secretKey": "long-enough"},
        {"accessKey": "reader-123"},
        {"accessKey": "reader-123", "secretKey": "short"},
        {"accessKey": "reader-123", "secretKey": "long-enough", "defaultTopicPerm": "ALL"},
        {"accessKey": "reader-123", "secretKey": "long-enough", "topicPerms": "a b=PUB"},
        {"accessKey": "reader-123", "secretKey": "long-enough", "whiteRemoteAddress": "ten"},
        {"secretKey": "long-enough"},
        {"accessKey": "dledger-cluster", "secretKey": "long-enough", "admin": "true"},
    ],
)
async def test_what_can_be_no_account_is_refused(
    broker: SingleBroker, fields: dict[str, str]
) -> None:
    answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields)
    assert answer.code == 1
    assert not denied(answer)


async def test_the_global_white_list_needs_no_account(broker: SingleBroker) -> None:
    stranger = RemotingClient(broker.loop)
    code, ext = RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"}
    assert denied(await ask(stranger, code, ext))
    change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    set_to = await broker.ask(change, {"globalWhiteAddrs": "10.0.*.*"})
    assert set_to.code == 0
    assert (await ask(stranger, code, ext)).code == 0
    assert (await broker.ask(change, {"globalWhiteAddrs": ""})).code == 0
    assert denied(await ask(stranger, code, ext))
    await stranger.close()


async def test_an_account_with_a_white_list_needs_no_signature_there_and_may_no_more(
    broker: SingleBroker,
) -> None:
    await put_account(broker, "robot-1234", secretKey="robot-secret", whiteRemoteAddress="10.0.0.2")
    robot = RemotingClient(broker.loop)
    ext = {"AccessKey": "robot-1234", "topic": "TBW102", "queueId": "0"}
    assert (await ask(robot, RequestCode.GET_MAX_OFFSET, ext)).code == 0
    assert denied(await ask(robot, RequestCode.DELETE_TOPIC_IN_BROKER, ext))
    await robot.close()


async def test_the_first_admin_is_written_to_the_log_and_rotated_there(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, **guarded()) as broker:
        assert list(broker.broker.context.machine.state.access) == [ADMIN.access_key]
        changed = await put_account(broker, ADMIN.access_key, secretKey="another-secret")
        assert changed.code == 0
        assert denied(await broker.ask(RequestCode.HEART_BEAT))
    async with running_broker(loop, tmp_path, **guarded()) as broker:
        """``admin.toml`` still has the old key, which the log has replaced."""
        assert denied(await broker.ask(RequestCode.HEART_BEAT))
        admin = broker.client_of(ADMIN.access_key, "another-secret")
        assert (await ask(admin, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {})).code == 0
        await admin.close()


async def test_a_first_admin_that_is_removed_does_not_come_back_by_its_file(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """``admin.toml`` still has its key, which somebody else may know."""
    remove, version = RequestCode.DELETE_ACL_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_INFO
    async with running_broker(loop, tmp_path, **guarded()) as broker:
        await put_account(broker, "second-admin", secretKey="another-secret", admin="true")
        second = broker.client_of("second-admin", "another-secret")
        assert (await ask(second, remove, {"accessKey": ADMIN.access_key})).code == 0
        assert denied(await broker.ask(version))
        assert (await ask(second, version, {})).code == 0
        await second.close()
    async with running_broker(loop, tmp_path, **guarded()) as broker:
        assert denied(await broker.ask(version))
        assert list(broker.broker.context.machine.state.access) == ["second-admin"]


async def test_the_last_admin_stays_one(broker: SingleBroker) -> None:
    await put_account(broker, "reader-123", secretKey="reader-secret")
    name = {"accessKey": ADMIN.access_key}
    refused = [
        await broker.ask(RequestCode.DELETE_ACL_CONFIG, name),
        await put_account(broker, ADMIN.access_key, admin="false"),
    ]
    for answer in refused:
        assert answer.code == 1
        assert "is the last admin" in (answer.remark or "")
    await put_account(broker, "reader-123", admin="true")
    assert (await put_account(broker, ADMIN.access_key, admin="false")).code == 0


async def test_no_file_of_a_node_has_a_secret_key(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, **guarded()) as broker:
        await put_account(broker, "reader-123", secretKey="reader-secret")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"reader-secret" not in path.read_bytes(), path
            assert ADMIN.secret_key.encode() not in path.read_bytes(), path


async def test_a_key_sealed_with_another_secret_is_refused_and_said(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, **guarded()):
        ...
    async with running_broker(
        loop, tmp_path, **guarded(secrets=ClusterSecrets((b"\x08" * 32,), ADMIN))
    ) as broker:
        answer = await broker.ask(RequestCode.HEART_BEAT)
        assert denied(answer)
        assert "another cluster's secret" in (answer.remark or "")


async def test_a_cluster_secret_is_replaced_without_new_keys(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """The new one beside the old, then first and accounts are sealed anew, then alone."""
    old, new = b"\x07" * 32, b"\x08" * 32

    async def check(broker: SingleBroker) -> None:
        reader = broker.client_of("reader-123", "reader-secret")
        ext = {"topic": "TBW102", "queueId": "0"}
        assert (await ask(reader, RequestCode.GET_MAX_OFFSET, ext)).code == 0
        await reader.close()
        answer = await broker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert orjson.loads(answer.body)["plainAccessConfigs"][1]["topicPerms"] == ["t=SUB"]

    async with running_broker(
        loop, tmp_path, **guarded(secrets=ClusterSecrets((old,), ADMIN))
    ) as broker:
        await put_account(broker, "reader-123", secretKey="reader-secret", topicPerms="t=SUB")
    async with running_broker(
        loop, tmp_path, **guarded(secrets=ClusterSecrets((old, new), ADMIN))
    ) as broker:
        await check(broker)
    async with running_broker(
        loop, tmp_path, **guarded(secrets=ClusterSecrets((new, old), ADMIN))
    ) as broker:
        for name in (ADMIN.access_key, "reader-123"):
            assert (await put_account(broker, name)).code == 0
    async with running_broker(
        loop, tmp_path, **guarded(secrets=ClusterSecrets((new,), ADMIN))
    ) as broker:
        await check(broker)


async def test_accounts_cannot_be_changed_where_access_control_is_off(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        answer = await put_account(broker, "mallory-1", secretKey="some-secret", admin="true")
        assert answer.code == 1
        assert "access control is off" in (answer.remark or "")
        assert not broker.broker.context.machine.state.access
