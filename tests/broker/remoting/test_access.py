"""Access control over the remoting port, by raw requests."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.config.security_config import ENFORCING, PERMISSIVE, SecurityConfig
from broker.remoting.client import RemotingClient
from broker.remoting.forwarded_frame import pack_forwarded
from broker.remoting.processors.processor_table import ALWAYS_ENFORCED, broker_handlers
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
    running_broker,
    send_ext,
)
from tests.support.virtual_network import NetworkedLoop

ADMIN = Credentials("admin-1234", "admin-secret")
SECRETS = ClusterSecrets((b"\x07" * 32,), ADMIN)
CODE_DENIED = 1


def guarded(
    *,
    mode: str = ENFORCING,
    secrets: ClusterSecrets = SECRETS,
    client: Credentials | None = ADMIN,
) -> dict[str, Any]:
    """Settings of a broker whose client is the first admin."""
    return {
        "secrets": secrets,
        "client_security": ClientSecurity(client),
        "security": SecurityConfig(directory="/s", access_control=mode),
    }


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return guarded()


async def put_account(broker: SingleBroker, access_key: str, **fields: str) -> Frame:
    return await broker.ask(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": access_key, **fields}
    )


async def ask(client: RemotingClient, code: int, ext: dict[str, str], body: bytes = b"") -> Frame:
    return await client.invoke(ADDRESS, code, ext, (body,), timeout=60)


def denied(answer: Frame) -> bool:
    return answer.code == CODE_DENIED and (answer.remark or "").startswith("AclException: ")


async def test_nobody_may_do_anything_without_an_account(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, **guarded(client=None)) as broker:
        of_grpc = {RequestCode.FORWARD_GRPC, RequestCode.CANCEL_GRPC}
        codes = {*broker.broker.handlers, *of_grpc, 4711}
        for code in codes:
            answer = await broker.ask(code)
            assert denied(answer), (code, answer)
        assert broker.broker.context.access is not None
        assert broker.broker.context.access.refused == len(codes)


async def test_a_signature_by_the_wrong_key_or_an_unknown_account_is_refused(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    for keys in (("admin-1234", "admin-secreT"), ("nobody-123", "admin-secret")):
        stranger = broker.client_of(*keys)
        answer = await ask(stranger, RequestCode.SEND_MESSAGE_V2, send_ext("orders", 0), b"x")
        assert denied(answer)
        assert "admin-secre" not in (answer.remark or "")
        await stranger.close()


async def test_accounts_may_send_and_consume_what_their_permissions_say(
    broker: SingleBroker,
) -> None:
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


async def test_browsing_needs_the_topic_alone(broker: SingleBroker) -> None:
    """A pull without a group; everything else without one is for admins."""

    for topic in ("orders", "bills", "%DLQ%readers", "%DLQ%others", "%DLQ%"):
        await broker.create_topic(topic)
    await put_account(
        broker,
        "reader-123",
        secretKey="reader-secret",
        topicPerms="orders=SUB",
        groupPerms="readers=SUB",
    )
    await broker.send("orders", 0, b"paid")
    reader = broker.client_of("reader-123", "reader-secret")
    browse = {"consumerGroup": ""}
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        found = await ask(reader, code, pull_ext("orders", 0, 0) | browse)
        assert [each.body for each in messages(found)] == [b"paid"], found
        own = await ask(reader, code, pull_ext("%DLQ%readers", 0, 0) | browse)
        assert not denied(own), own
        for topic in ("bills", "%DLQ%others", "%DLQ%", "SCHEDULE_TOPIC_XXXX", ""):
            assert denied(await ask(reader, code, pull_ext(topic, 0, 0) | browse)), topic
    offset = {"topic": "orders", "queueId": "0", "commitOffset": "1", **browse}
    for code in (
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
    ):
        assert denied(await ask(reader, code, offset)), code
    await reader.close()


async def test_a_message_is_sent_back_only_by_who_may_consume_it(broker: SingleBroker) -> None:
    """Its place alone could name any message: the topic that is told must be its own."""

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


def group(name: str) -> bytes:
    return orjson.dumps({"groupName": name, "retryQueueNums": 1})


async def test_a_heartbeat_needs_its_groups_and_topics(broker: SingleBroker) -> None:
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


async def test_permissive_lets_all_pass_and_counts_but_for_accounts(
    loop: NetworkedLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(loop, tmp_path, **guarded(mode=PERMISSIVE, client=None)) as broker:
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


def forwarded(code: int, client: str, ext: dict[str, str], body: bytes = b"") -> dict[str, Any]:
    request = Frame(code, 1, ext=dict(ext), body=body)
    return dict(pack_forwarded(request, client))


async def test_a_forwarded_request_keeps_its_caller(broker: SingleBroker) -> None:
    """A broker forwards as one of the cluster; what it forwards counts for who signed it."""

    await broker.create_topic("orders")
    await put_account(broker, "writer-123", secretKey="writer-secret", topicPerms="orders=PUB")
    keys = SECRETS.credentials()
    member = broker.client_of(keys.access_key, keys.secret_key)
    writer = Credentials("writer-123", "writer-secret")
    code = RequestCode.SEND_MESSAGE_V2
    for topic, is_denied in (("orders", False), ("bills", True)):
        signed = writer.sign(send_ext(topic, 0), (b"x",))
        ext = forwarded(code, "10.0.0.9:1", signed)
        assert denied(await ask(member, RequestCode.FORWARD, ext, b"x")) is is_denied
    ext = forwarded(code, "10.0.0.9:1", send_ext("orders", 0))
    assert denied(await ask(member, RequestCode.FORWARD, ext, b"x"))
    client = broker.client_of("writer-123", "writer-secret")
    ext = forwarded(code, "10.0.0.9:1", writer.sign(send_ext("orders", 0), (b"x",)))
    assert denied(await ask(client, RequestCode.FORWARD, ext, b"x"))
    await member.close()
    await client.close()


async def test_nobody_makes_accounts_by_forwarding_from_an_address_of_the_white_list(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Where access control is permissive, who forwards need not be a broker."""

    async with running_broker(loop, tmp_path, **guarded(mode=PERMISSIVE, client=None)) as broker:
        admin = broker.client_of(ADMIN.access_key, ADMIN.secret_key)
        change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        assert (await ask(admin, change, {"globalWhiteAddrs": "10.7.*.*"})).code == 0
        account = {"accessKey": "mallory-1", "secretKey": "some-secret", "admin": "true"}
        make = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
        ext = forwarded(make, "10.7.0.1:1", account)
        assert denied(await broker.ask(RequestCode.FORWARD, ext))
        await admin.close()


