"""Single messages, by id and by key."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from broker.remoting.protocol.codes import MISSING, RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.made_up_records import made_up_record, put_into_a_body
from tests.broker.single_broker import (
    NOW_MS,
    SingleBroker,
    flip,
    messages,
    running_broker,
)
from tests.support.virtual_network import NetworkedLoop


async def viewed(broker: SingleBroker, position: int) -> Frame:
    return await broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)})


async def queried(broker: SingleBroker, key: str, **changed: str) -> Frame:
    ext = {
        "topic": "orders",
        "key": key,
        "maxNum": "32",
        "beginTimestamp": str(NOW_MS - 1000),
        "endTimestamp": str(NOW_MS + 1_000_000),
    }
    return await broker.ask(RequestCode.QUERY_MESSAGE, ext | changed)


async def three_orders(broker: SingleBroker) -> list[int]:
    """Positions of three messages with the keys a, a b, c."""
    await broker.create_topic("orders")
    positions = []
    for number, keys in enumerate(("a", "a b", "c")):
        broker.now_ms = NOW_MS + 10_000 * number
        sent = await broker.send(
            "orders", number, keys.encode(), f"KEYS\x01{keys}\x02UNIQ_KEY\x01U{number}\x02"
        )
        positions.append(int(str(sent.ext["msgId"])[16:], 16))
    return positions


async def test_a_message_is_found_by_the_position_in_its_id(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    positions: list[int] = []

    async with running_broker(loop, tmp_path) as broker:
        positions.extend(await three_orders(broker))
    async with running_broker(loop, tmp_path) as broker:
        for position, body in zip(positions, (b"a", b"a b", b"c"), strict=True):
            (record,) = messages(await viewed(broker, position))
            assert (record.body, record.position) == (body, position)


@pytest.mark.parametrize("shift", [-48, 1, 10**9])
async def test_a_position_where_no_message_begins_is_refused(
    broker: SingleBroker, shift: int
) -> None:
    position = (await three_orders(broker))[1]
    answer = await viewed(broker, position + shift)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"can not find message by the offset {position + shift}" in (answer.remark or "")
    assert answer.ext[MISSING] == "true"


@pytest.mark.parametrize("topic", ["orders", "unknown"])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 10**9])
async def test_a_record_made_up_in_a_body_is_no_message(
    broker: SingleBroker, topic: str, offset: int
) -> None:
    await broker.create_topic("orders")
    position = await put_into_a_body(
        partial(broker.send, "orders", 0), lambda at: made_up_record(at, topic, offset=offset)
    )
    answer = await viewed(broker, position)
    assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
    assert answer.ext[MISSING] == "true"


async def test_a_message_of_a_deleted_topic_is_not_found(broker: SingleBroker) -> None:
    (position, *_) = await three_orders(broker)
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    assert (await viewed(broker, position)).ext[MISSING] == "true"


async def test_a_message_whose_row_rotted_is_refused_and_not_denied(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row leads to another record, as one without a checksum may."""
    await broker.create_topic("orders")
    sent = [await broker.send("orders", 0, body) for body in (b"a", b"b")]
    queue = broker.broker.context.machine.queue("orders", 0)
    assert queue is not None
    other = queue.read(1, 1)
    monkeypatch.setattr(type(queue), "read", lambda *_: other)
    answer = await viewed(broker, int(str(sent[0].ext["msgId"])[16:], 16))
    assert (answer.code, MISSING in answer.ext) == (ResponseCode.SYSTEM_ERROR, False)
    assert "the row of offset 0 does not belong to its record" in (answer.remark or "")


async def test_a_message_that_is_damaged_on_the_disk_is_refused_and_not_denied(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    positions: list[int] = []

    async with running_broker(loop, tmp_path) as broker:
        positions.extend(await three_orders(broker))
    async with running_broker(loop, tmp_path) as broker:
        flip(tmp_path / f"commitlog/{0:020d}", positions[1] + 88)
        answer = await viewed(broker, positions[1])
        assert (answer.code, MISSING in answer.ext) == (ResponseCode.SYSTEM_ERROR, False)
        assert "body CRC: expected" in (answer.remark or "")
        assert "can not find" not in (answer.remark or "")


async def test_a_message_that_the_own_disk_has_yet_to_get_is_refused_and_not_denied(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = (await three_orders(broker))[1]
    context = broker.broker.context
    monkeypatch.setattr(context.machine, "recent", lambda _position, _size: None)
    monkeypatch.setattr(type(context.node.store), "end_position", position)
    answer = await viewed(broker, position)
    monkeypatch.undo()
    assert (answer.code, MISSING in answer.ext) == (ResponseCode.SYSTEM_ERROR, False)
    assert "does not go on to position" in (answer.remark or "")


async def test_messages_with_a_key_come_newest_first(broker: SingleBroker) -> None:
    await three_orders(broker)
    assert [r.body for r in messages(await queried(broker, "a"))] == [b"a b", b"a"]
    assert [r.body for r in messages(await queried(broker, "a", maxNum="1"))] == [b"a b"]
    assert [r.body for r in messages(await queried(broker, "b"))] == [b"a b"]


@pytest.mark.parametrize("most", [0, -1, -(2**63)])
async def test_who_asks_for_no_message_gets_none(broker: SingleBroker, most: int) -> None:
    """A number below 0 counts from the end of what is found, which has no limit."""
    await three_orders(broker)
    assert (await queried(broker, "a", maxNum=str(most))).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("cut", [0, 40, 44, 72, 100])
async def test_keys_are_not_denied_while_their_file_is_cut_short_and_are_found_again(
    loop: NetworkedLoop, tmp_path: Path, cut: int
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await three_orders(broker)
    async with running_broker(loop, tmp_path, scrub_pass_seconds=1) as broker:
        (path,) = (tmp_path / "keyindex").iterdir()
        os.truncate(path, cut)
        answers = [await queried(broker, key) for key in ("a", "b", "c", "U0", "U1", "U2")]
        refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
        assert refused
        for answer in refused:
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith("rows of records from position ")
            assert "made again from the log" in (answer.remark or "")
        await asyncio.sleep(3.0)  # a pass of the scrub
        assert [r.body for r in messages(await queried(broker, "a"))] == [b"a b", b"a"]


async def test_a_unique_key_is_a_key_too(broker: SingleBroker) -> None:
    await three_orders(broker)
    found = await queried(broker, "U2", _UNIQUE_KEY_QUERY="true")
    assert [record.body for record in messages(found)] == [b"c"]
    assert found.ext["indexLastUpdateTimestamp"] == str(NOW_MS + 20_000)


async def test_only_messages_of_the_asked_time_are_found(broker: SingleBroker) -> None:
    await three_orders(broker)
    late = await queried(broker, "a", beginTimestamp=str(NOW_MS + 5_000))
    assert [record.body for record in messages(late)] == [b"a b"]


async def test_a_key_that_nobody_used_is_not_found(broker: SingleBroker) -> None:
    await three_orders(broker)
    answer = await queried(broker, "z")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    other = await queried(broker, "a", topic="bills")
    assert other.code == ResponseCode.QUERY_NOT_FOUND


async def test_keys_are_found_after_a_restart(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await three_orders(broker)
    async with running_broker(loop, tmp_path) as broker:
        assert [r.body for r in messages(await queried(broker, "a"))] == [b"a b", b"a"]
