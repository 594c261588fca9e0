"""POP of RocketMQ 5's remoting clients, by the fields of its requests and answers."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Coroutine
from typing import Any

import orjson
import pytest

from broker.errors import Refusal
from broker.limits import CONSUME
from broker.pop.receipt_handle import ReceiptHandle
from broker.remoting.connection import Connection
from broker.remoting.processors import pop_message
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from tests.broker.pop.pop_client import sent
from tests.broker.single_broker import SingleBroker, messages

PLACE = {"consumerGroup": "g", "topic": "orders", "queueId": "0"}


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


async def pop(broker: SingleBroker, **changed: str) -> Frame:
    fields = PLACE | {
        "maxMsgNums": "32",
        "invisibleTime": "10000",
        "pollTime": "0",
        "bornTime": "0",
        "initMode": "0",
    }
    return await broker.ask(RequestCode.POP_MESSAGE, fields | changed)


def handles(answer: Frame) -> list[str]:
    """As Java's client makes them from the fields of an answer."""
    ext = {name: str(value) for name, value in answer.ext.items()}
    starts = dict(each.split(" ")[1:] for each in ext["startOffsetInfo"].split(";"))
    made = []
    for each in ext["msgOffsetInfo"].split(";"):
        mark, queue_id, offsets = each.split(" ")
        assert mark == "0"
        times = f"{ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']}"
        made += [
            f"{starts[queue_id]} {times} 0 broker-a {queue_id} {offset}"
            for offset in offsets.split(",")
        ]
    return made


async def ack(broker: SingleBroker, handle: str) -> Frame:
    offset = {"extraInfo": handle, "offset": handle.rsplit(" ", 1)[1]}
    return await broker.ask(RequestCode.ACK_MESSAGE, PLACE | offset)


async def test_messages_are_received_and_acknowledged(broker: SingleBroker) -> None:
    await sent(broker, 3)
    answer = await pop(broker, maxMsgNums="2")
    assert (answer.code, answer.remark, answer.ext["restNum"]) == (0, "FOUND", "1")
    assert [each.body for each in messages(answer)] == [b"0", b"1"]
    zero, one = handles(answer)
    assert (await ack(broker, one)).code == ResponseCode.SUCCESS
    assert (await ack(broker, one)).code == ResponseCode.NO_MESSAGE
    assert (await ack(broker, "0 1 2 3 0 broker-b 0 0")).code == ResponseCode.MESSAGE_ILLEGAL
    await asyncio.sleep(11)
    assert (await ack(broker, zero)).code == ResponseCode.NO_MESSAGE
    again = messages(await pop(broker))
    assert [(each.body, each.reconsume_times) for each in again] == [(b"0", 1), (b"2", 0)]


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION])
async def test_a_held_request_keeps_its_fields_and_no_body(
    broker: SingleBroker, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Frame] = []
    answered = pop_message._answered

    def noted(connection: Connection, request: Frame, work: Any) -> Coroutine[Any, Any, None]:
        held.append(request)
        return answered(connection, request, work)

    monkeypatch.setattr(pop_message, "_answered", noted)
    await broker.create_topic("orders", 1)
    fields = PLACE | {"maxMsgNums": "1", "invisibleTime": "10000", "pollTime": "9000"}
    asking = asyncio.ensure_future(broker.ask(code, fields, bytes(100_000)))
    await asyncio.sleep(1)
    (request,) = held
    assert (request.ext, request.body) == (fields, b"")
    await broker.send("orders", 0, b"x")
    assert (await asking).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION])
async def test_a_request_is_forwarded_whole(broker: SingleBroker, code: int) -> None:
    """Also one that was held here until the node led no more."""
    await broker.create_topic("orders", 1)
    fields = PLACE | {"maxMsgNums": "1", "invisibleTime": "10000", "pollTime": "9000"}
    asking = [asyncio.ensure_future(broker.ask(code, fields))]
    await asyncio.sleep(1)
    forwarded: list[Frame] = []

    def forward(_connection: Connection, request: Frame, _error: Refusal) -> bool:
        forwarded.append(request)
        return True

    (connection,) = broker.server.connections
    connection.forward = forward
    term = broker.broker.context.batcher.term
    broker.broker.leadership_changed(Leadership(Role.FOLLOWER, term + 1, None, False))
    asking.append(asyncio.ensure_future(broker.ask(code, fields)))
    await asyncio.sleep(1)
    assert [each.ext for each in forwarded] == [fields, fields]
    for each in asking:
        each.cancel()


async def test_messages_of_several_queues_have_a_start_each(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    for queue_id in (1, 1, 2):
        await broker.send("orders", queue_id, b"x")
    answer = await pop(broker, queueId="-1")
    for handle in handles(answer):
        *_, queue, offset = handle.split(" ")
        ext = PLACE | {"extraInfo": handle, "queueId": queue, "offset": offset}
        assert (await broker.ask(RequestCode.ACK_MESSAGE, ext)).code == 0
    await asyncio.sleep(11)
    assert (await pop(broker, queueId="-1")).code == ResponseCode.POLLING_TIMEOUT


async def test_a_changed_time_gives_a_new_handle(broker: SingleBroker) -> None:
    await sent(broker, 1)
    (handle,) = handles(await pop(broker))
    fields = PLACE | {"extraInfo": handle, "offset": "0", "invisibleTime": "20000"}
    answer = await broker.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
    assert answer.code == 0
    assert (await ack(broker, handle)).code == ResponseCode.NO_MESSAGE
    ext = answer.ext
    new = f"0 {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 broker-a 0 0"
    assert (await ack(broker, new)).code == 0


def batch(answer: Frame, bits: int, **changed: Any) -> dict[str, Any]:
    ext = answer.ext
    return {
        "c": "g",
        "t": "orders",
        "r": "0",
        "so": int(str(ext["startOffsetInfo"]).split(" ")[2]),
        "q": 0,
        "rq": int(str(ext["reviveQid"])),
        "pt": int(str(ext["popTime"])),
        "it": int(str(ext["invisibleTime"])),
        "b": b64encode(bits.to_bytes(2, "little")).decode(),
    } | changed


async def ack_batch(broker: SingleBroker, *acks: dict[str, Any]) -> Frame:
    body = orjson.dumps({"brokerName": "broker-a", "acks": acks})
    return await broker.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)