async def test_a_server_that_asks_for_others_gives_them_nothing_by_its_address(
    broker: SingleBroker,
) -> None:
    """The console asks so, and its node may have an address of the white list."""

    await broker.create_topic("orders")
    await put_account(broker, "writer-123", secretKey="writer-secret", topicPerms="orders=PUB")
    change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    assert (await broker.ask(change, {"globalWhiteAddrs": "10.0.0.*"})).code == 0
    delete, ext = RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}
    wrong = Credentials("writer-123", "other-secret")
    for keys in (None, wrong, Credentials("writer-123", "writer-secret")):
        client = RemotingClient(broker.loop, security=ClientSecurity(keys, on_behalf=True))
        sent = await ask(client, RequestCode.SEND_MESSAGE_V2, send_ext("orders", 0), b"x")
        assert denied(sent) is (keys is None or keys is wrong)
        assert denied(await ask(client, delete, ext)), keys
        await client.close()
    listed = RemotingClient(broker.loop)
    assert (await ask(listed, delete, ext)).code == 0
    await listed.close()


async def test_the_servers_of_the_cluster_are_trusted_and_others_are_not(
    broker: SingleBroker,
) -> None:
    for secret, code in ((b"\x07" * 32, 0), (b"\x08" * 32, CODE_DENIED)):
        keys = ClusterSecrets((secret,)).credentials()
        client = broker.client_of(keys.access_key, keys.secret_key)
        ext = {"topic": "TBW102", "queueId": "0"}
        assert (await ask(client, RequestCode.GET_MAX_OFFSET, ext)).code == code
        await client.close()


async def test_what_administers_is_what_rocketmq_says_and_more(broker: SingleBroker) -> None:
    _, needs = broker_handlers(broker.broker.context, broker.broker._retention)
    assert needs.keys() >= ALWAYS_ENFORCED
    fixed = {
        code: tuple(row(Frame(code, 1)))
        for code, row in needs.items()
        if code in {17, 25, 200, 207, 215, 222, 306, 316, 329, 9002, 9003, *range(50, 55)}
    }
    assert len(fixed) == 16
    assert set(fixed.values()) == {(Access(Action.ADMINISTER),)}
