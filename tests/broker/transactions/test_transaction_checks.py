"""Producers are asked about transactions that they left open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.group_commit.batcher import Batcher
from broker.remoting.client import RemotingClient
from broker.remoting.connected_clients import EXPIRY_SECONDS
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from dledger.errors import BusyError, NoRoomError
from store.errors import DamagedError, StoreError
from store.io.filesystem import Bytes
from store.message.record import decode_record
from tests.broker.single_broker import (
    ADDRESS,
    SingleBroker,
    running_broker,
)
from tests.broker.transactions.transaction_client import (
    COMMIT,
    HALF,
    ROLLBACK,
    end,
    half,
    open_offsets,
    received,
)
from tests.support.virtual_network import NetworkedLoop

TIMEOUT_S, INTERVAL_S = 6, 30


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


async def test_what_has_ended_is_not_kept_until_its_check_would_come(broker: SingleBroker) -> None:
    """A message may say that it is not asked about for months."""
    await broker.create_topic("orders")
    properties = f"{HALF}CHECK_IMMUNITY_TIME_IN_SECONDS\x019999999\x02"
    for number in range(200):
        sent = await half(broker, properties=properties.replace("U1", f"U{number}"))
        assert (await end(broker, sent, COMMIT, msgId="")).code == ResponseCode.SUCCESS
    assert len(broker.broker.context.transactions._due) < 100


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


async def test_nothing_is_rolled_back_while_full_disks_take_no_commit(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """The producer answers each check with a commit, and is refused, which it does not hear."""

    async with running_broker(loop, tmp_path, clock_runs=True, transaction_check_max=3) as broker:
        await broker.create_topic("orders")
        producer = Producer(broker)
        sent = await half(broker)
        broker.broker.context.batcher.refuse_messages(NoRoomError)
        await producer.stay(TIMEOUT_S + 5 * INTERVAL_S)
        assert (await end(broker, sent, COMMIT)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (producer.asked, open_offsets(broker)) == ([], [0])
        broker.broker.context.batcher.refuse_messages(None)
        await producer.stay(INTERVAL_S + 1)
        assert (len(producer.asked), open_offsets(broker)) == (1, [0])
        assert (await end(broker, sent, COMMIT)).code == ResponseCode.SUCCESS
        assert await received(broker) == [b"paid"]
        await producer.client.close()


async def test_a_producer_may_roll_back_while_disks_are_full(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    broker.broker.context.batcher.refuse_messages(NoRoomError)
    assert (await end(broker, sent, ROLLBACK)).code == ResponseCode.SUCCESS
    assert open_offsets(broker) == []


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


async def test_checks_that_are_counted_together_are_sent_in_different_turns(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that gRPC decompresses takes long. Those of all checks of an entry would stop the
    leader for minutes."""
    turns, push, loop = list[tuple[float, int]](), Connection.push, broker.loop

    def pushed(connection: Connection, code: int, *given: Any) -> None:
        if code == RequestCode.CHECK_TRANSACTION_STATE:
            turns.append((loop.now, loop._turns))
        push(connection, code, *given)

    await broker.create_topic("orders")
    producer = Producer(broker)
    await producer.heartbeat()
    sent = [await half(broker, properties=HALF.replace("U1", f"U{n}")) for n in range(40)]
    await end(broker, sent[30], ROLLBACK, msgId="U30")
    monkeypatch.setattr(Connection, "push", pushed)
    await asyncio.sleep(TIMEOUT_S + 1)
    assert len(producer.asked) == len(set(turns)) == 39
    await producer.client.close()


async def test_a_check_whose_half_message_cannot_be_read_holds_up_no_other(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes again after an interval. One that is read for long does not hold them up either."""
    lookup, held = broker.broker.context.lookup, list[Callable[[], None]]()
    read = lookup.record

    def record(position: int, done: Callable[[Bytes, StoreError | None], None]) -> None:
        if position == positions[0]:
            done(b"", DamagedError("log/0", position, "rotten"))
        elif position == positions[1]:
            held.append(partial(read, position, done))
        else:
            read(position, done)

    await broker.create_topic("orders")
    producer = Producer(broker)
    await producer.heartbeat()
    sent = [await half(broker, properties=HALF.replace("U1", f"U{n}")) for n in range(40)]
    positions = [int(str(each.ext["msgId"])[16:], 16) for each in sent]
    with monkeypatch.context() as disk:
        disk.setattr(lookup, "record", record)
        await asyncio.sleep(TIMEOUT_S + 1)
    assert [request.ext["msgId"] for _, request in producer.asked] == [
        f"U{n}" for n in range(2, 40)
    ]
    for go_on in held:
        go_on()
    await producer.stay(INTERVAL_S)
    assert {request.ext["msgId"] for _, request in producer.asked} == {f"U{n}" for n in range(40)}
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


@pytest.mark.parametrize("returns", [True, False], ids=["producer", "nobody"])
async def test_who_returns_after_an_outage_longer_than_all_checks_is_asked(
    loop: NetworkedLoop, tmp_path: Path, returns: bool
) -> None:
    """A new leader knows no producer yet, and each transaction is as old as if it had waited."""

    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await broker.create_topic("orders")
        sent = await half(broker)
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        broker.now_ms += 3_600_000
        await asyncio.sleep(30)
        assert open_offsets(broker) == [0]
        if returns:
            producer = Producer(broker)
            await producer.stay(TIMEOUT_S)
            assert len(producer.asked) == 1
            assert (await end(broker, sent, COMMIT)).code == ResponseCode.SUCCESS
            assert await received(broker) == [b"paid"]
            await producer.client.close()
        else:
            await asyncio.sleep(EXPIRY_SECONDS - 30)
            assert open_offsets(broker) == []


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
