"""Ways round access control: messages of a topic that an account may not read, by other requests.

The topic ``orders`` is that of the account ``payer-1234``. The account ``thief-1234`` may use the
topic ``mine`` and the groups of its own, and no more.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.security.credentials import ClientSecurity, Credentials
from store.message.record import decode_record, key_hash
from tests.broker.remoting.test_access import CODE_DENIED, denied, guarded, put_account
from tests.broker.single_broker import ADDRESS, NOW_MS, SingleBroker, messages
from tests.broker.transactions.transaction_client import (
    COMMIT,
    ROLLBACK,
    end_ext,
    half,
    open_offsets,
    received,
)

PAYER, THIEF = ("payer-1234", "payer-secret"), ("thief-1234", "thief-secret")
KEY_BITS = 40


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return guarded()


@pytest.fixture
async def secured(broker: SingleBroker) -> SingleBroker:
    """A broker with both topics and accounts."""
    for topic in ("orders", "mine"):
        await broker.create_topic(topic)
    for keys, perms in ((PAYER, "orders=PUB|SUB"), (THIEF, "mine=PUB|SUB")):
        made = await put_account(broker, keys[0], secretKey=keys[1], topicPerms=perms)
        assert made.code == ResponseCode.SUCCESS
    return broker


def colliding_key(topic: str, hash_wanted: int) -> str:
    """A key of ``topic`` with that hash. CRC32C is linear in the bits of the key: 32 equations."""

    def key_of(bits: int) -> bytes:
        return bytes(0x61 | (bits >> place & 1) << 1 for place in range(KEY_BITS))

    base = key_hash(topic, key_of(0))
    rows = [(key_hash(topic, key_of(1 << place)) ^ base, 1 << place) for place in range(KEY_BITS)]
    rest, bits = base ^ hash_wanted, 0
    for bit in range(32):
        pivot = next((row for row in rows if row[0] >> bit & 1), None)
        if pivot is None:
            continue
        rows = [
            (row[0] ^ pivot[0], row[1] ^ pivot[1]) if row[0] >> bit & 1 else row
            for row in rows
            if row is not pivot
        ]
        if rest >> bit & 1:
            rest, bits = rest ^ pivot[0], bits ^ pivot[1]
    key = key_of(bits).decode()
    assert key_hash(topic, key.encode()) == hash_wanted
    return key


async def test_a_key_with_the_hash_of_another_topics_key_finds_nothing(
    secured: SingleBroker,
) -> None:
    await secured.send("orders", 0, b"secret", "KEYS\x01order-7\x02")
    key = colliding_key("mine", key_hash("orders", b"order-7"))
    asked = {"maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(NOW_MS + 10**9)}
    admin = await secured.ask(
        RequestCode.QUERY_MESSAGE, {"topic": "orders", "key": "order-7"} | asked
    )
    assert [record.body for record in messages(admin)] == [b"secret"]
    thief = secured.client_of(*THIEF)
    found = await thief.invoke(
        ADDRESS, RequestCode.QUERY_MESSAGE, {"topic": "mine", "key": key} | asked, timeout=9
    )
    assert (found.code, found.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
    await thief.close()


async def test_a_transaction_is_ended_by_who_may_send_to_its_topic(secured: SingleBroker) -> None:
    sent = await half(secured)
    thief, payer = secured.client_of(*THIEF), secured.client_of(*PAYER)
    for outcome in (ROLLBACK, COMMIT):
        answer = await thief.invoke(
            ADDRESS, RequestCode.END_TRANSACTION, end_ext(sent, outcome), timeout=9
        )
        assert denied(answer)
        assert open_offsets(secured) == [0]
    answer = await payer.invoke(
        ADDRESS, RequestCode.END_TRANSACTION, end_ext(sent, COMMIT), timeout=9
    )
    assert answer.code == ResponseCode.SUCCESS
    assert await received(secured) == [b"paid"]
    await thief.close()
    await payer.close()


async def test_a_timed_message_is_recalled_by_who_may_send_to_its_topic(
    secured: SingleBroker,
) -> None:
    sent = await secured.send("orders", 0, b"m", "UNIQ_KEY\x01k\x02TIMER_DELAY_SEC\x0160\x02")
    thief = secured.client_of(*THIEF)
    for topic, code in (
        ("orders", CODE_DENIED),
        ("mine", ResponseCode.ILLEGAL_OPERATION),
    ):
        ext = {"topic": topic, "recallHandle": str(sent.ext["recallHandle"])}
        answer = await thief.invoke(ADDRESS, RequestCode.RECALL_MESSAGE, ext, timeout=9)
        assert answer.code == code
    assert len(secured.broker.context.machine.state.recalled) == 0
    await thief.close()


class Asked:
    """A client that keeps what it is asked."""

    def __init__(self, broker: SingleBroker, keys: tuple[str, str], code: int) -> None:
        self.requests: list[Frame] = []
        security = ClientSecurity(Credentials(*keys))
        self.client = RemotingClient(broker.loop, {code: self._asked}, security=security)

    def _asked(self, connection: Connection, request: Frame) -> None:
        self.requests.append(request)
        connection.respond(request)

    async def heartbeat(self, client_id: str) -> None:
        body = b'{"clientID":"%s","producerDataSet":[{"groupName":"payers"}]}' % client_id.encode()
        beat = RequestCode.HEART_BEAT
        answer = await self.client.invoke(ADDRESS, beat, {}, (body,), timeout=3)
        assert answer.code == ResponseCode.SUCCESS


async def test_who_says_to_be_of_a_group_of_producers_is_not_shown_their_messages(
    secured: SingleBroker,
) -> None:
    payer = Asked(secured, PAYER, RequestCode.CHECK_TRANSACTION_STATE)
    thief = Asked(secured, THIEF, RequestCode.CHECK_TRANSACTION_STATE)
    await half(secured)
    for _ in range(40):  # each check asks one of them by chance
        await payer.heartbeat("p@1")
        await thief.heartbeat("t@1")
        await asyncio.sleep(20)
    assert thief.requests == []
    assert {decode_record(request.body).body for request in payer.requests} == {b"paid"}
    await payer.client.close()
    await thief.client.close()


async def test_the_id_of_another_accounts_client_gets_no_replies(secured: SingleBroker) -> None:
    payer = Asked(secured, PAYER, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    thief = Asked(secured, THIEF, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    await payer.heartbeat("asker@1")
    await thief.heartbeat("asker@1")
    ext = {
        "a": "repliers",
        "b": "mine",
        "e": "0",
        "f": "0",
        "g": str(NOW_MS),
        "h": "0",
        "i": "REPLY_TO_CLIENT\x01asker@1\x02CORRELATION_ID\x01c\x02",
        "j": "0",
    }
    answer = await secured.ask(RequestCode.SEND_REPLY_MESSAGE_V2, ext, b"for the payer")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert [request.body for request in payer.requests] == [b"for the payer"]
    assert thief.requests == []
    again = Asked(secured, PAYER, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    await again.heartbeat("asker@1")  # its own account may connect anew
    await secured.ask(RequestCode.SEND_REPLY_MESSAGE_V2, ext, b"once more")
    assert [request.body for request in again.requests] == [b"once more"]
    for each in (payer, thief, again):
        await each.client.close()
