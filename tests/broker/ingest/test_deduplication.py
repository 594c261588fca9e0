"""Requests that are sent again: stored once, and answered as the first try was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.limits import PRODUCE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.state import deduplication_window
from broker.state.commands import Command, DeleteTopic, PutTopic
from broker.state.deduplication_window import DeduplicationIndex, RecentRequests, pack_keys
from broker.topics_and_groups import TopicConfig
from dledger.errors import InvariantError, NoRoomError
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from store.message.batch import pending_bytes
from store.message.record import key_hash, make_pending_message
from tests.broker.single_broker import (
    SingleBroker,
    batched,
    messages,
    running_broker,
    send_ext,
)
from tests.support.virtual_network import NetworkedLoop

KEY = "UNIQ_KEY\x017F00000100002A9F0000000000000001\x02"


async def bodies(broker: SingleBroker, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in messages(await broker.pull(topic, queue_id, 0))]


async def test_a_message_sent_again_is_stored_once_and_answered_as_before(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    first = await broker.send("orders", 0, b"a", KEY + "TAGS\x01x\x02")
    await broker.send("orders", 0, b"b", "UNIQ_KEY\x01other\x02")
    again = await broker.send("orders", 0, b"a", KEY + "TAGS\x01x\x02", g="77")
    assert (again.code, again.ext) == (ResponseCode.SUCCESS, first.ext)
    assert await bodies(broker) == [b"a", b"b"]


async def test_a_retry_to_another_queue_is_told_the_queue_of_the_first_try(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    first = await broker.send("orders", 2, b"a", KEY)
    again = await broker.send("orders", 1, b"a", KEY)
    assert again.ext == first.ext
    assert await bodies(broker, queue_id=1) == []


async def test_a_retry_waits_for_the_first_try_that_is_still_on_its_way(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    broker.log_executor.hold()
    tries = [asyncio.ensure_future(broker.send("orders", 0, b"a", KEY)) for _ in range(2)]
    await asyncio.sleep(1.0)
    tries += [asyncio.ensure_future(broker.send("orders", n, b"a", KEY)) for n in range(3)]
    await asyncio.sleep(1.0)
    assert not any(each.done() for each in tries)
    broker.log_executor.release()
    answers = await asyncio.gather(*tries)
    assert all(answer.ext == answers[0].ext for answer in answers)
    assert answers[0].code == ResponseCode.SUCCESS
    assert [await bodies(broker, queue_id=n) for n in range(3)] == [[b"a"], [], []]


async def test_what_differs_from_a_request_that_is_looked_for_is_another_message(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    broker.log_executor.hold()
    tries = [asyncio.ensure_future(broker.send("orders", 0, b"a", KEY)) for _ in range(2)]
    tries.append(asyncio.ensure_future(broker.send("orders", 0, b"b", KEY)))
    await asyncio.sleep(1.0)
    broker.log_executor.release()
    first, again, other = await asyncio.gather(*tries)
    assert first.ext == again.ext != other.ext
    assert sorted(await bodies(broker)) == [b"a", b"b"]


async def test_keys_of_one_hash_are_looked_for_one_after_the_other(broker: SingleBroker) -> None:
    """Anybody can make many, and each look-up may read a whole entry."""
    await broker.create_topic("orders")
    keys = ("1371838", "2000402")
    assert len({key_hash("orders", key.encode()) for key in keys}) == 1
    one, other = (f"UNIQ_KEY\x01{key}\x02" for key in keys)
    first = await broker.send("orders", 0, b"a", one)
    broker.log_executor.hold()
    again = asyncio.ensure_future(broker.send("orders", 0, b"a", one))
    await asyncio.sleep(0.1)
    refused = await broker.send("orders", 0, b"b", other)
    broker.log_executor.release()
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await again).ext == first.ext
    assert (await broker.send("orders", 0, b"b", other)).code == ResponseCode.SUCCESS
    assert await bodies(broker) == [b"a", b"b"]


async def test_so_many_bytes_are_looked_for_at_once(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "broker.ingest.deduplication.PRODUCE", PRODUCE._replace(suspect_bytes_max=1_500)
    )

    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        keys = [f"UNIQ_KEY\x01{number}\x02" for number in range(3)]
        for key in keys:
            assert (await broker.send("orders", 0, b"x" * 500, key)).code == 0
        broker.log_executor.hold()
        again = [asyncio.ensure_future(broker.send("orders", 0, b"x" * 500, key)) for key in keys]
        again.append(asyncio.ensure_future(broker.send("orders", 0, b"new")))
        await asyncio.sleep(1)
        broker.log_executor.release()
        codes = [answer.code for answer in await asyncio.gather(*again)]
        assert codes == [0, 0, ResponseCode.SYSTEM_BUSY, 0]
        assert broker.broker.context.ingest.deduplicator._suspect_bytes == 0
        assert (await broker.send("orders", 0, b"x" * 500, keys[2])).code == 0
        assert len(await bodies(broker)) == 4


@pytest.mark.parametrize(
    ("topic", "body", "properties"),
    [
        ("orders", b"b", KEY),
        ("bills", b"a", KEY),
        ("orders", b"a", KEY + "TAGS\x01x\x02"),
        ("orders", b"a", KEY.lower()),
        ("orders", b"a", "KEYS\x017F00000100002A9F0000000000000001\x02"),
    ],
)
async def test_what_differs_is_another_message(
    broker: SingleBroker, topic: str, body: bytes, properties: str
) -> None:
    await broker.create_topic("orders")
    await broker.create_topic("bills")
    first = await broker.send("orders", 0, b"a", KEY)
    other = await broker.send(topic, 0, body, properties)
    assert other.ext["msgId"] != first.ext["msgId"]
    assert await bodies(broker, topic) == ([b"a", body] if topic == "orders" else [body])


async def test_words_of_keys_may_repeat(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    for _ in range(3):
        await broker.send("orders", 0, b"a", "KEYS\x01one\x02")
    assert await bodies(broker) == [b"a"] * 3


async def test_a_batch_sent_again_is_stored_once(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    pair = batched(b"a", KEY.encode()) + batched(b"b", b"UNIQ_KEY\x01second\x02")
    ext = send_ext("orders", 3) | {"m": "true"}
    first = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, pair)
    again = await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext | {"e": "1"}, pair)
    assert again.ext == first.ext
    other = pair + batched(b"c", b"UNIQ_KEY\x01third\x02")
    await broker.ask(RequestCode.SEND_BATCH_MESSAGE, ext, other)
    assert await bodies(broker, queue_id=3) == [b"a", b"b", b"a", b"b", b"c"]


async def test_a_delayed_message_sent_again_waits_once(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    first = await broker.send("orders", 2, b"a", KEY + "DELAY\x015\x02")
    again = await broker.send("orders", 1, b"a", KEY + "DELAY\x015\x02")
    assert (again.code, again.ext) == (ResponseCode.SUCCESS, first.ext)
    assert broker.broker.context.machine.end_offset("SCHEDULE_TOPIC_XXXX", 4) == 1


@pytest.mark.parametrize("changed", [{"dedup_window_seconds": 0}, {"dedup_window_seconds": 30}])
async def test_beyond_the_window_it_is_stored_again(
    loop: NetworkedLoop, tmp_path: Path, changed: dict[str, Any]
) -> None:
    async with running_broker(loop, tmp_path, **changed) as broker:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"a", KEY)
        broker.now_ms += 30_001
        await broker.send("orders", 0, b"a", KEY)
        assert await bodies(broker) == [b"a", b"a"]


async def test_what_retention_removed_is_stored_again(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"a", KEY)
    context = broker.broker.context
    context.machine.expired_position = context.machine.applied_end
    again = await broker.send("orders", 0, b"a", KEY)
    assert again.ext["queueOffset"] == "1"


@pytest.mark.parametrize("checkpoint", [False, True])
async def test_a_retry_is_known_after_a_restart(
    loop: NetworkedLoop, tmp_path: Path, checkpoint: bool
) -> None:
    first: list[Frame] = []

    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        first.append(await broker.send("orders", 0, b"a", KEY))
        if checkpoint:
            broker.broker.context.node.checkpointer.checkpoint()
            await asyncio.sleep(0.1)
    async with running_broker(loop, tmp_path) as broker:
        again = await broker.send("orders", 1, b"a", KEY)
        assert again.ext == first[0].ext
        assert await bodies(broker) == [b"a"]


async def test_a_retry_whose_leader_is_deposed_is_told_so(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    broker.log_executor.hold()
    tries = []
    for properties in (KEY, "TAGS\x01fills the pipeline\x02", KEY):
        tries.append(asyncio.ensure_future(broker.send("orders", 0, b"a", properties)))
        await asyncio.sleep(0.1)
    broker.broker.context.batcher.close()
    broker.log_executor.release()
    first, _, again = await asyncio.gather(*tries)
    assert (first.code, again.code) == (0, ResponseCode.SERVICE_NOT_AVAILABLE)


async def test_a_first_try_that_was_refused_does_not_hide_the_second(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    batcher = broker.broker.context.batcher
    batcher.refuse_messages(NoRoomError)
    assert (await broker.send("orders", 0, b"a", KEY)).code != ResponseCode.SUCCESS
    batcher.refuse_messages(None)
    assert (await broker.send("orders", 0, b"a", KEY)).code == ResponseCode.SUCCESS
    assert await bodies(broker) == [b"a"]


async def test_what_no_entry_could_hold_is_refused_at_once_and_not_once_it_was_looked_for(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the hash of a request that is known, to the byte: a refusal that came later would find
    nobody to tell."""
    monkeypatch.setattr(
        "broker.ingest.message_properties.PRODUCE", PRODUCE._replace(keys_max=6_000)
    )

    async with running_broker(
        loop, tmp_path, segment_size=128 << 10, max_message_size=64 << 10
    ) as broker:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"a", KEY)
        batcher = broker.broker.context.batcher
        properties = KEY + "KEYS\x01" + "k " * 6_000 + "\x02"
        empty = make_pending_message(
            "orders", b"", properties.encode(), born_timestamp=1, born_host=bytes(8)
        )
        room = batcher.request_bytes_max - pending_bytes([empty])
        answers = [
            await broker.send("orders", 0, bytes(room - less), properties) for less in range(6)
        ]
        codes = [answer.code for answer in answers]
        illegal = ResponseCode.MESSAGE_ILLEGAL
        assert codes == [illegal] * 4 + [ResponseCode.SUCCESS] * 2


