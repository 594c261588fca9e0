"""Recalled messages: a timed message that is taken back before its time is never delivered."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker import limits
from broker.errors import RecallHandleError
from broker.limits import StateLimits
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.scheduled import recalls
from broker.scheduled.recall_handle import RecallHandle, handle_for, parse_recall_handle
from broker.scheduled.timer_wheel import queue_of, slot_of
from store.message.scheduled_topics import TIMER_TOPIC
from tests.broker.made_up_records import made_up_record, put_into_a_body
from tests.broker.single_broker import SingleBroker, messages
from tests.support.virtual_network import NetworkedLoop

SECONDS = 5
"""For which messages wait."""


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


@pytest.fixture
async def broker(broker: SingleBroker) -> SingleBroker:
    await broker.create_topic("orders", 1)
    return broker


async def sent(broker: SingleBroker, key: str, seconds: int = SECONDS) -> str:
    """The recall handle of a message that waits so long."""
    answer = await send(broker, key, f"TIMER_DELAY_SEC\x01{seconds}\x02")
    return str(answer.ext["recallHandle"])


async def send(broker: SingleBroker, key: str, properties: str) -> Frame:
    answer = await broker.send("orders", 0, key.encode(), f"UNIQ_KEY\x01{key}\x02{properties}")
    assert answer.code == 0, answer.remark
    return answer


async def recall(broker: SingleBroker, handle: str, topic: str = "orders") -> Frame:
    return await broker.ask(
        RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle, "producerGroup": "p"}
    )


async def received(broker: SingleBroker) -> list[bytes]:
    return [record.body for record in messages(await broker.pull("orders", 0, 0))]


def state(broker: SingleBroker) -> tuple[int, int]:
    """How many are on the timer wheel, and how many of them wait: the others are recalled."""
    found = broker.broker.context.machine.state
    return found.timer.waiting, found.timed_waiting


async def test_a_message_that_was_recalled_is_never_delivered(broker: SingleBroker) -> None:
    kept, gone = await sent(broker, "kept"), await sent(broker, "gone")
    assert kept != gone
    answer = await recall(broker, gone)
    assert (answer.code, answer.ext) == (0, {"msgId": "gone"})
    assert state(broker) == (2, 1)
    await asyncio.sleep(SECONDS + 1)
    assert await received(broker) == [b"kept"]
    assert state(broker) == (0, 0)


async def test_the_handle_has_rocketmq_s_fields(broker: SingleBroker) -> None:
    due_ms = broker.wall_ms() + 3000
    answer = await send(broker, "a b", f"TIMER_DELIVER_MS\x01{due_ms}\x02")
    handle, message_id = str(answer.ext["recallHandle"]), str(answer.ext["msgId"])
    fields = urlsafe_b64decode(handle).decode().split(" ")
    assert fields[:-1] == ["v1", "orders", "broker-a", str(due_ms), "a", "b"]
    assert message_id.endswith(f"{int(fields[-1]):016X}")
    assert (await recall(broker, handle)).ext == {"msgId": "a b"}


@pytest.mark.parametrize(
    "properties",
    ["", "DELAY\x012\x02", "TIMER_DELIVER_MS\x015\x02"],
    ids=["plain", "level", "past"],
)
async def test_what_waits_for_no_time_of_its_own_has_no_handle(
    broker: SingleBroker, properties: str
) -> None:
    assert "recallHandle" not in (await send(broker, "k", properties)).ext


async def test_a_message_without_a_unique_key_has_no_handle(broker: SingleBroker) -> None:
    answer = await broker.send("orders", 0, b"m", "TIMER_DELAY_SEC\x015\x02")
    assert (answer.code, "recallHandle" in answer.ext) == (0, False)


async def test_a_request_sent_again_gets_the_handle_of_the_first(broker: SingleBroker) -> None:
    first = await sent(broker, "k")
    await asyncio.sleep(1)
    again = await sent(broker, "k")
    assert state(broker) == (1, 1)
    assert (await recall(broker, again)).code == 0
    await asyncio.sleep(SECONDS + 1)
    assert await received(broker) == []
    assert "time has passed" in ((await recall(broker, first)).remark or "")


async def test_recalled_again_it_is_recalled(broker: SingleBroker) -> None:
    """The first answer may have got lost."""
    handle = await sent(broker, "k")
    answers = await asyncio.gather(*(recall(broker, handle) for _ in range(3)))
    machine = broker.broker.context.machine
    changed = machine.changed_index
    answers.append(await recall(broker, handle))
    assert machine.changed_index == changed  # one entry for each message that a quota has counted
    assert [(each.code, each.ext) for each in answers] == [(0, {"msgId": "k"})] * 4
    assert state(broker) == (1, 0)


async def test_what_was_delivered_cannot_be_recalled(broker: SingleBroker) -> None:
    handle = await sent(broker, "k", 1)
    await asyncio.sleep(2)
    answer = await recall(broker, handle)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "has been delivered" in (answer.remark or "")
    assert await received(broker) == [b"k"]


async def test_what_is_on_its_way_cannot_be_recalled(broker: SingleBroker) -> None:
    """Its delivery stands in the log before the recall could."""
    handle = await sent(broker, "k", 1)
    broker.log_executor.hold()
    await asyncio.sleep(2)
    answer = await recall(broker, handle)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    broker.log_executor.release()
    await asyncio.sleep(1)
    assert await received(broker) == [b"k"]


async def test_what_is_recalled_while_its_time_comes_is_passed_over(broker: SingleBroker) -> None:
    """The recall stands in the log before the delivery could."""
    handle = await sent(broker, "k", 1)
    await asyncio.sleep(0.9)
    broker.log_executor.hold()
    recalled = asyncio.ensure_future(recall(broker, handle))
    await asyncio.sleep(2)
    assert not recalled.done()
    broker.log_executor.release()
    assert (await recalled).code == 0
    await asyncio.sleep(1)
    assert await received(broker) == []
    assert state(broker) == (0, 0)


async def test_a_handle_is_for_its_own_topic_and_message(broker: SingleBroker) -> None:
    await broker.create_topic("bills", 1)
    handle = await sent(broker, "k")
    fields = urlsafe_b64decode(handle).decode().split(" ")

    def changed(place: int, value: str) -> str:
        made = [value if at == place else each for at, each in enumerate(fields)]
        return urlsafe_b64encode(" ".join(made).encode()).decode()

    plain = await broker.send("orders", 0, b"plain", "UNIQ_KEY\x01plain\x02")
    at_plain = str(int(str(plain.ext["msgId"])[16:], 16))
    cases = (
        (handle, "bills", "is of the topic orders, not bills"),
        (changed(1, "bills"), "bills", "no message waits for this recall handle"),
        (changed(2, "broker-b"), "orders", "is of the broker broker-b"),
        (changed(4, "other"), "orders", "no message waits for this recall handle"),
        (changed(5, "7"), "orders", "no longer exists"),
        (changed(5, "99999999"), "orders", "no longer exists"),
        (
            changed(5, at_plain),
            "orders",
            "no message waits for this recall handle",
        ),
        ("nonsense", "orders", "recall handle is invalid"),
        ("", "orders", "recall handle is invalid"),
        ("\u00e9", "orders", "recall handle is invalid"),
    )
    for text, topic, remark in cases:
        answer = await recall(broker, text, topic)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION, text
        assert remark in (answer.remark or "")
    assert (await recall(broker, handle, "unknown")).code == ResponseCode.TOPIC_NOT_EXIST
    assert state(broker) == (1, 1)


@pytest.mark.parametrize("mark", [b"", b"REAL_QID\x01%b\x02" % (5000 * b"9")])
async def test_a_record_made_up_in_a_body_recalls_nothing(
    broker: SingleBroker, mark: bytes
) -> None:
    """Whoever guesses where his message will lie can put a whole record into its body."""
    victim = await sent(broker, "victim")
    due_ms = int(urlsafe_b64decode(victim).decode().split(" ")[3])
    queue_id = queue_of(slot_of(due_ms))

    marks = b"REAL_TOPIC\x01orders\x02UNIQ_KEY\x01own\x02TIMER_OUT_MS\x01%d\x02" % due_ms
    position = await put_into_a_body(
        partial(broker.send, "orders", 0),
        lambda at: made_up_record(at, TIMER_TOPIC, queue_id=queue_id, properties=mark + marks),
    )
    handle = RecallHandle("orders", "broker-a", due_ms, "own").at(position)
    answer = await recall(broker, handle)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "the message no longer exists" in (answer.remark or "")
    assert state(broker) == (1, 1)


@pytest.mark.parametrize(
    "fields",
    [
        "v2 t b 5 k 9", "v1 t b 5 9", "v1 t b x k 9", "v1 t b 5 k -1", "v1 t b 5 k x",
        f"v1 t b 5 k {1 << 63}", "v1 t b 5  9", "\udcff",
    ],
)  # fmt: skip
def test_what_is_no_handle_is_refused(fields: str) -> None:
    text = urlsafe_b64encode(fields.encode(errors="surrogateescape")).decode()
    with pytest.raises(RecallHandleError, match="recall handle is invalid"):
        parse_recall_handle(text, "t", "b")


def test_a_handle_is_read_as_it_was_made() -> None:
    handle = RecallHandle("t", "b", 5, "k")
    assert parse_recall_handle(handle.at(9), "t", "b") == (handle, 9)
    assert handle_for("t", "b", 5, b"UNIQ_KEY\x01k\x02") == handle
    assert handle_for("t", "b", 5, b"UNIQ_KEY\x01" + b"k" * 7000 + b"\x02") is None


def test_recalled_messages_are_part_of_the_state_across_restarts(tmp_path: Path) -> None:
    loop = NetworkedLoop()
    handles: list[str] = []

    async def life(scenario: Any, passed_ms: int) -> None:
        broker = SingleBroker(loop, tmp_path, clock_runs=True)
        broker.now_ms += passed_ms
        await broker.start()
        await scenario(broker)
        await broker.stop()

    async def before(broker: SingleBroker) -> None:
        await broker.create_topic("orders", 1)
        handles.extend([await sent(broker, key, 60) for key in ("first", "second", "third")])
        assert (await recall(broker, handles[0])).code == 0
        broker.broker.context.node.checkpointer.checkpoint()
        await asyncio.sleep(1)
        assert (await recall(broker, handles[2])).code == 0

    async def after(broker: SingleBroker) -> None:
        assert state(broker) == (3, 1)
        assert (await recall(broker, handles[2])).code == 0
        await asyncio.sleep(70)
        assert await received(broker) == [b"second"]
        assert state(broker) == (0, 0)

    try:
        loop.run_until_complete(life(before, 0))
        loop.run_until_complete(life(after, 1000))
    finally:
        loop.close()


async def test_so_many_may_be_recalled_at_a_time(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recalls, "STATE", StateLimits(recalled_max=2))
    handles = [await sent(broker, f"k{number}") for number in range(3)]
    assert [(await recall(broker, each)).code for each in handles] == [
        0,
        0,
        ResponseCode.SYSTEM_BUSY,
    ]
    assert (await recall(broker, handles[0])).code == 0
    await asyncio.sleep(SECONDS + 1)
    assert await received(broker) == [b"k2"]
    assert (await recall(broker, await sent(broker, "later"))).code == 0
    assert limits.STATE.recalled_max == 131_072


async def test_nothing_is_recalled_before_all_members_know_how(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await sent(broker, "k")
    with monkeypatch.context() as earlier:
        earlier.setattr(broker.broker.context.recalls, "_known_by_all", lambda: False)
        answer = await recall(broker, handle)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "newer program on all members" in (answer.remark or "")
    assert (await recall(broker, handle)).code == 0


async def test_nothing_is_recalled_once_a_member_does_not_know_how(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member is added while the message is read."""
    handle = await sent(broker, "k")
    context = broker.broker.context
    load = context.reader.load

    def load_with_another_member(*asked: Any) -> None:
        monkeypatch.setattr(context.recalls, "_known_by_all", lambda: False)
        load(*asked)

    monkeypatch.setattr(context.reader, "load", load_with_another_member)
    assert (await recall(broker, handle)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert state(broker) == (1, 1)
