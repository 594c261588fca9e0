"""Access control over the remoting port, by raw requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.config.security_config import ENFORCING, PERMISSIVE, SecurityConfig
from broker.remoting.client import RemotingClient
from broker.remoting.processors.request_access import ALWAYS_ENFORCED, BROKER_ACCESS
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame
from broker.security.authorize import Access, Action
from broker.security.cluster_secrets import ClusterSecrets
from broker.security.credentials import ClientSecurity, Credentials
from tests.broker.single_broker import (
    ADDRESS,
    SingleBroker,
    messages,
    pull_ext,
    send_ext,
    with_broker,
)

ADMIN = Credentials("admin-1234", "admin-secret")
SECRETS = ClusterSecrets((b"\x07" * 32,), ADMIN)
CODE_DENIED = 1


def with_access(
    scenario: Callable[[SingleBroker], Coroutine[Any, Any, None]],
    data: Path,
    *,
    mode: str = ENFORCING,
    secrets: ClusterSecrets = SECRETS,
    client: Credentials | None = ADMIN,
) -> None:
    """Runs a scenario with a broker whose client is the first admin."""
    with_broker(
        scenario,
        data,
        secrets=secrets,
        client_security=ClientSecurity(client),
        security=SecurityConfig(directory="/s", access_control=mode),
    )


async def put_account(broker: SingleBroker, access_key: str, **fields: str) -> Frame:
    return await broker.ask(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": access_key, **fields}
    )


async def ask(client: RemotingClient, code: int, ext: dict[str, str], body: bytes = b"") -> Frame:
    return await client.invoke(ADDRESS, code, ext, (body,), timeout=60)


def denied(answer: Frame) -> bool:
    return answer.code == CODE_DENIED and (answer.remark or "").startswith("AclException: ")


def test_every_code_that_is_handled_has_a_row_and_no_other_has(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        assert broker.broker.handlers.keys() == BROKER_ACCESS.keys()
        assert BROKER_ACCESS.keys() >= ALWAYS_ENFORCED

    with_broker(scenario, tmp_path)


def test_nobody_may_do_anything_without_an_account(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        for code in BROKER_ACCESS:
            answer = await broker.ask(code)
            assert denied(answer), (code, answer)
        assert (await broker.ask(4711)).code == CODE_DENIED
        assert broker.broker.context.access is not None
        assert broker.broker.context.access.refused == len(BROKER_ACCESS) + 1

    with_access(scenario, tmp_path, client=None)


def test_a_signature_by_the_wrong_key_or_an_unknown_account_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        for keys in (("admin-1234", "admin-secreT"), ("nobody-123", "admin-secret")):
            stranger = broker.client_of(*keys)
            answer = await ask(stranger, RequestCode.SEND_MESSAGE_V2, send_ext("orders", 0), b"x")
            assert denied(answer)
            assert "admin-secre" not in (answer.remark or "")
            await stranger.close()

    with_access(scenario, tmp_path)


def test_accounts_may_send_and_consume_what_their_permissions_say(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        await broker.create_topic("bills")
        made = await put_account(
            broker, "writer-123", secretKey="writer-secret", topicPerms="orders=PUB"
        )
        assert made.code == 0, made
        made = await put_account(
            broker,
            "reader-123",
            secretKey="reader-secret",
            topicPerms="orders=SUB",
            groupPerms="readers=SUB",
        )
        assert made.code == 0, made
        writer = broker.client_of("writer-123", "writer-secret")
        reader = broker.client_of("reader-123", "reader-secret")
        send, pull = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
        stored = await ask(writer, send, send_ext("orders", 0), b"paid")
        assert stored.code == 0, stored
        assert denied(await ask(writer, send, send_ext("bills", 0), b"x"))
        assert denied(await ask(writer, pull, pull_ext("orders", 0, 0)))
        assert denied(await ask(reader, send, send_ext("orders", 0), b"x"))
        assert denied(await ask(reader, pull, pull_ext("bills", 0, 0)))
        other = pull_ext("orders", 0, 0) | {"consumerGroup": "others"}
        assert denied(await ask(reader, pull, other))
        found = await ask(reader, pull, pull_ext("orders", 0, 0))
        assert [each.body for each in messages(found)] == [b"paid"]
        by_id = {"offset": str(messages(found)[0].position)}
        assert denied(await ask(reader, RequestCode.VIEW_MESSAGE_BY_ID, by_id))
        assert denied(await ask(reader, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}))
        assert await ask(reader, RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        await writer.close()
        await reader.close()

    with_access(scenario, tmp_path)


def test_a_message_is_sent_back_only_by_who_may_consume_it(tmp_path: Path) -> None:
    """Its place alone could name any message: the topic that is told must be its own."""

    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        await broker.create_topic("own")
        await put_account(
            broker,
            "reader-123",
            secretKey="reader-secret",
            topicPerms="own=PUB|SUB",
            groupPerms="readers=SUB",
        )
        await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group("readers"))
        reader = broker.client_of("reader-123", "reader-secret")
        stored = await broker.send("orders", 0, b"secret")
        position = int(str(stored.ext["msgId"])[16:], 16)
        ext = {"offset": str(position), "group": "readers", "delayLevel": "0"}
        for named in ({}, {"originTopic": "orders"}, {"originTopic": "own"}):
            answer = await ask(reader, RequestCode.CONSUMER_SEND_MSG_BACK, ext | named)
            assert denied(answer), named
        mine = await ask(reader, RequestCode.SEND_MESSAGE_V2, send_ext("own", 0), b"x")
        ext["offset"] = str(int(str(mine.ext["msgId"])[16:], 16))
        ext["originTopic"] = "own"
        assert (await ask(reader, RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == 0
        await reader.close()

    with_access(scenario, tmp_path)


def group(name: str) -> bytes:
    return orjson.dumps({"groupName": name, "retryQueueNums": 1})


def test_a_heartbeat_needs_its_groups_and_topics(tmp_path: Path) -> None:
    def heartbeat(group_name: str, topic: str) -> bytes:
        return orjson.dumps(
            {
                "clientID": "c@1",
                "producerDataSet": [{"groupName": "anything"}],
                "consumerDataSet": [
                    {
                        "groupName": group_name,
                        "subscriptionDataSet": [
                            {"topic": topic, "subString": "*"},
                            {"topic": f"%RETRY%{group_name}", "subString": "*"},
                        ],
                    }
                ],
            }
        )

    async def scenario(broker: SingleBroker) -> None:
        await put_account(
            broker,
            "reader-123",
            secretKey="reader-secret",
            topicPerms="orders=SUB",
            groupPerms="readers=SUB",
        )
        reader = broker.client_of("reader-123", "reader-secret")
        code = RequestCode.HEART_BEAT
        assert (await ask(reader, code, {}, heartbeat("readers", "orders"))).code == 0
        assert denied(await ask(reader, code, {}, heartbeat("others", "orders")))
        assert denied(await ask(reader, code, {}, heartbeat("readers", "bills")))
        await reader.close()

    with_access(scenario, tmp_path)


def test_permissive_lets_all_pass_and_counts_but_for_accounts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: SingleBroker) -> None:
        with caplog.at_level(logging.WARNING):
            await broker.create_topic("orders")
            assert (await broker.send("orders", 0, b"x")).code == 0
        access = broker.broker.context.access
        assert access is not None
        assert access.refused == 2
        assert "would be refused: AclException: the request is not signed" in caplog.text
        for code in ALWAYS_ENFORCED:
            assert denied(await broker.ask(code, {"accessKey": "mallory-1", "admin": "true"}))
        stranger = broker.client_of("nobody-123", "some-secret")
        assert (await ask(stranger, RequestCode.HEART_BEAT, {}, b"no JSON")).code == CODE_DENIED
        await stranger.close()

    with_access(scenario, tmp_path, mode=PERMISSIVE, client=None)


def test_accounts_are_told_changed_and_removed(tmp_path: Path) -> None:
    async def told(broker: SingleBroker) -> dict[str, Any]:
        answer = await broker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert b"secret" not in answer.body
        found: dict[str, Any] = orjson.loads(answer.body)
        return found

    async def version(broker: SingleBroker) -> object:
        answer = await broker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        assert answer.ext["brokerName"] == "broker-a"
        return answer.ext["version"]

    async def scenario(broker: SingleBroker) -> None:
        before = await version(broker)
        await put_account(
            broker,
            "reader-123",
            secretKey="reader-secret",
            defaultTopicPerm="SUB",
            groupPerms="b=SUB,a=DENY",
        )
        assert await version(broker) != before
        await put_account(
            broker, "reader-123", defaultGroupPerm="SUB", whiteRemoteAddress="10.*.*.*"
        )
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

    with_access(scenario, tmp_path)


def test_several_changes_at_once_are_all_made(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
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

    with_access(scenario, tmp_path)


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
    ],
)
def test_what_can_be_no_account_is_refused(tmp_path: Path, fields: dict[str, str]) -> None:
    async def scenario(broker: SingleBroker) -> None:
        answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields)
        assert answer.code == 1
        assert not denied(answer)

    with_access(scenario, tmp_path)


def test_the_global_white_list_needs_no_account(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
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

    with_access(scenario, tmp_path)


def test_an_account_with_a_white_list_needs_no_signature_there_and_may_no_more(
    tmp_path: Path,
) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await put_account(
            broker, "robot-1234", secretKey="robot-secret", whiteRemoteAddress="10.0.0.2"
        )
        robot = RemotingClient(broker.loop)
        ext = {"AccessKey": "robot-1234", "topic": "TBW102", "queueId": "0"}
        assert (await ask(robot, RequestCode.GET_MAX_OFFSET, ext)).code == 0
        assert denied(await ask(robot, RequestCode.DELETE_TOPIC_IN_BROKER, ext))
        await robot.close()

    with_access(scenario, tmp_path)


def test_the_first_admin_is_written_to_the_log_and_rotated_there(tmp_path: Path) -> None:
    async def begin(broker: SingleBroker) -> None:
        assert list(broker.broker.context.machine.state.access) == [ADMIN.access_key]
        changed = await put_account(broker, ADMIN.access_key, secretKey="another-secret")
        assert changed.code == 0
        assert denied(await broker.ask(RequestCode.HEART_BEAT))

    async def later(broker: SingleBroker) -> None:
        """``admin.toml`` still has the old key, which the log has replaced."""
        assert denied(await broker.ask(RequestCode.HEART_BEAT))
        admin = broker.client_of(ADMIN.access_key, "another-secret")
        assert (await ask(admin, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {})).code == 0
        await admin.close()

    with_access(begin, tmp_path)
    with_access(later, tmp_path)


def test_no_file_of_a_node_has_a_secret_key(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await put_account(broker, "reader-123", secretKey="reader-secret")

    with_access(scenario, tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"reader-secret" not in path.read_bytes(), path
            assert ADMIN.secret_key.encode() not in path.read_bytes(), path


def test_a_key_sealed_with_another_secret_is_refused_and_said(tmp_path: Path) -> None:
    async def nothing(_broker: SingleBroker) -> None: ...

    async def scenario(broker: SingleBroker) -> None:
        answer = await broker.ask(RequestCode.HEART_BEAT)
        assert denied(answer)
        assert "another cluster's secret" in (answer.remark or "")

    with_access(nothing, tmp_path)
    with_access(scenario, tmp_path, secrets=ClusterSecrets((b"\x08" * 32,), ADMIN))


def test_a_cluster_secret_is_replaced_without_new_keys(tmp_path: Path) -> None:
    """The new one beside the old, then first and accounts are sealed anew, then alone."""
    old, new = b"\x07" * 32, b"\x08" * 32

    async def make(broker: SingleBroker) -> None:
        await put_account(broker, "reader-123", secretKey="reader-secret", topicPerms="t=SUB")

    async def reseal(broker: SingleBroker) -> None:
        for name in (ADMIN.access_key, "reader-123"):
            assert (await put_account(broker, name)).code == 0

    async def check(broker: SingleBroker) -> None:
        reader = broker.client_of("reader-123", "reader-secret")
        ext = {"topic": "TBW102", "queueId": "0"}
        assert (await ask(reader, RequestCode.GET_MAX_OFFSET, ext)).code == 0
        await reader.close()
        answer = await broker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert orjson.loads(answer.body)["plainAccessConfigs"][1]["topicPerms"] == ["t=SUB"]

    with_access(make, tmp_path, secrets=ClusterSecrets((old,), ADMIN))
    with_access(check, tmp_path, secrets=ClusterSecrets((old, new), ADMIN))
    with_access(reseal, tmp_path, secrets=ClusterSecrets((new, old), ADMIN))
    with_access(check, tmp_path, secrets=ClusterSecrets((new,), ADMIN))


def test_accounts_cannot_be_changed_where_access_control_is_off(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        answer = await put_account(broker, "mallory-1", secretKey="some-secret", admin="true")
        assert answer.code == 1
        assert "access control is off" in (answer.remark or "")
        assert not broker.broker.context.machine.state.access

    with_broker(scenario, tmp_path)


def test_what_administers_is_what_rocketmq_says_and_more() -> None:
    fixed = {
        code: tuple(row(Frame(code, 1)))
        for code, row in BROKER_ACCESS.items()
        if code in {17, 25, 200, 207, 215, 222, 306, 316, 329, 9002, 9003, *range(50, 55)}
    }
    assert len(fixed) == 16
    assert set(fixed.values()) == {(Access(Action.ADMINISTER),)}
