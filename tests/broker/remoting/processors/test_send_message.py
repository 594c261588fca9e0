"""Sending through the whole broker: what is accepted, what is refused, and how it is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.limits import PRODUCE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.single_broker import (
    NOW_MS,
    SingleBroker,
    batched,
    messages,
    running_broker,
    send_ext,
)
from tests.support.virtual_network import NetworkedLoop


async def test_a_message_comes_back_as_it_was_sent(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await broker.send("orders", 2, b"hello", "TAGS\x01TagA\x02KEYS\x01k1\x02", h="7")
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    (record,) = messages(await broker.pull("orders", 2, 0))
    assert record.body == b"hello"
    assert record.property_map == {"TAGS": "TagA", "KEYS": "k1"}
    assert (record.topic, record.queue_id, record.queue_offset) == ("orders", 2, 0)
    assert (record.flag, record.born_timestamp) == (7, NOW_MS - 5)
    assert record.store_timestamp == NOW_MS


async def test_the_answer_names_queue_offset_and_place(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 2, b"first")
    sent = await broker.send("orders", 2, b"second")
    record = messages(await broker.pull("orders", 2, 0))[1]
    assert sent.ext == {
        "msgId": f"7F00000100002A9F{record.position:016X}",
        "queueId": "2",
        "queueOffset": "1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_messages_of_one_turn_share_an_entry_and_keep_their_order(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders", queues=2)
    before = broker.broker.context.node.applied_index
    answers = await asyncio.gather(*(broker.send("orders", i % 2, b"%d" % i) for i in range(40)))
    assert [int(str(answer.ext["queueOffset"])) for answer in answers] == [
        i // 2 for i in range(40)
    ]
    assert broker.broker.context.node.applied_index == before + 1
    odd = messages(await broker.pull("orders", 1, 0))
    assert [record.body for record in odd] == [b"%d" % i for i in range(1, 40, 2)]


async def test_the_long_names_of_code_10_are_understood(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    answer = await broker.ask(
        RequestCode.SEND_MESSAGE,
        {
            "producerGroup": "p",
            "topic": "orders",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "1",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
            "properties": "TAGS\x01x",
            "batch": "false",
        },
        b"hello",
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    (record,) = messages(await broker.pull("orders", 1, 0))
    assert record.property_map == {"TAGS": "x"}


async def test_numbers_and_booleans_of_json_are_taken_like_strings(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    ext = send_ext("orders", 1) | {"d": 4, "e": 1, "f": 0, "g": 5, "h": 0, "k": False}
    answer = await broker.ask(RequestCode.SEND_MESSAGE_V2, ext, b"hello")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert answer.ext["queueId"] == "1"


async def test_wait_is_not_stored(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"a", "WAIT\x01true\x02TAGS\x01x\x02")
    await broker.send("orders", 0, b"b", "AWAIT\x01no\x02WAIT\x01true")
    a, b = messages(await broker.pull("orders", 0, 0))
    assert (a.properties, b.properties) == (b"TAGS\x01x\x02", b"AWAIT\x01no\x02")


async def test_a_negative_queue_id_means_any_queue(broker: SingleBroker) -> None:
    await broker.create_topic("orders", queues=4)
    answers = [await broker.send("orders", -1, b"x") for _ in range(40)]
    assert {answer.ext["queueId"] for answer in answers} == {"0", "1", "2", "3"}


# --- batches


async def test_a_batch_becomes_single_messages(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    body = batched(b"a", b"TAGS\x01x\x02") + batched(b"b") + batched(b"")
    ext = send_ext("orders", 3) | {"m": "true"}
    answer = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    records = messages(await broker.pull("orders", 3, 0))
    assert [(r.body, r.property_map, r.queue_offset) for r in records] == [
        (b"a", {"TAGS": "x"}, 0),
        (b"b", {}, 1),
        (b"", {}, 2),
    ]
    assert answer.ext["queueOffset"] == "0"
    assert str(answer.ext["msgId"]).split(",") == [
        f"7F00000100002A9F{record.position:016X}" for record in records
    ]


async def test_the_properties_of_a_batch_header_are_added_to_every_message(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    body = batched(b"a", b"TAGS\x01x") + batched(b"b")
    ext = send_ext("orders", 0, "WAIT\x01true\x02ALL\x01yes\x02") | {"m": "true"}
    await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)
    a, b = messages(await broker.pull("orders", 0, 0))
    assert a.property_map == {"TAGS": "x", "WAIT": "true", "ALL": "yes"}
    assert b.property_map == {"WAIT": "true", "ALL": "yes"}


@pytest.mark.parametrize("of_all", ["WAIT\x01true\x02", "WAIT\x01true", ""])
async def test_messages_of_a_batch_keep_that_their_producer_waits(
    broker: SingleBroker, of_all: str
) -> None:
    """As with RocketMQ, which takes ``WAIT`` from single messages alone. Java's clients write it
    into each message of a batch, and into the header."""

    await broker.create_topic("orders")
    sent = [f"UNIQ_KEY\x01{number:032}\x02WAIT\x01true\x02".encode() for number in range(3)]
    sent.append(b"WAIT\x01false")
    body = b"".join(batched(b"x", properties) for properties in sent)
    ext = send_ext("orders", 0, of_all) | {"m": "true"}
    answer = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)
    assert answer.code == ResponseCode.SUCCESS
    stored = [record.properties for record in messages(await broker.pull("orders", 0, 0))]
    assert stored[:3] == sent[:3]
    assert stored[3] == (b"WAIT\x01false\x02WAIT\x01true\x02" if of_all else sent[3])


async def test_code_10_with_batch_1_is_a_batch(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    ext = {
        "producerGroup": "p",
        "topic": "orders",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "batch": "1",
    }
    await broker.ask(RequestCode.SEND_MESSAGE, ext, batched(b"a") + batched(b"b"))
    records = messages(await broker.pull("orders", 0, 0))
    assert [record.body for record in records] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"", "the batch has no message"),
        (b"\0\0\0", "batch, byte 0: 3 bytes are left"),
        (batched(b"a") + b"\0" * 10, "batch, byte 23: 10 bytes are left"),
        (b"\x7f" + batched(b"a")[1:], "batch, byte 0: the size"),
        (
            batched(b"a")[:-2] + b"\x00\x05",
            "batch, byte 0: the size 23 does not fit 5 bytes of properties",
        ),
        (batched(b"a")[:16] + b"\xff\xff\xff\xff" + batched(b"a")[20:], "a body of -1 bytes"),
    ],
)
async def test_a_malformed_batch_is_refused_as_a_whole(
    broker: SingleBroker, body: bytes, remark: str
) -> None:
    await broker.create_topic("orders")
    ext = send_ext("orders", 0) | {"m": "true"}
    answer = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert remark in (answer.remark or "")
    assert (await broker.pull("orders", 0, 0)).code == ResponseCode.PULL_NOT_FOUND


# --- refusals


@pytest.mark.parametrize(
    ("changed", "code", "remark"),
    [
        ({"b": "no such"}, ResponseCode.SYSTEM_ERROR, "the topic name 'no such' may only have"),
        ({"b": ""}, ResponseCode.SYSTEM_ERROR, "the topic has no name"),
        ({"b": "t" * 128}, ResponseCode.MESSAGE_ILLEGAL, "128 characters, at most 127"),
        ({"b": "unknown", "c": "none"}, ResponseCode.TOPIC_NOT_EXIST, "topic[unknown] not exist"),
        ({"e": "4"}, ResponseCode.SYSTEM_ERROR, "has no queue 4, its queues are 0 to 3"),
        ({"e": "x"}, ResponseCode.SYSTEM_ERROR, "field e is not an integer: 'x'"),
        *(
            ({field: odd}, ResponseCode.SYSTEM_ERROR, f"field {field} is not an integer: '{odd}'")
            for field in "defghjl"
            for odd in ("0_0", "\u0660")
        ),
        ({"h": str(2**31)}, ResponseCode.SYSTEM_ERROR, "field h is not between"),
        ({"g": str(2**63)}, ResponseCode.SYSTEM_ERROR, "field g is not between"),
        ({"i": "A\x01" + "x" * 32_767}, ResponseCode.MESSAGE_ILLEGAL, "32769 bytes, at most 32767"),
        ({"i": "DELAY\x0119\x02"}, ResponseCode.MESSAGE_ILLEGAL, "no delay level 19, the levels"),
        ({"i": "A\x01a\x02DELAY\x01soon\x02"}, ResponseCode.MESSAGE_ILLEGAL, "level soon is not"),
        ({"i": "DELAY\x011_0\x02"}, ResponseCode.MESSAGE_ILLEGAL, "level 1_0 is not"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION, "is forbidden"),
    ],
)
async def test_a_bad_field_is_refused_with_what_is_wrong(
    broker: SingleBroker, changed: dict[str, str], code: ResponseCode, remark: str
) -> None:
    await broker.create_topic("orders")
    answer = await broker.send("orders", 0, b"x", **changed)
    assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark
    assert (await broker.send("orders", 0, b"x")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e", "f", "g", "h"])
async def test_a_missing_field_is_named(broker: SingleBroker, name: str) -> None:
    await broker.create_topic("orders")
    ext = send_ext("orders", 0)
    del ext[name]
    answer = await broker.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"missing field {name}"


@pytest.mark.parametrize(("over", "code"), [(0, 0), (1, ResponseCode.MESSAGE_ILLEGAL)])
async def test_a_body_may_be_as_large_as_the_limit(
    broker: SingleBroker, over: int, code: int
) -> None:
    await broker.create_topic("orders")
    answer = await broker.send("orders", 0, b"x" * (broker.config.max_message_size + over))
    assert answer.code == code


async def test_the_largest_message_with_the_largest_properties_fits_half_a_segment(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, segment_size=128 << 10) as broker:
        await broker.create_topic("orders")
        properties = "A\x01" + "x" * (32_767 - 3) + "\x02"
        answer = await broker.send("orders", 0, b"x" * broker.config.max_message_size, properties)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_what_no_segment_could_hold_is_refused(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, segment_size=128 << 10) as broker:
        await broker.create_topic("orders")
        properties = b"KEYS\x01" + b"k " * 250 + b"\x02"
        batch = batched(b"x", properties) * 100
        answer = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext("orders", 0), batch)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "a segment can hold" in (answer.remark or "")
        assert (await broker.send("orders", 0, b"x")).code == ResponseCode.SUCCESS


async def test_a_topic_without_write_permission_takes_nothing(broker: SingleBroker) -> None:
    await broker.create_topic("orders", perm=4)
    answer = await broker.send("orders", 0, b"x")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the topic orders is not writable"


async def test_a_node_that_does_not_lead_says_service_not_available(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, serving=False) as broker:
        answer = await broker.send("orders", 0, b"x")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark == "not the leader; the leader is not known yet"


# --- topics made by sending


async def test_an_unknown_topic_is_created_like_the_template(broker: SingleBroker) -> None:
    before = broker.broker.context.node.applied_index
    answer = await broker.send("fresh", 0, b"x", d="16")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    topic = broker.broker.context.machine.state.topics["fresh"]
    assert (topic.read_queues, topic.write_queues, topic.perm) == (8, 8, 6)
    assert broker.broker.context.node.applied_index == before + 1


async def test_messages_that_race_to_create_a_topic_create_it_once(broker: SingleBroker) -> None:
    answers = await asyncio.gather(*(broker.send("fresh", 0, b"x") for _ in range(5)))
    assert [answer.ext["queueOffset"] for answer in answers] == ["0", "1", "2", "3", "4"]
    assert broker.broker.context.machine.state.topics_version.counter == 1


async def test_no_topic_is_created_where_that_is_switched_off(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, auto_create_topics=False) as broker:
        answer = await broker.send("fresh", 0, b"x")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark == "topic[fresh] not exist, apply first please!"


@pytest.mark.parametrize(
    ("keys", "remark"),
    [
        ([f"k{number}" for number in range(PRODUCE.keys_max)], None),
        (["k"] * 6_500, "the message has 6500 keys, at most 256 are allowed"),
        (["x" * PRODUCE.key_size_max], None),
        (["a", "x" * 4_097], "a key of the message has 4097 bytes, at most 4096 are allowed"),
    ],
)
@pytest.mark.parametrize("more", ["", "UNIQ_KEY\x01U\x02", "XUNIQ_KEY\x01U\x02", "DELAY\x011\x02"])
async def test_the_keys_of_a_message_have_a_limit_in_number_and_size(
    broker: SingleBroker, keys: list[str], remark: str | None, more: str
) -> None:
    properties = f"{more}KEYS\x01{' '.join(keys)}\x02"

    await broker.create_topic("orders")
    batch = await broker.ask(
        RequestCode.SEND_BATCH_MESSAGE,
        send_ext("orders", 0),
        batched(b"x", properties.encode()),
    )
    answers = [await broker.send("orders", 0, b"x", properties)]
    if "DELAY" not in more:
        answers.append(batch)
    for answer in answers:
        assert (answer.code, answer.remark) == (13 if remark else 0, remark)


async def test_the_keys_of_a_batch_have_a_limit_for_all_messages_together(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = PRODUCE._replace(batch_keys_max=4 * PRODUCE.keys_max)
    monkeypatch.setattr("broker.ingest.batch_body.PRODUCE", limits)

    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        keys = " ".join(f"k{number}" for number in range(PRODUCE.keys_max))
        one = batched(b"x", f"KEYS\x01{keys}\x02".encode())
        for count, code in ((4, 0), (5, 13)):
            ext = send_ext("orders", 0)
            answer = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, one * count)
            assert answer.code == code
        assert answer.remark is not None
        assert "1280 keys, at most 1024 are allowed in one request" in answer.remark


async def test_the_messages_of_a_batch_have_a_limit(loop: NetworkedLoop, tmp_path: Path) -> None:
    """An entry is made in one piece, so its messages must be few enough for the event loop."""

    async with running_broker(
        loop, tmp_path, max_message_size=1 << 20, segment_size=8 << 20
    ) as broker:
        await broker.create_topic("orders")
        for count, code in ((PRODUCE.batch_messages_max, 0), (PRODUCE.batch_messages_max + 1, 13)):
            body = batched(b"") * count
            ext = send_ext("orders", 0)
            answer = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)
            assert answer.code == code, answer.remark
        assert "at most 16384 messages are allowed in one request" in (answer.remark or "")