async def test_a_batch_acknowledges_messages_by_their_bits(broker: SingleBroker) -> None:
    await sent(broker, 12)
    await pop(broker, maxMsgNums="1")
    answer = await pop(broker)
    assert (await ack_batch(broker, batch(answer, 0b101_0000_0011))).code == 0
    await asyncio.sleep(11)
    left = [each.queue_offset for each in messages(await pop(broker))]
    assert left == [0, 3, 4, 5, 6, 7, 8, 10]
    assert (await ack_batch(broker, batch(answer, 1))).code == ResponseCode.NO_MESSAGE


@pytest.mark.parametrize(
    "changed",
    [
        {"b": "?"},
        {"b": ""},
        {"so": -1},
        {"pt": "x"},
        {"c": ""},
        {"b": b64encode(b"\xff" * (CONSUME.pop_handles_max // 8) + b"\1")},
        {"so": (1 << 63) - 1, "b": b64encode(b"\xff")},
        {"b": b64encode(bytes(9000) + b"\1")},
    ],
)
async def test_a_batch_that_makes_no_sense_is_refused(
    broker: SingleBroker, changed: dict[str, Any]
) -> None:
    await sent(broker, 1)
    answer = await pop(broker)
    told = {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in changed.items()
    }
    assert (await ack_batch(broker, batch(answer, 1, **told))).code == ResponseCode.SYSTEM_ERROR


async def test_of_a_batch_that_is_too_large_no_more_is_read_than_it_may_have(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a megabyte has two million bits."""
    await sent(broker, 1)
    answer = await pop(broker)
    made: list[None] = []

    class Counted(ReceiptHandle):
        def __str__(self) -> str:
            made.append(None)
            return super().__str__()

    monkeypatch.setattr(pop_message, "ReceiptHandle", Counted)
    whole = batch(answer, 1, b=b64encode(b"\xff" * (CONSUME.pop_handles_max // 8)).decode())
    assert (await ack_batch(broker, *[whole] * 5)).code == ResponseCode.SYSTEM_ERROR
    assert len(made) <= CONSUME.pop_handles_max


async def test_a_notification_tells_of_a_message_now_or_later(broker: SingleBroker) -> None:
    await sent(broker, 0)
    fields = PLACE | {"pollTime": "20000", "bornTime": "0"}
    asking = asyncio.ensure_future(broker.ask(RequestCode.NOTIFICATION, fields))
    await asyncio.sleep(1)
    assert not asking.done()
    await sent(broker, 1)
    assert (await asking).ext["hasMsg"] == "true"
    await pop(broker)
    began = broker.loop.time()
    assert (await broker.ask(RequestCode.NOTIFICATION, fields)).ext["hasMsg"] == "true"
    assert broker.loop.time() - began == pytest.approx(10, abs=0.1)
    answer = await broker.ask(RequestCode.NOTIFICATION, fields | {"pollTime": "0"})
    assert answer.ext["hasMsg"] == "true"
    await pop(broker)
    answer = await broker.ask(RequestCode.NOTIFICATION, fields | {"pollTime": "0"})
    assert answer.ext["hasMsg"] == "false"


async def test_a_wait_ends_with_its_time_or_its_connection(broker: SingleBroker) -> None:
    await sent(broker, 0)
    assert (await pop(broker, pollTime="3000")).code == ResponseCode.POLLING_TIMEOUT
    held = broker.broker.context.pop.held
    waiting = asyncio.ensure_future(pop(broker, pollTime="30000"))
    await asyncio.sleep(1)
    assert len(held) == 1
    await broker.client.close()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0.1)
    assert len(held) == 0


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"maxMsgNums": "0"}, ResponseCode.SYSTEM_ERROR),
        ({"invisibleTime": "0"}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": "9"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"exp": "a &&", "expType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expType": "XPATH"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "?"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    broker: SingleBroker, changed: dict[str, str], code: ResponseCode
) -> None:
    await sent(broker, 1)
    answer = await pop(broker, **changed)
    assert (answer.code, bool(answer.remark)) == (code, True)
    await asyncio.sleep(1)
    assert broker.broker.context.machine.state.groups == {}


async def test_a_wait_for_a_queue_that_is_not_there_is_refused(broker: SingleBroker) -> None:
    await sent(broker, 1)
    fields = PLACE | {"queueId": "9", "pollTime": "0"}
    answer = await broker.ask(RequestCode.NOTIFICATION, fields)
    assert (answer.code, bool(answer.remark)) == (ResponseCode.INVALID_PARAMETER, True)


async def test_fields_that_contradict_a_handle_are_refused(broker: SingleBroker) -> None:
    await sent(broker, 1)
    (handle,) = handles(await pop(broker))
    ext = PLACE | {"extraInfo": handle, "offset": "5"}
    answer = await broker.ask(RequestCode.ACK_MESSAGE, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