# --- what is remembered


def test_the_log_remembers_a_fixed_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication_window, "REQUESTS_BYTES_MAX", 40)
    recent = RecentRequests()
    for position in range(5):
        recent.add(position, pack_keys([position, 100 + position]))
    assert recent.positions() == {3: 3, 103: 3, 4: 4, 104: 4}


@pytest.mark.parametrize("lacking", range(1, 20))
def test_requests_that_are_cut_short_are_refused(lacking: int) -> None:
    recent = RecentRequests()
    recent.add(7, pack_keys([1, 2]))
    with pytest.raises(InvariantError, match="cut short"):
        RecentRequests(recent.data[:-lacking]).positions()


def test_a_leader_forgets_the_oldest_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication_window, "LEADER_REQUESTS", 2)
    known = DeduplicationIndex()
    for key in range(5):
        known.newer[key] = deduplication_window.EntryPosition(key)
        known.age()
    assert [key for key in range(5) if known.get(key) is not None] == [2, 3, 4]


def test_a_new_leader_begins_with_what_the_log_says() -> None:
    recent = RecentRequests()
    recent.add(10, pack_keys([1, 2]))
    recent.add(20, pack_keys([2]))
    known = DeduplicationIndex()
    known.newer[9] = deduplication_window.EntryPosition()
    known.begin(recent)
    places = [known.get(key) for key in (1, 2, 9)]
    assert [place and place.position for place in places] == [10, 20, None]


