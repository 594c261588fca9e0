"""What is sent over HTTP is taken, or refused, as what is sent over the remoting port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.delivery.message_reader import rows
from broker.limits import PRODUCE, STATE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.topics_and_groups import SYSTEM_TOPICS
from dledger.errors import NoRoomError, OutcomeUnknownError
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.message.properties import encode_properties
from store.message.record import MessageRecord, decode_record
from tests.broker.http.site import Site, running_site
from tests.broker.single_broker import SingleBroker
from tests.support.virtual_network import NetworkedLoop

STATUS = {
    ResponseCode.SYSTEM_ERROR: (400, 404),
    ResponseCode.SYSTEM_BUSY: (503,),
    ResponseCode.MESSAGE_ILLEGAL: (400, 413),
    ResponseCode.SERVICE_NOT_AVAILABLE: (503,),
    ResponseCode.NO_PERMISSION: (403,),
    ResponseCode.TOPIC_NOT_EXIST: (404,),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (404,),
}
"""Which statuses of HTTP say what a response code says."""

HALF = {"TRAN_MSG": "true", "PGROUP": "producers"}


@dataclass(frozen=True)
class Sent:
    """One message, whatever wire it goes over."""

    topic: str = "orders"
    queue_id: int = 1
    body: str = "hello"
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What both wires can say."""

    error: str
    """Empty where the message is stored."""

    message_id: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    outcome: str = ""
    codes: tuple[int, ...] = ()


async def over_remoting(site: Site, sent: Sent) -> Answer:
    answer = await site.broker.send(
        sent.topic,
        sent.queue_id,
        sent.body.encode(),
        encode_properties(sent.properties).decode(),
        g=str(site.broker.now_ms),
    )
    ext = {name: str(value) for name, value in answer.ext.items()}
    if answer.code == ResponseCode.SUCCESS:
        return Answer("", ext["msgId"], int(ext["queueId"]), int(ext["queueOffset"]))
    text = str(answer.remark).removeprefix("[OVERLOAD]")
    statuses = STATUS[ResponseCode(answer.code)]
    return Answer(text, outcome=ext.get("outcome", ""), codes=statuses)


async def over_http(site: Site, sent: Sent) -> Answer:
    document = {"body": sent.body, "queue_id": sent.queue_id, "properties": sent.properties}
    status, said = await site.post(sent.topic, document)
    if status == 200:
        return Answer("", said["msg_id"], said["queue_id"], said["queue_offset"])
    return Answer(said["error"], outcome=said.get("outcome", ""), codes=(status,))


WIRES = (over_remoting, over_http)


async def stored(broker: SingleBroker) -> list[MessageRecord]:
    """All records, in the order of the log."""
    machine, records = broker.broker.context.machine, list[MessageRecord]()
    for topic in {*machine.state.topics, *SYSTEM_TOPICS}:
        for queue in machine.queues(topic).values():
            for position, _size, _code in rows(queue.read(queue.first_offset, 100)):
                found: asyncio.Future[Bytes] = broker.loop.create_future()
                settle = partial(_settle, found)
                broker.broker.context.lookup.record(position, settle)
                records.append(decode_record(await found))
    return [replace(record, born_host=b"") for record in sorted(records, key=lambda r: r.position)]


def _settle(found: asyncio.Future[Bytes], data: Bytes, error: StoreError | None) -> None:
    assert error is None
    found.set_result(data)


async def outcome_of(
    loop: NetworkedLoop,
    wire: Any,
    sent: Sent,
    data: Path,
    prepare: Callable[[Site], Any] | None,
    **settings: Any,
) -> tuple[Answer, list[MessageRecord], object]:
    """The answer, what is stored then, and the topics that there are."""
    async with running_site(loop, data, **settings) as site:
        await site.broker.create_topic("orders")
        await site.broker.create_topic("closed", perm=4)
        for name, attempts in ("g", "16"), ("once", "0"):
            group = b'{"groupName":"%b","retryMaxTimes":%b}' % (name.encode(), attempts.encode())
            await site.broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        if prepare is not None:
            prepared = prepare(site)
            if asyncio.iscoroutine(prepared):
                await prepared
        before = sorted(site.broker.broker.context.machine.state.topics)
        answer = await wire(site, sent)
        if answer.error:
            await asyncio.sleep(1)  # what it left would be applied
        topics = sorted(site.broker.broker.context.machine.state.topics)
        assert not answer.error or topics == before
        return answer, await stored(site.broker), topics


