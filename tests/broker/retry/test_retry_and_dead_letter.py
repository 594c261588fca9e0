"""Consumer retry and dead letters: what comes back, when, how often, and where it ends."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.ext_fields import INT32_MAX
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from broker.state.commands import DeleteGroup, DeleteTopic
from store.message.record import PROPERTIES_BYTES_MAX, MessageRecord, record_size
from store.message.scheduled_topics import DELAYS_MS
from tests.broker.made_up_records import made_up_record, put_into_a_body
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

GROUP = "readers"
BORN_HOST_END = 56
"""The byte of a record behind its IPv4 born host."""
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


async def send_back(broker: SingleBroker, record: MessageRecord, **changed: str) -> Frame:
    ext = {
        "offset": str(record.position),
        "group": GROUP,
        "delayLevel": "0",
        "originMsgId": "",
        "originTopic": record.topic,
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
    return await broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext | changed)


async def first_message(broker: SingleBroker, properties: str = "TAGS\x01a\x02") -> MessageRecord:
    """A message that the group has pulled, by which it is known."""
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"m", properties)
    (record,) = messages(await broker.pull("orders", 0, 0))
    return record


async def next_of(broker: SingleBroker, topic: str, offset: int = 0) -> MessageRecord:
    """Waits for the message."""
    async with asyncio.timeout(600):
        while not (found := messages(await held_pull(broker, topic, offset))):
            pass
    return found[0]


async def held_pull(broker: SingleBroker, topic: str, offset: int) -> Frame:
    answer = await broker.pull(topic, 0, offset, sysFlag="6", suspendTimeoutMillis="30000")
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        await asyncio.sleep(0.5)
    return answer


@pytest.mark.parametrize(("asked", "level"), [("0", 3), ("1", 1), ("99", 18)])
async def test_a_message_comes_back_after_its_level(
    broker: SingleBroker, asked: str, level: int
) -> None:
    record = await first_message(broker)
    answer = await send_back(broker, record, delayLevel=asked)
    assert (answer.code, answer.body) == (0, b"")
    sent_ms = broker.wall_ms()
    if level > 3:
        broker.now_ms += DELAYS_MS[level - 1] - 5_000
    again = await next_of(broker, RETRY)
    assert 0 <= again.store_timestamp - sent_ms - DELAYS_MS[level - 1] <= 5
    assert (again.topic, again.body, again.reconsume_times) == (RETRY, b"m", 1)
    assert again.born_timestamp == record.born_timestamp
    host = record.store_host.hex().upper()
    assert again.property_map == {
        "TAGS": "a",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": f"{host}{record.position:016X}",
        "DELAY": str(level),
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }


async def test_each_attempt_waits_longer_and_the_last_ends_among_the_dead(
    broker: SingleBroker,
) -> None:
    record = await first_message(broker)
    origin = f"{record.store_host.hex().upper()}{record.position:016X}"
    for attempt in range(1, 4):
        sent_ms = broker.wall_ms()
        await send_back(broker, record, maxReconsumeTimes="3")
        record = await next_of(broker, RETRY, attempt - 1)
        waited = record.store_timestamp - sent_ms
        assert 0 <= waited - DELAYS_MS[2 + attempt - 1] <= 5
        assert record.reconsume_times == attempt
    assert (await send_back(broker, record, maxReconsumeTimes="3")).code == 0
    dead = await next_of(broker, DEAD)
    assert (dead.reconsume_times, dead.body) == (4, b"m")
    assert dead.property_map["RETRY_TOPIC"] == "orders"
    assert dead.property_map["ORIGIN_MESSAGE_ID"] == origin
    assert dead.property_map["DELAY"] == "0"
    assert (await broker.pull(RETRY, 0, 3)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_level_below_zero_gives_a_message_up_at_once(broker: SingleBroker) -> None:
    record = await first_message(broker)
    assert (await send_back(broker, record, delayLevel="-1")).code == 0
    assert (await next_of(broker, DEAD)).reconsume_times == 1


async def set_group(broker: SingleBroker, **settings: int) -> None:
    body = encode_json({"groupName": GROUP, **settings})
    answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == 0


@pytest.mark.parametrize("times", [{"maxReconsumeTimes": ""}, {"maxReconsumeTimes": "-1"}])
async def test_a_client_that_does_not_say_how_often_gets_its_group_s_number(
    broker: SingleBroker, times: dict[str, str]
) -> None:
    record = await first_message(broker)
    await set_group(broker, retryMaxTimes=0)
    assert (await send_back(broker, record, **times)).code == 0
    assert (await next_of(broker, DEAD)).body == b"m"


@pytest.mark.parametrize("times", ["-1", "16"])
async def test_a_group_without_retry_queues_gives_up_what_it_fails_at(
    broker: SingleBroker, times: str
) -> None:
    """RocketMQ drops it, and answers that all is well."""
    record = await first_message(broker)
    await set_group(broker, retryQueueNums=0)
    assert (await send_back(broker, record, maxReconsumeTimes=times)).code == 0
    dead = await next_of(broker, DEAD)
    assert (dead.body, dead.reconsume_times) == (b"m", 1)


async def test_a_retry_topic_that_is_missing_is_created_with_the_group_s_queues(
    broker: SingleBroker,
) -> None:
    record = await first_message(broker)
    await set_group(broker, retryQueueNums=3)
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": RETRY})
    assert (await send_back(broker, record)).code == 0
    topic = broker.broker.context.machine.state.topics[RETRY]
    assert (topic.read_queues, topic.write_queues) == (3, 3)


@pytest.mark.parametrize(
    ("changed", "code", "remark"),
    [
        ({"group": "strangers"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "strangers"),
        ({"offset": "7"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, 7"),
        ({"offset": "999999999"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed"),
        ({"offset": "-1"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed"),
        ({"delayLevel": "x"}, ResponseCode.SYSTEM_ERROR, "field delayLevel is not an integer"),
        ({"delayLevel": ""}, ResponseCode.SYSTEM_ERROR, "missing field delayLevel"),
    ],
)
async def test_what_cannot_be_sent_back_is_refused_with_what_is_wrong(
    broker: SingleBroker, changed: dict[str, str], code: ResponseCode, remark: str
) -> None:
    record = await first_message(broker)
    answer = await send_back(broker, record, **changed)
    assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark


async def test_what_could_be_sent_back_but_not_come_again_is_refused(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Its copy waits with a few properties more, and has to fit into an entry once more."""
    segment_size = 64 << 10

    async with running_broker(
        loop,
        tmp_path,
        clock_runs=True,
        segment_size=segment_size,
        max_message_size=segment_size // 2,
    ) as broker:
        await broker.create_topic("orders")
        body = b"x" * (segment_size // 2)
        largest = broker.broker.context.batcher.request_bytes_max
        room = largest - record_size("orders", len(body), 0)
        for queue_id, left in enumerate((300, 600, 1000, 1500)):
            padding = f"p\x01{'x' * (room - left)}\x02"
            sent = await broker.send("orders", queue_id, body, padding)
            assert sent.code == ResponseCode.SUCCESS
            (record,) = messages(await broker.pull("orders", queue_id, 0))
            answer = await send_back(broker, record)
            if left < 1024:
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL
                assert "exceeds" in (answer.remark or "")
        assert answer.code == ResponseCode.SUCCESS
        assert (await next_of(broker, RETRY)).body == body


async def test_nothing_is_stored_for_a_group_that_is_gone_once_the_message_is_read(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its retry topic would be there again."""
    record = await first_message(broker)
    context = broker.broker.context
    load = context.reader.load

    def load_without_the_group(*asked: Any) -> None:
        commands = (DeleteGroup(GROUP, True, 1), DeleteTopic(RETRY, 1))
        context.batcher.add_in_one_entry((), commands)
        load(*asked)

    monkeypatch.setattr(context.reader, "load", load_without_the_group)
    answer = await send_back(broker, record)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert context.batcher.topic(RETRY) is None


async def test_a_retry_topic_that_is_closed_refuses(broker: SingleBroker) -> None:
    record = await first_message(broker)
    await broker.create_topic(RETRY, 1, perm=4)
    assert (await send_back(broker, record)).code == ResponseCode.NO_PERMISSION


async def test_what_a_client_returns_by_itself_waits_or_dies_like_what_it_sends_back(
    broker: SingleBroker,
) -> None:
    await first_message(broker)
    fields = {"j": "2", "l": "3"}
    assert (await broker.send(RETRY, 0, b"again", "DELAY\x015\x02", **fields)).code == 0
    broker.now_ms += 59_000
    assert (await next_of(broker, RETRY)).reconsume_times == 2
    fields = {"j": "3", "l": "3"}
    assert (await broker.send(RETRY, 0, b"enough", "DELAY\x016\x02", **fields)).code == 0
    assert (await next_of(broker, DEAD)).body == b"enough"
    fields = {"j": "30", "l": "100"}
    assert (await broker.send(RETRY, 0, b"often", "DELAY\x0133\x02", **fields)).code == 0
    broker.now_ms += DELAYS_MS[17]
    assert (await next_of(broker, RETRY, 1)).body == b"often"
    answer = await broker.send("%RETRY%strangers", 0, b"", "DELAY\x013\x02")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_the_first_dead_letter_of_a_group_is_stored_once_though_it_is_sent_again(
    broker: SingleBroker,
) -> None:
    """It creates the topic of the group's dead letters."""
    await first_message(broker)
    fields = {"j": "3", "l": "3"}
    properties = "UNIQ_KEY\x01k\x02DELAY\x016\x02"
    first = await broker.send(RETRY, 0, b"enough", properties, **fields)
    again = await broker.send(RETRY, 0, b"enough", properties, **fields)
    assert (again.code, again.ext) == (ResponseCode.SUCCESS, first.ext)
    assert broker.broker.context.machine.end_offset(DEAD, 0) == 1


async def test_attempts_are_counted_as_far_as_a_record_can_count(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"m", j=str(2**31 - 1))
    (record,) = messages(await broker.pull("orders", 0, 0))
    async with asyncio.timeout(5):
        assert (await send_back(broker, record)).code == 0
    assert (await next_of(broker, DEAD)).reconsume_times == 2**31 - 1


async def test_a_message_that_says_attempts_below_0_comes_back_as_after_the_first(
    broker: SingleBroker,
) -> None:
    """By that number it has no delay level: it stopped the leader that looked for one."""
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"m", j=str(-INT32_MAX))
    (record,) = messages(await broker.pull("orders", 0, 0))
    assert record.reconsume_times == -INT32_MAX
    async with asyncio.timeout(5):
        assert (await send_back(broker, record)).code == 0
    again = await next_of(broker, RETRY)
    assert again.body == b"m"
    assert again.store_timestamp - record.store_timestamp >= DELAYS_MS[2]


async def test_what_nobody_has_failed_at_is_no_dead_letter(broker: SingleBroker) -> None:
    """An operator sends a dead letter again, to a group without retries."""
    record = await first_message(broker)
    await set_group(broker, retryMaxTimes=0)
    assert (await send_back(broker, record, maxReconsumeTimes="-1")).code == 0
    assert (await broker.send(RETRY, 0, b"once more")).code == 0
    again = await next_of(broker, RETRY)
    assert again.body == b"once more"
    assert broker.broker.context.machine.end_offset(DEAD, 0) == 1
    assert (await send_back(broker, again, maxReconsumeTimes="-1")).code == 0
    assert (await next_of(broker, DEAD, 1)).body == b"once more"


@pytest.mark.parametrize("room", [0, 10, 50, 80, 150])
@pytest.mark.parametrize(("delay_level", "topic"), [("0", RETRY), ("-1", DEAD)])
async def test_properties_that_leave_no_room_for_marks_keep_no_message_back(
    broker: SingleBroker, room: int, delay_level: str, topic: str
) -> None:
    own = f"p\x01{'x' * (PROPERTIES_BYTES_MAX - 3 - room)}\x02"
    record = await first_message(broker, own)
    assert len(record.properties) == PROPERTIES_BYTES_MAX - room
    assert (await send_back(broker, record, delayLevel=delay_level)).code == 0
    again = await next_of(broker, topic)
    assert (again.body, again.reconsume_times) == (b"m", 1)
    assert again.property_map["p"] == record.property_map["p"]
    assert room < 150 or again.property_map["ORIGIN_MESSAGE_ID"]


@pytest.mark.parametrize("delay_level", ["0", "-1"], ids=["again", "dead letter"])
@pytest.mark.parametrize("ipv6", [False, True])
async def test_a_record_made_up_in_a_body_is_not_stored(
    broker: SingleBroker, delay_level: str, *, ipv6: bool
) -> None:
    """It has what no client may send. The copy of one with a host of IPv6 could not be read: no
    message of its delay level, of any topic, was delivered again."""
    await first_message(broker)

    def record(position: int) -> bytes:
        if not ipv6:
            return made_up_record(position, "orders", body=b"made up")
        plain = made_up_record(position, "orders", body=b"made up", sys_flag=0x10)
        size = (len(plain) + 12).to_bytes(4, "big")
        return size + plain[4:BORN_HOST_END] + bytes(12) + plain[BORN_HOST_END:]

    position = await put_into_a_body(partial(broker.send, "orders", 0), record)
    end = broker.broker.context.machine.applied_end
    named = {"offset": str(position), "group": GROUP, "originTopic": "orders"}
    asked = {"delayLevel": delay_level, "maxReconsumeTimes": "16"}
    answer = await broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, named | asked)
    await asyncio.sleep(60)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"no queue has a message at position {position}" in (answer.remark or "")
    assert broker.broker.context.machine.applied_end == end
