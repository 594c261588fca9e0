"""Transactions: published once, or never; asked about; and no request ends another one's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.group_commit.batcher import Batcher
from broker.limits import STATE
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.topics_and_groups import HALF_TOPIC
from dledger.errors import BusyError
from store.errors import DamagedError, StoreError
from store.io.filesystem import Bytes
from store.message.record import decode_record
from tests.broker.single_broker import (
    ADDRESS,
    SingleBroker,
    batched,
    messages,
    running_broker,
    send_ext,
)
from tests.support.virtual_network import NetworkedLoop

HALF = "UNIQ_KEY\x01U1\x02TAGS\x01a\x02TRAN_MSG\x01true\x02PGROUP\x01payers\x02"
COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"
TIMEOUT_S, INTERVAL_S = 6, 30


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


async def half(
    broker: SingleBroker, body: bytes = b"paid", properties: str = HALF, queue_id: int = 2
) -> Frame:
    answer = await broker.send("orders", queue_id, body, properties, f="4")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def end_ext(sent: Frame, outcome: str, **changed: str) -> dict[str, str]:
    position = int(str(sent.ext["msgId"])[16:], 16)
    return {
        "producerGroup": "payers",
        "tranStateTableOffset": str(sent.ext["queueOffset"]),
        "commitLogOffset": str(position),
        "commitOrRollback": outcome,
        "fromTransactionCheck": "false",
        "msgId": "U1",
        "transactionId": "U1",
    } | changed


async def end(broker: SingleBroker, sent: Frame, outcome: str, **changed: str) -> Frame:
    return await broker.ask(RequestCode.END_TRANSACTION, end_ext(sent, outcome, **changed))


async def received(broker: SingleBroker, queue_id: int = 2) -> list[bytes]:
    return [record.body for record in messages(await broker.pull("orders", queue_id, 0))]


def open_offsets(broker: SingleBroker) -> list[int]:
    return list(broker.broker.context.machine.state.transactions)


class Producer:
    """A member of a producer group that keeps what it is asked."""

    def __init__(self, broker: SingleBroker, group: str = "payers") -> None:
        self.asked: list[tuple[float, Frame]] = []
        self._broker = broker
        self._group = group
        self.client = RemotingClient(
            broker.loop, {RequestCode.CHECK_TRANSACTION_STATE: self._asked}
        )

    def _asked(self, _connection: Connection, request: Frame) -> None:
        assert request.is_one_way
        self.asked.append((self._broker.loop.time(), request))

    async def heartbeat(self) -> None:
        body = b'{"clientID":"p@1","producerDataSet":[{"groupName":"%s"}]}' % self._group.encode()
        answer = await self.client.invoke(ADDRESS, RequestCode.HEART_BEAT, {}, (body,), timeout=3)
        assert answer.code == ResponseCode.SUCCESS

    async def stay(self, seconds: float) -> None:
        """Keeps its connection alive for so long."""
        while seconds > 0:
            await self.heartbeat()
            await asyncio.sleep(min(seconds, 20))
            seconds -= 20


# --- the outcome


async def test_a_half_message_is_delivered_to_nobody(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    assert sent.ext["queueId"] == "2"
    assert await received(broker) == []
    hidden = await broker.pull(HALF_TOPIC, 0, 0)
    assert hidden.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_commit_publishes_the_message(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    answer = await end(broker, sent, COMMIT)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    (record,) = messages(await broker.pull("orders", 2, 0))
    assert (record.body, record.topic, record.queue_id) == (b"paid", "orders", 2)
    assert record.property_map == {"UNIQ_KEY": "U1", "TAGS": "a", "PGROUP": "payers"}
    assert record.sys_flag == 8
    assert f"{record.prepared_position:016X}" == str(sent.ext["msgId"])[16:]
    assert open_offsets(broker) == []


async def test_outcome_and_publication_are_one_entry(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    before = broker.broker.context.node.applied_index
    await end(broker, sent, COMMIT)
    assert broker.broker.context.node.applied_index == before + 1


async def test_a_rollback_publishes_nothing(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    assert (await end(broker, sent, ROLLBACK)).code == ResponseCode.SUCCESS
    late = await end(broker, sent, COMMIT)
    assert late.code == ResponseCode.SYSTEM_ERROR
    assert "no transaction is open at offset 0" in (late.remark or "")
    assert await received(broker) == []


async def test_a_commit_that_is_repeated_publishes_once(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    answers = await asyncio.gather(*(end(broker, sent, COMMIT) for _ in range(3)))
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 3
    assert (await end(broker, sent, COMMIT)).code == ResponseCode.SYSTEM_ERROR
    assert await received(broker) == [b"paid"]


async def test_of_two_outcomes_at_the_same_time_the_first_counts(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    first, second = await asyncio.gather(end(broker, sent, COMMIT), end(broker, sent, ROLLBACK))
    assert (first.code, second.code) == (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    assert await received(broker) == [b"paid"]


async def test_an_unknown_outcome_leaves_it_open(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    assert (await end(broker, sent, UNKNOWN)).code == ResponseCode.SUCCESS
    assert open_offsets(broker) == [0]


async def test_a_half_message_sent_again_opens_one_transaction(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    again = await half(broker, queue_id=3)
    assert again.ext == sent.ext
    assert open_offsets(broker) == [0]


async def test_a_delay_level_is_ignored(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    await end(broker, await half(broker, properties=HALF + "DELAY\x013\x02"), COMMIT)
    assert await received(broker) == [b"paid"]


# --- handles


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"tranStateTableOffset": "7"}, "Find prepared transaction message failed"),
        ({"tranStateTableOffset": "1"}, "The commit log offset wrong"),
        ({"commitLogOffset": "48"}, "The commit log offset wrong"),
        ({"producerGroup": "others"}, "The producer group wrong"),
        ({"msgId": "U2"}, "The message id wrong"),
        ({"commitOrRollback": "4"}, "commitOrRollback is 4"),
        ({"commitOrRollback": "x"}, "field commitOrRollback is not an integer"),
    ],
)
async def test_a_wrong_handle_ends_nothing(
    broker: SingleBroker, changed: dict[str, str], remark: str
) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    await half(broker, b"other", HALF.replace("U1", "U2"))
    answer = await end(broker, sent, COMMIT, **changed)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or ""), answer.remark
    assert open_offsets(broker) == [0, 1]
    assert await received(broker) == []


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_the_end_of_one_that_cannot_be_read_may_be_tried_again(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    def unreadable(position: int, done: Callable[[Bytes, StoreError | None], None]) -> None:
        done(b"", DamagedError("log/0", position, "rotten"))

    await broker.create_topic("orders")
    sent = await half(broker)
    with monkeypatch.context() as fault:
        fault.setattr(broker.broker.context.lookup, "record", unreadable)
        answer = await end(broker, sent, outcome)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the half message cannot be read now: log/0, byte" in (answer.remark or "")
    assert open_offsets(broker) == [0]
    assert (await end(broker, sent, outcome)).code == ResponseCode.SUCCESS
    assert open_offsets(broker) == []


async def test_a_late_commit_does_not_touch_the_next_transaction(broker: SingleBroker) -> None:
    """Of the same producer, about the same: only offset and position tell them apart."""

    await broker.create_topic("orders")
    first = await half(broker, b"first")
    await end(broker, first, ROLLBACK)
    second = await half(broker, b"second")
    assert (await end(broker, first, COMMIT)).code == ResponseCode.SYSTEM_ERROR
    assert open_offsets(broker) == [1]
    assert await received(broker) == []
    await end(broker, second, COMMIT)
    assert await received(broker) == [b"second"]


async def test_the_offset_id_names_a_half_message_too(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    answer = await end(broker, sent, COMMIT, msgId=str(sent.ext["msgId"]))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


# --- what is no half message


@pytest.mark.parametrize(
    ("changed", "code", "remark"),
    [
        ({"f": "4"}, ResponseCode.MESSAGE_ILLEGAL, "sysFlag 4 says"),
        ({"f": "8", "i": HALF}, ResponseCode.MESSAGE_ILLEGAL, "sysFlag 8 says"),
        ({"i": "TRAN_MSG\x01true\x02"}, ResponseCode.MESSAGE_ILLEGAL, "the property PGROUP"),
        ({"b": HALF_TOPIC, "i": HALF}, ResponseCode.NO_PERMISSION, "forbidden"),
    ],
)
async def test_what_is_no_half_message_is_refused(
    broker: SingleBroker, changed: dict[str, str], code: ResponseCode, remark: str
) -> None:
    await broker.create_topic("orders")
    answer = await broker.send("orders", 0, b"x", **changed)
    assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark


async def test_a_batch_may_not_hold_one(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    ext = send_ext("orders", 0) | {"m": "true"}
    body = batched(b"a", HALF.encode())
    answer = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_too_many_open_transactions_are_refused(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(STATE, transactions_max=1)
    monkeypatch.setattr("broker.ingest.ingest.STATE", few)
    assert STATE.transactions_max > 1

    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await broker.create_topic("orders")
        sent = await half(broker)
        second = await broker.send("orders", 0, b"x", HALF.replace("U1", "U2"), f="4")
        assert second.code == ResponseCode.SYSTEM_BUSY
        await end(broker, sent, ROLLBACK)
        await half(broker, properties=HALF.replace("U1", "U2"))


async def test_a_topic_that_was_deleted_meanwhile_is_named(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    answer = await end(broker, sent, COMMIT)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert open_offsets(broker) == [0]


# --- asking


async def test_its_producer_is_asked_after_the_timeout_and_may_commit(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    producer = Producer(broker)
    await producer.heartbeat()
    sent = await half(broker)
    began = broker.loop.time()
    await asyncio.sleep(TIMEOUT_S + 1)
    ((at, request),) = producer.asked
    assert at - began == pytest.approx(TIMEOUT_S, abs=0.2)
    assert request.ext == {
        "tranStateTableOffset": "0",
        "commitLogOffset": str(int(str(sent.ext["msgId"])[16:], 16)),
        "msgId": "U1",
        "transactionId": "U1",
        "offsetMsgId": str(sent.ext["msgId"]),
    }
    record = decode_record(request.body)
    assert (record.topic, record.queue_id, record.body) == ("orders", 2, b"paid")
    assert record.property_map["TRANSACTION_CHECK_TIMES"] == "1"
    assert record.property_map["PGROUP"] == "payers"
    answer = await end(broker, sent, COMMIT, fromTransactionCheck="true")
    assert answer.code == ResponseCode.SUCCESS
    await asyncio.sleep(2 * INTERVAL_S)
    assert len(producer.asked) == 1
    assert await received(broker) == [b"paid"]
    await producer.client.close()


@pytest.mark.parametrize(("immunity", "seconds"), [("2", 2), ("20", 20), ("soon", TIMEOUT_S)])
async def test_a_message_may_say_itself_how_long_it_is_not_asked_about(
    broker: SingleBroker, immunity: str, seconds: int
) -> None:
    await broker.create_topic("orders")
    producer = Producer(broker)
    await producer.heartbeat()
    properties = f"{HALF}CHECK_IMMUNITY_TIME_IN_SECONDS\x01{immunity}\x02"
    await half(broker, properties=properties)
    began = broker.loop.time()
    await asyncio.sleep(seconds + 1)
    ((at, _request),) = producer.asked
    assert at - began == pytest.approx(seconds, abs=0.2)
    await producer.client.close()


async def test_after_the_last_check_it_is_rolled_back(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True, transaction_check_max=3) as broker:
        await broker.create_topic("orders")
        producer = Producer(broker)
        sent = await half(broker)
        await producer.stay(TIMEOUT_S + 2 * INTERVAL_S + 5)
        assert [round(at - producer.asked[0][0]) for at, _ in producer.asked] == [0, 30, 60]
        assert open_offsets(broker) == [0]
        await producer.stay(INTERVAL_S)
        assert len(producer.asked) == 3
        assert open_offsets(broker) == []
        assert (await end(broker, sent, COMMIT)).code == ResponseCode.SYSTEM_ERROR
        await producer.client.close()


async def test_a_group_of_whom_nobody_is_there_is_waited_for(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True, transaction_check_max=3) as broker:
        await broker.create_topic("orders")
        other, producer = Producer(broker, "others"), Producer(broker)
        await half(broker)
        await other.stay(2 * INTERVAL_S)
        assert other.asked == []
        await producer.stay(5)
        assert len(producer.asked) == 1
        assert open_offsets(broker) == [0]
        await producer.client.close()
        await asyncio.sleep(TIMEOUT_S + INTERVAL_S)
        assert open_offsets(broker) == []
        assert len(producer.asked) == 1
        await other.client.close()


async def test_a_producer_that_is_there_is_asked_however_long_the_log_took_nothing(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overloaded for longer than all checks take: no check could be counted."""

    async with running_broker(loop, tmp_path, clock_runs=True, transaction_check_max=3) as broker:
        await broker.create_topic("orders")
        producer = Producer(broker)
        await half(broker)

        def busy(*_given: object) -> None:
            raise BusyError(2, 1)

        with monkeypatch.context() as overload:
            overload.setattr(Batcher, "add_command", busy)
            await producer.stay(TIMEOUT_S + 5 * INTERVAL_S)
        assert (producer.asked, open_offsets(broker)) == ([], [0])
        await producer.stay(5)
        assert (len(producer.asked), open_offsets(broker)) == (1, [0])
        await producer.client.close()