async def compare(
    loop: NetworkedLoop,
    sent: Sent,
    tmp_path: Path,
    prepare: Callable[[Site], Any] | None = None,
    **settings: Any,
) -> tuple[Answer, list[MessageRecord]]:
    """What came of it, the same for both wires."""
    (one, left, topics), (other, right, others) = [
        await outcome_of(loop, wire, sent, tmp_path / wire.__name__, prepare, **settings)
        for wire in WIRES
    ]
    assert replace(one, codes=()) == replace(other, codes=())
    assert (left, topics) == (right, others)
    assert set(other.codes) <= set(one.codes)
    return other, right


@pytest.mark.parametrize(
    ("sent", "topic", "properties"),
    [
        (Sent(properties={"TAGS": "a", "KEYS": "k1 k2"}), "orders", "TAGS\x01a\x02KEYS\x01k1 k2"),
        (Sent(properties={"WAIT": "true", "TAGS": "a"}), "orders", "TAGS\x01a\x02"),
        (Sent(topic="new", queue_id=3), "new", ""),
        (Sent(properties={"REPLY_TO_CLIENT": "c"}), "orders", "CLUSTER\x01DefaultCluster\x02"),
        (
            Sent(properties={"REPLY_TO_CLIENT": "c", "DELAY": "2"}),
            "SCHEDULE_TOPIC_XXXX",
            "CLUSTER\x01DefaultCluster\x02",
        ),
        (Sent(properties={"DELAY": "18"}), "SCHEDULE_TOPIC_XXXX", "REAL_TOPIC\x01orders\x02"),
        (Sent(properties={"TIMER_DELAY_SEC": "9"}), "rmq_sys_wheel_timer", "REAL_QID\x011\x02"),
        (Sent(properties=HALF), "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID\x011\x02"),
        (Sent(topic="%RETRY%g", queue_id=0), "%RETRY%g", ""),
        (Sent(topic="%RETRY%once", queue_id=0), "%RETRY%once", ""),
    ],
)
async def test_a_message_is_stored_alike(
    loop: NetworkedLoop, tmp_path: Path, sent: Sent, topic: str, properties: str
) -> None:
    answer, (record,) = await compare(loop, sent, tmp_path)
    assert (answer.error, answer.queue_id, record.topic) == ("", sent.queue_id, topic)
    assert properties in record.properties.decode()
    assert record.body == sent.body.encode()


@pytest.mark.parametrize(
    ("sent", "error", "settings"),
    [
        (Sent(body="x" * 65_537), "at most 65536 are allowed", {}),
        (Sent(properties={"KEYS": "k " * 300}), "at most 256 are allowed", {}),
        (Sent(properties={"KEYS": "k" * 5_000}), "at most 4096 are allowed", {}),
        (Sent(properties={"DELAY": "1", "KEYS": "k " * 300}), "at most 256 are allowed", {}),
        (Sent(properties={"x": "y" * 32_767}), "at most 32767 fit", {}),
        (Sent(properties={"DELAY": "19"}), "there is no delay level 19", {}),
        (Sent(properties={"DELAY": "x"}), "is not a number", {}),
        (Sent(properties={"TIMER_DELAY_SEC": "999999"}), "more than the max delay", {}),
        (Sent(properties={"TRAN_MSG": "true"}), "needs its producer group", {}),
        (Sent(queue_id=9), "has no queue 9", {}),
        (Sent(topic="closed"), "is not writable", {}),
        (Sent(topic="none"), "apply first please", {"auto_create_topics": False}),
        (Sent(topic="TRANS_CHECK_MAX_TIME_TOPIC"), "is forbidden", {}),
        (Sent(topic="a.b"), "may only have letters", {}),
        (Sent(topic="t" * 128), "at most 127 are allowed", {}),
        (Sent(topic="%RETRY%unknown", queue_id=0), "subscription group not exist, unknown", {}),
        (Sent(topic="new", properties={"x": "y" * 32_767}), "at most 32767 fit", {}),
        (Sent(topic="new", properties={"KEYS": "k " * 300}), "at most 256 are allowed", {}),
        (Sent(topic="new", properties={"DELAY": "19"}), "there is no delay level 19", {}),
        (Sent(topic="new", properties={"TRAN_MSG": "true"}), "needs its producer group", {}),
        (Sent(topic="new", queue_id=9), "has no queue 9", {}),
        (Sent(topic="rmq_sys_mine"), "is forbidden", {}),
    ],
)
async def test_a_message_is_refused_alike(
    loop: NetworkedLoop, tmp_path: Path, sent: Sent, error: str, settings: dict[str, Any]
) -> None:
    answer, records = await compare(loop, sent, tmp_path, **settings)
    assert error in answer.error
    assert records == []


