"""Transactions: published once, or never; asked about; and no request ends another one's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from broker.errors import RefusedError
from broker.limits import CLIENTS, STATE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.topics_and_groups import HALF_TOPIC
from store.errors import DamagedError, StoreError
from store.io.filesystem import Bytes
from tests.broker.single_broker import (
    NOW_MS,
    SingleBroker,
    batched,
    messages,
    running_broker,
    send_ext,
)
from tests.broker.transactions.transaction_client import (
    COMMIT,
    HALF,
    ROLLBACK,
    UNKNOWN,
    end,
    half,
    open_offsets,
    received,
)
from tests.support.virtual_network import NetworkedLoop, turns

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
    assert "the half message cannot be read now: byte" in (answer.remark or "")
    assert open_offsets(broker) == [0]
    assert (await end(broker, sent, outcome)).code == ResponseCode.SUCCESS
    assert open_offsets(broker) == []


@pytest.mark.parametrize(
    ("message_id", "commit"), [("U1", False), ("U1", True), ("U2", False), ("U2", True)]
)
async def test_who_may_not_end_it_does_not_keep_its_producer_from_that_meanwhile(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch, message_id: str, *, commit: bool
) -> None:
    """Somebody who asks again and again, while the half message is read from the disk."""
    context, held, refusals = broker.broker.context, list[Callable[[], None]](), list[object]()
    read = context.lookup.record

    def slow(position: int, done: Callable[[Bytes, StoreError | None], None]) -> None:
        held.append(partial(read, position, done))

    await broker.create_topic("orders")
    sent = await half(broker)
    offset, position = int(str(sent.ext["queueOffset"])), int(str(sent.ext["msgId"])[16:], 16)
    with monkeypatch.context() as disk:
        disk.setattr(context.lookup, "record", slow)
        context.transactions.end(
            *(offset, position, "payers", message_id),
            commit=commit,
            ended=refusals.append,
            may=lambda _topic: False,
        )
        asked = asyncio.ensure_future(end(broker, sent, COMMIT))
        await turns(20)
        for go_on in held:
            go_on()
        assert (await asked).code == ResponseCode.SUCCESS
    assert isinstance(refusals[0], RefusedError)
    assert await received(broker) == [b"paid"]


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


async def test_the_name_of_a_producer_group_has_a_limit(broker: SingleBroker) -> None:
    """Each replica keeps it for each open transaction."""
    await broker.create_topic("orders")
    longest = HALF.replace("payers", "ü" * CLIENTS.name_size_max)
    await half(broker, properties=longest)
    answer = await broker.send("orders", 2, b"x", longest.replace("ü\x02", "üü\x02"), f="4")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "producer group has 513 characters" in (answer.remark or "")
    assert open_offsets(broker) == [0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMER_DELIVER_MS", str(NOW_MS + 60_000)),
        ("TIMER_DELAY_SEC", "60"),
        ("TIMER_DELAY_MS", "60000"),
    ],
)
async def test_a_half_message_cannot_wait_for_a_time(
    broker: SingleBroker, name: str, value: str
) -> None:
    """It would be delivered at its commit. One that has waited for that time may be sent on."""
    await broker.create_topic("orders")
    properties = f"{HALF}{name}\x01{value}\x02"
    answer = await broker.send("orders", 2, b"x", properties, f="4")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "cannot have a delivery time" in (answer.remark or "")
    assert open_offsets(broker) == []
    sent = await half(broker, properties=f"{properties}TIMER_OUT_MS\x011\x02")
    await end(broker, sent, COMMIT)
    assert await received(broker) == [b"paid"]


async def test_a_batch_may_not_hold_one(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    ext = send_ext("orders", 0) | {"m": "true"}
    body = batched(b"a", HALF.encode())
    answer = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_too_many_open_transactions_are_refused(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = STATE._replace(transactions_max=1)
    monkeypatch.setattr("broker.ingest.ingest.STATE", few)
    assert STATE.transactions_max > 1

    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await broker.create_topic("orders")
        sent = await half(broker)
        second = await broker.send("orders", 0, b"x", HALF.replace("U1", "U2"), f="4")
        assert second.code == ResponseCode.SYSTEM_BUSY
        await end(broker, sent, ROLLBACK)
        await half(broker, properties=HALF.replace("U1", "U2"))


async def test_transactions_that_begin_at_the_same_time_count_too(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.ingest.ingest.STATE", STATE._replace(transactions_max=4))

    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await broker.create_topic("orders")

        def begin(number: int) -> Awaitable[Frame]:
            return broker.send("orders", 0, b"x", HALF.replace("U1", f"U{number}"), f="4")

        answers = await asyncio.gather(*map(begin, range(10)))
        codes = [answer.code for answer in answers]
        assert codes.count(ResponseCode.SUCCESS) == 4
        assert codes.count(ResponseCode.SYSTEM_BUSY) == 6
        stored = next(answer for answer in answers if answer.code == ResponseCode.SUCCESS)
        await end(broker, stored, ROLLBACK, msgId="", transactionId="")
        assert (await begin(20)).code == ResponseCode.SUCCESS
        assert (await begin(21)).code == ResponseCode.SYSTEM_BUSY


async def test_a_topic_that_was_deleted_meanwhile_is_named(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await half(broker)
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    answer = await end(broker, sent, COMMIT)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert open_offsets(broker) == [0]