@pytest.mark.parametrize(
    "command",
    [DeleteTopic("orders", 1), PutTopic.of(TopicConfig("orders", 1, 1), 1)],
    ids=["topic", "queue"],
)
async def test_nothing_is_stored_in_a_queue_that_is_gone_after_the_look_up(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 3, b"a", KEY)
    context = broker.broker.context
    load = context.reader.load

    def load_without_the_queue(*asked: Any) -> None:
        context.batcher.add_command(command)
        load(*asked)

    with monkeypatch.context() as patch:
        patch.setattr(context.reader, "load", load_without_the_queue)
        other = await broker.send("orders", 3, b"b", KEY)
    assert other.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "no longer has queue 3" in (other.remark or "")
    assert context.machine.end_offset("orders", 3) == 1


async def test_a_retry_does_not_create_a_topic_that_was_deleted(broker: SingleBroker) -> None:
    first = await broker.send("orders", 0, b"a", KEY)
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    again = await broker.send("orders", 0, b"a", KEY)
    assert (again.code, again.ext) == (ResponseCode.SUCCESS, first.ext)
    assert "orders" not in broker.broker.context.machine.state.topics
    other = await broker.send("orders", 0, b"b", KEY)
    assert (other.code, other.ext["queueOffset"]) == (ResponseCode.SUCCESS, "1")
    assert [each.body for each in messages(await broker.pull("orders", 0, 1))] == [b"b"]


async def test_a_topic_that_another_message_created_during_the_look_up_stays_as_it_is(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.send("orders", 3, b"a", KEY)
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    context = broker.broker.context
    load = context.reader.load

    def load_once_it_is_there(*asked: Any) -> None:
        context.batcher.add_command(PutTopic.of(TopicConfig("orders", 1, 1), 1))
        load(*asked)

    with monkeypatch.context() as patch:
        patch.setattr(context.reader, "load", load_once_it_is_there)
        refused = await broker.send("orders", 3, b"b", KEY)
    assert "no longer has queue 3" in (refused.remark or "")
    assert context.machine.state.topics["orders"].queues == 1


async def test_what_was_looked_for_in_another_term_is_not_stored_in_this_one(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who led in between may have stored it."""

    await broker.create_topic("orders")
    await broker.send("orders", 0, b"a", KEY)
    context = broker.broker.context
    load = context.reader.load

    def load_in_the_next_term(*asked: Any) -> None:
        context.batcher.leadership_changed(Leadership(Role.LEADER, 99, "n0", serving=True))
        load(*asked)

    with monkeypatch.context() as patch:
        patch.setattr(context.reader, "load", load_in_the_next_term)
        other = await broker.send("orders", 0, b"b", KEY)
    assert other.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert await bodies(broker) == [b"a"]