async def test_many_transactions_are_asked_about_one_by_one(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    producer = Producer(broker)
    await producer.heartbeat()
    for number in range(150):
        await half(broker, properties=HALF.replace("U1", f"U{number}"))
    await asyncio.sleep(TIMEOUT_S + 2)
    asked = [str(request.ext["msgId"]) for _, request in producer.asked]
    assert asked == [f"U{number}" for number in range(150)]
    await producer.client.close()


# --- what stays


@pytest.mark.parametrize("checkpoint", [False, True])
async def test_an_open_transaction_survives_a_restart(
    loop: NetworkedLoop, tmp_path: Path, checkpoint: bool
) -> None:
    sent: list[Frame] = []

    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await broker.create_topic("orders")
        sent.append(await half(broker))
        ended = await half(broker, properties=HALF.replace("U1", "U2"))
        await end(broker, ended, ROLLBACK, msgId="U2")
        if checkpoint:
            broker.broker.context.node.checkpointer.checkpoint()
            await asyncio.sleep(0.1)
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        producer = Producer(broker)
        await producer.stay(TIMEOUT_S + 1)
        assert [str(request.ext["msgId"]) for _, request in producer.asked] == ["U1"]
        assert (await end(broker, sent[0], COMMIT)).code == ResponseCode.SUCCESS
        assert await received(broker) == [b"paid"]
        await producer.client.close()


async def test_who_was_asked_by_a_clock_that_is_ahead_is_asked_again_after_an_interval(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """That check is in the log with a time that no message was stored with."""

    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await broker.create_topic("orders")
        await half(broker)
        broker.now_ms += 5 * INTERVAL_S * 1000
        producer = Producer(broker)
        await producer.stay(TIMEOUT_S + 1)
        assert len(producer.asked) == 1
        await producer.client.close()
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        producer = Producer(broker)
        await producer.stay(INTERVAL_S + 1)
        assert len(producer.asked) == 1
        await producer.client.close()


async def test_the_log_is_kept_from_the_first_open_transaction(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    transactions = broker.broker.context.transactions
    assert transactions.oldest_needed_position() is None
    sent = await half(broker)
    await half(broker, properties=HALF.replace("U1", "U2"))
    position = int(str(sent.ext["msgId"])[16:], 16)
    assert transactions.oldest_needed_position() == position
    await end(broker, sent, ROLLBACK)
    assert (transactions.oldest_needed_position() or 0) > position


async def test_a_producer_is_asked_about_a_message_with_as_many_properties_as_fit(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    producer = Producer(broker)
    marks = "REAL_TOPIC\x01orders\x02REAL_QID\x012\x02"
    fills = 32_767 - len(HALF) - len(marks) - len("P\x01\x02")
    await half(broker, properties=f"{HALF}P\x01{'x' * fills}\x02")
    await producer.stay(TIMEOUT_S + 1)
    await asyncio.sleep(1)
    ((_at, request),) = producer.asked
    assert len(decode_record(request.body).properties) == 32_767
