"""Values that mean nothing: each is refused with RocketMQ's code, in words that say what is wrong,
and leaves no trace.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.single_broker import (
    SingleBroker,
    batched,
    messages,
    pull_ext,
    running_broker,
    send_ext,
)
from tests.support.virtual_network import NetworkedLoop

ILLEGAL, ERROR = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR
NO_GROUP = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
FOUR_DAYS = 4 * 86_400
ORDERS = {"topic": "orders"}
NOBODY = {"consumerGroup": "nobody"}
BATCH = send_ext("orders", 0) | {"m": "true"}


class Case(NamedTuple):
    """A request and how it is refused."""

    code: RequestCode
    ext: dict[str, str]
    refused_with: ResponseCode
    remark: str
    body: bytes = b"x"


def send(properties: str = "", queue_id: int = 0, **changed: str) -> dict[str, str]:
    return send_ext("orders", queue_id, properties) | changed


def of_queue(queue_id: int, **more: str) -> dict[str, str]:
    return {**ORDERS, "queueId": str(queue_id), **more}


def end(outcome: int = 8, **changed: str) -> dict[str, str]:
    return {
        "producerGroup": "payers",
        "tranStateTableOffset": "0",
        "commitLogOffset": "0",
        "commitOrRollback": str(outcome),
        "fromTransactionCheck": "false",
        **changed,
    }


R = RequestCode
LEVELS = [
    Case(
        R.SEND_MESSAGE_V2, send("DELAY\x0119\x02"), ILLEGAL, "no delay level 19, the levels are 1"
    ),
    Case(R.SEND_MESSAGE_V2, send("DELAY\x01soon\x02"), ILLEGAL, "level soon is not a number"),
    Case(
        R.SEND_MESSAGE_V2,
        send(f"TIMER_DELAY_SEC\x01{FOUR_DAYS}\x02"),
        ILLEGAL,
        f"TIMER_DELAY_SEC {FOUR_DAYS} is more than the max delay",
    ),
]
QUEUES = [
    Case(R.SEND_MESSAGE_V2, send(queue_id=2), ERROR, "has no queue 2, its queues are 0 to 1"),
    Case(R.PULL_MESSAGE, pull_ext("orders", -1, 0), ERROR, "no queue -1 to read"),
    Case(R.PULL_MESSAGE, pull_ext("orders", 2, 0), ERROR, "no queue 2 to read"),
    Case(R.GET_MAX_OFFSET, of_queue(-1), ERROR, "no queue -1, its queues are 0 to 1"),
    Case(R.GET_MIN_OFFSET, of_queue(2), ERROR, "no queue 2, its queues are 0 to 1"),
    Case(R.GET_EARLIEST_MSG_STORETIME, of_queue(-1), ERROR, "no queue -1"),
    Case(R.SEARCH_OFFSET_BY_TIMESTAMP, of_queue(-1, timestamp="0"), ERROR, "no queue -1"),
    Case(
        R.QUERY_CONSUMER_OFFSET,
        of_queue(-1, consumerGroup="readers"),
        ERROR,
        "queueId is not between 0 and",
    ),
    Case(
        R.UPDATE_CONSUMER_OFFSET,
        of_queue(-1, consumerGroup="readers", commitOffset="1"),
        ERROR,
        "queueId is not between 0 and",
    ),
    Case(
        R.UPDATE_CONSUMER_OFFSET,
        of_queue(2, consumerGroup="readers", commitOffset="1"),
        ERROR,
        "no queue 2, its queues are 0 to 1",
    ),
    Case(
        R.UPDATE_CONSUMER_OFFSET,
        of_queue(0, consumerGroup="bad group!", commitOffset="1"),
        ERROR,
        "bad group!",
    ),
]
GROUPS = [
    Case(
        R.CONSUMER_SEND_MSG_BACK,
        {"offset": "0", "group": "nobody", "delayLevel": "0"},
        NO_GROUP,
        "subscription group not exist, nobody",
    ),
    Case(
        R.INVOKE_BROKER_TO_RESET_OFFSET,
        {**ORDERS, "group": "nobody", "timestamp": "0", "isForce": "true"},
        NO_GROUP,
        "group nobody does not exist",
    ),
    Case(R.GET_CONSUMER_LIST_BY_GROUP, NOBODY, ERROR, "no consumer of the group nobody"),
    Case(R.GET_CONSUMER_CONNECTION_LIST, NOBODY, ResponseCode.CONSUMER_NOT_ONLINE, "group nobody"),
    Case(
        R.GET_PRODUCER_CONNECTION_LIST,
        {"producerGroup": "nobody"},
        ERROR,
        "the producer group[nobody] not exist",
    ),
    Case(
        R.QUERY_CONSUMER_OFFSET,
        of_queue(0, **NOBODY, setZeroIfNotFound="false"),
        ResponseCode.QUERY_NOT_FOUND,
        "the group nobody has committed no offset",
    ),
]
TRANSACTIONS = [
    Case(R.END_TRANSACTION, end(), ERROR, "Find prepared transaction message failed: no transac"),
    Case(R.END_TRANSACTION, end(outcome=7), ERROR, "commitOrRollback is 7, it may be 8, 12 or 0"),
    Case(
        R.END_TRANSACTION, end(commitLogOffset="here"), ERROR, "commitLogOffset is not an integer"
    ),
    Case(R.SEND_MESSAGE_V2, send("TRAN_MSG\x01true\x02", f="4"), ILLEGAL, "PGROUP"),
]
SIZES = [
    Case(
        R.SEND_BATCH_MESSAGE,
        BATCH,
        ILLEGAL,
        "the body has 75066 bytes, at most 65536 are allowed",
        batched(b"x" * 25_000) * 3,
    ),
    Case(R.SEND_BATCH_MESSAGE, BATCH, ILLEGAL, "the batch has no message", b""),
    Case(
        R.SEND_BATCH_MESSAGE,
        BATCH,
        ILLEGAL,
        "may neither wait nor belong to a transaction",
        batched(b"a") + batched(b"b", b"DELAY\x013\x02"),
    ),
    Case(R.SEND_MESSAGE_V2, send(), ILLEGAL, "the body has 65537 bytes", b"x" * 65_537),
    Case(R.SEND_MESSAGE_V2, send(f"p\x01{'x' * 32_767}\x02"), ILLEGAL, "32767"),
]
HANDLES = [
    Case(R.VIEW_MESSAGE_BY_ID, {"offset": "77"}, ERROR, "can not find message by the offset 77"),
    Case(R.VIEW_MESSAGE_BY_ID, {"offset": "-5"}, ERROR, "-5"),
    Case(
        R.CONSUMER_SEND_MSG_BACK,
        {"offset": "77", "group": "readers", "delayLevel": "0"},
        ERROR,
        "look message by offset failed, 77",
    ),
    Case(
        R.PULL_MESSAGE,
        pull_ext("orders", 0, -3),
        ResponseCode.PULL_OFFSET_MOVED,
        "OFFSET_TOO_SMALL",
    ),
    Case(
        R.PULL_MESSAGE,
        pull_ext("orders", 0, 99),
        ResponseCode.PULL_OFFSET_MOVED,
        "OFFSET_OVERFLOW_BADLY",
    ),
]


async def test_values_that_mean_nothing_are_refused_in_words(broker: SingleBroker) -> None:
    cases = [*LEVELS, *QUEUES, *GROUPS, *TRANSACTIONS, *SIZES, *HANDLES]

    await broker.create_topic("orders", queues=2)
    await broker.send("orders", 0, b"kept")
    await broker.pull("orders", 0, 0)  # by which the group is known
    await asyncio.sleep(1)
    before = broker.broker.context.machine.applied_end
    for case in cases:
        answer = await broker.ask(case.code, case.ext, case.body)
        assert answer.code == case.refused_with, (case, answer)
        assert case.remark in (answer.remark or ""), (case, answer.remark)
    assert broker.broker.context.machine.applied_end == before, "nothing was stored"


async def test_a_negative_queue_or_level_of_a_send_means_what_it_does_in_rocketmq(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders", queues=1)
    for queue_id, properties in ((-1, ""), (0, "DELAY\x01-1\x02")):
        answer = await broker.send("orders", queue_id, b"x", properties)
        assert (answer.code, answer.ext["queueId"]) == (ResponseCode.SUCCESS, "0")
    assert len(messages(await broker.pull("orders", 0, 0))) == 2


async def test_a_transaction_that_was_given_up_cannot_be_ended_any_more(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async def late(broker: SingleBroker, half: Frame) -> Frame:
        position = int(str(half.ext["msgId"])[-16:], 16)
        ext = end(tranStateTableOffset="0", commitLogOffset=str(position))
        return await broker.ask(RequestCode.END_TRANSACTION, ext)

    async with running_broker(
        loop,
        tmp_path,
        clock_runs=True,
        transaction_timeout_ms=1000,
        transaction_check_interval_ms=1000,
        transaction_check_max=2,
    ) as broker:
        await broker.create_topic("orders", queues=1)
        marks = "TRAN_MSG\x01true\x02PGROUP\x01payers\x02"
        half = await broker.send("orders", 0, b"half", marks, f="4")
        assert half.code == ResponseCode.SUCCESS
        await asyncio.sleep(60)
        answer = await late(broker, half)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "it has ended, or there never was one" in (answer.remark or "")
        assert messages(await broker.pull("orders", 0, 0)) == []
