"""Filters, queues and limits of POP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.delivery import message_reader
from broker.delivery.message_filter import SCAN_LIMITS, MessageFilter
from broker.errors import (
    ForbiddenError,
    InvisibleTimeError,
    UnavailableError,
    UnknownQueueError,
)
from broker.filter.subscription import tag_codes, tag_names
from broker.limits import CONSUME, STATE
from broker.pop import receivable_messages
from broker.pop.pop_request import PopRequest, PopStatus
from broker.state.commands import PutGroup
from broker.topics_and_groups import GroupConfig
from tests.broker.pop.pop_client import (
    OK,
    Member,
    committed,
    sent,
)
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop


async def test_filters_pass_messages_over_for_good(broker: SingleBroker) -> None:
    for tag in ("a", "b", "a"):
        await sent(broker, 1, tags=tag)
    member = Member(broker)
    assert await member.bodies(tags="b") == [b"1"]
    assert await member.bodies(tags="b") == []
    await asyncio.sleep(2)
    assert await member.bodies(tags="b") == []
    assert await member.bodies(tags="a") == []
    assert member.offset == 1


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a queue reads four rows."""
    monkeypatch.setattr(message_reader, "SCAN_ROWS_MIN", 4)
    monkeypatch.setattr(receivable_messages, "SCAN_LIMITS", SCAN_LIMITS._replace(messages=4))


@pytest.mark.usefixtures("short_looks")
@pytest.mark.parametrize(("kind", "wanted"), [("TAG", "b"), ("SQL92", "TAGS = 'b'")])
async def test_a_wait_goes_on_through_messages_that_the_filter_skips(
    loop: NetworkedLoop, tmp_path: Path, kind: str, wanted: str
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True, property_filter=True) as broker:
        await sent(broker, 40, tags="a")
        await sent(broker, 1, tags="b")
        member = Member(broker)
        began = loop.time()
        assert await member.bodies(1, hold=10, kind=kind, tags=wanted) == [b"40"]
        assert loop.time() - began < 0.5


@pytest.mark.usefixtures("short_looks")
async def test_each_look_goes_on_where_the_last_one_ended(broker: SingleBroker) -> None:
    """The log hears of the cursor once a second."""
    await sent(broker, 40, tags="a")
    await sent(broker, 1, tags="b")
    member = Member(broker)
    for _ in range(10):
        assert await member.bodies(1, tags="b") == []
    assert await member.bodies(1, tags="b") == [b"40"]


@pytest.mark.usefixtures("short_looks")
async def test_skipped_messages_are_no_news(broker: SingleBroker) -> None:
    await sent(broker, 10, tags="a")
    member = Member(broker)
    for _ in range(3):
        assert await member.bodies(1, tags="b") == []
    assert not await member.pop.has_messages(PopRequest("g", "orders", 0, 1, 1))
    before = member.pop.held.events
    assert await member.bodies(1, tags="b", hold=10) == []
    assert member.pop.held.events <= before + 1


async def test_tags_of_one_code_are_told_apart_where_the_client_does_not(
    broker: SingleBroker,
) -> None:
    assert tag_codes("Aa") == tag_codes("BB")
    for tag in ("BB", "Aa", "BB"):
        await sent(broker, 1, tags=tag)
    member = Member(broker)
    wanted = MessageFilter(tag_codes("Aa"), tags=tag_names("Aa"))
    assert await member.bodies(filter=wanted) == [b"1"]
    other = Member(broker, "other")
    assert len(await other.bodies()) == 3
    await asyncio.sleep(11)
    for each in (member, other):
        assert await each.bodies(filter=wanted) == [b"1"]
    await asyncio.sleep(11)
    assert await other.bodies() == [b"1"]  # the others count as done


async def test_a_filter_holds_for_messages_that_are_visible_again(broker: SingleBroker) -> None:
    for tag in ("a", "b", "a"):
        await sent(broker, 1, tags=tag)
    member = Member(broker)
    assert await member.bodies() == [b"0", b"1", b"2"]
    await asyncio.sleep(11)
    assert await member.bodies(tags="b") == [b"1"]
    await asyncio.sleep(11)
    assert await member.bodies() == [b"1"]


async def test_expressions_choose_messages_by_their_properties(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True, property_filter=True) as broker:
        for tag in ("a", "b", "a"):
            await sent(broker, 1, tags=tag)
        member = Member(broker)
        assert await member.bodies(1, kind="SQL92", tags="TAGS = 'a'") == [b"0"]
        assert await member.bodies(kind="SQL92", tags="TAGS = 'a'") == [b"2"]
        await asyncio.sleep(11)
        assert await member.bodies(kind="SQL92", tags="TAGS = 'b'") == []
        await asyncio.sleep(0.1)
        assert member.offset == 3


async def test_a_request_for_any_queue_gets_messages_of_several(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    for queue_id in range(4):
        await broker.send("orders", queue_id, b"%d" % queue_id)
    member = Member(broker)
    got = await member.receive(3, queue=None)
    assert len({each.queue for each in got}) == 3
    got += await member.receive(3, queue=None)
    assert sorted(each.queue for each in got) == [0, 1, 2, 3]
    assert await member.ack(*got) == [OK] * 4


async def test_beyond_the_limit_of_a_queue_nothing_new_is_received(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import broker.pop.pop as door  # noqa: PLC0415 - its limits are replaced
    from broker.pop import receiver  # noqa: PLC0415 - as a module, to set its constant

    class Few:
        pop_queue_deliveries_max = 2
        pop_deliveries_max = 100
        offsets_max = STATE.offsets_max
        queues_max = STATE.queues_max

    monkeypatch.setattr(receiver, "STATE", Few)
    monkeypatch.setattr(door, "STATE", Few)
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await sent(broker, 4)
        member = Member(broker)
        zero, _one = await member.receive()
        assert (await member.result()).status is PopStatus.FULL
        waiting = asyncio.ensure_future(member.bodies(hold=5))
        await asyncio.sleep(0.1)
        await member.ack(zero)
        assert await waiting == [b"2"]
        await asyncio.sleep(11)
        assert await member.bodies() == [b"1", b"2"]


async def test_requests_that_cannot_be_are_refused(broker: SingleBroker) -> None:
    await sent(broker, 1)
    member = Member(broker)
    with pytest.raises(UnknownQueueError):
        await member.receive(queue=4)
    for invisible_ms in (0, -1, CONSUME.pop_invisible_ms_max + 1):
        with pytest.raises(InvisibleTimeError):
            await member.receive(invisible_ms=invisible_ms)
    (got,) = await member.receive()
    with pytest.raises(InvisibleTimeError):
        await member.pop.change_invisible("g", "orders", got.receipt_handle, -1)
    await committed(broker, PutGroup.of(GroupConfig("g", consume_enable=False), 1))
    with pytest.raises(ForbiddenError):
        await member.receive()


async def test_nothing_is_written_that_a_member_does_not_know(broker: SingleBroker) -> None:
    await sent(broker, 1)
    features = broker.broker.context.node.features
    features._known["n0"] = frozenset()
    with pytest.raises(UnavailableError):
        await Member(broker).receive()


async def test_one_request_gets_so_many_messages_at_most(broker: SingleBroker) -> None:
    await sent(broker, CONSUME.pop_messages_max + 1)
    assert len(await Member(broker).receive(1000)) == CONSUME.pop_messages_max