@pytest.mark.parametrize("properties", [{}, {"DELAY": "3"}])
async def test_what_no_entry_holds_is_refused_alike(
    loop: NetworkedLoop, tmp_path: Path, properties: dict[str, str]
) -> None:
    size = 64 << 10
    sent = Sent(body="x" * (size // 2), properties={"x": "y" * 32_650, **properties})
    settings: dict[str, Any] = {"segment_size": size, "max_message_size": size // 2}
    answer, records = await compare(loop, sent, tmp_path, **settings)
    assert ("exceeds the" in answer.error, answer.codes, records) == (True, (413,), [])


@pytest.mark.parametrize("topic", ["orders", "new"])
async def test_a_full_disk_refuses_alike(loop: NetworkedLoop, tmp_path: Path, topic: str) -> None:
    answer, records = await compare(
        loop,
        Sent(topic=topic),
        tmp_path,
        lambda site: site.broker.broker.context.batcher.refuse_messages(NoRoomError),
    )
    assert ("the disk has no room" in answer.error, answer.codes, records) == (True, (503,), [])


async def test_what_is_too_much_is_refused_alike(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.ingest.ingest.STATE", STATE._replace(transactions_max=0))
    answer, _ = await compare(loop, Sent(topic="new", properties=HALF), tmp_path)
    assert (answer.error, answer.codes) == ("0 transactions are open, the limit is 0", (503,))
    monkeypatch.setattr(
        "broker.ingest.deduplication.PRODUCE", PRODUCE._replace(suspect_bytes_max=0)
    )
    twice = Sent(properties={"UNIQ_KEY": "one"})
    answer, _ = await compare(
        loop, twice, tmp_path / "again", lambda site: over_remoting(site, twice)
    )
    assert ("0 bytes of requests wait" in answer.error, answer.codes) == (True, (503,))


async def test_an_unknown_outcome_is_told_as_such(loop: NetworkedLoop, tmp_path: Path) -> None:
    def lose(site: Site) -> None:
        batcher = site.broker.broker.context.batcher

        def lost(*_: object) -> None:
            raise OutcomeUnknownError(7, 1)

        batcher._node.propose = lost  # type: ignore[method-assign, assignment]  # a double

    answer, _ = await compare(loop, Sent(), tmp_path, lose)
    assert (answer.outcome, answer.codes) == ("unknown", (503,))


@pytest.mark.parametrize("sent", [Sent(), Sent(properties={"DELAY": "3"}), Sent(properties=HALF)])
@pytest.mark.parametrize("wires", [WIRES, WIRES[::-1]])
async def test_what_was_sent_over_one_is_known_on_the_other(
    site: Site, sent: Sent, wires: tuple[Any, Any]
) -> None:
    sent = replace(sent, properties={"UNIQ_KEY": "one", **sent.properties})

    await site.broker.create_topic("orders")
    first = await wires[0](site, sent)
    again = await wires[1](site, replace(sent, queue_id=2))
    assert first == again
    assert (first.error, first.queue_id) == ("", 1)
    assert len(await stored(site.broker)) == 1
