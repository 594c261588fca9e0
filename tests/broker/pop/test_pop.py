"""The door of POP: received once, invisible for a time, acknowledged for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from broker.errors import (
    ForbiddenError,
    InvisibleTimeError,
    UnavailableError,
    UnknownQueueError,
    WrongStateError,
)
from broker.limits import CONSUME, STATE
from broker.pop.pop_request import PopStatus
from broker.remoting.protocol.codes import RequestCode
from broker.state.commands import CommitOffset, DeleteGroup, DeleteTopic, Expire, PutGroup
from broker.topics_and_groups import GroupConfig
from dledger.errors import NotLeaderError, OutcomeUnknownError, ProposeError
from dledger.node.state_machine import Leadership
from store.message.record import decode_record
from tests.broker.pop.pop_client import EXPIRED, INVALID, INVISIBLE_MS, OK, Member, run, sent
from tests.broker.single_broker import SingleBroker, messages


async def committed(broker: SingleBroker, *commands: object) -> None:
    done: asyncio.Future[ProposeError | None] = broker.loop.create_future()
    broker.broker.context.batcher.add_in_one_entry((), commands, done.set_result)  # type: ignore[arg-type]
    assert await done is None


def test_a_message_is_received_once_until_its_time_is_over(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 3)
        one, other = Member(broker), Member(broker)
        first = await one.receive(2)
        assert [each.offset for each in first] == [0, 1]
        assert [each.delivery_attempt for each in first] == [1, 1]
        assert {each.invisible_until_ms - each.delivered_ms for each in first} == {INVISIBLE_MS}
        assert await other.bodies() == [b"2"]
        assert await other.bodies() == []
        await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)
        again = await other.receive()
        assert [(each.offset, each.delivery_attempt) for each in again] == [(0, 2), (1, 2), (2, 2)]
        assert await one.ack(*first) == [EXPIRED, EXPIRED]
        assert await other.ack(*again) == [OK, OK, OK]
        await asyncio.sleep(60)
        assert await one.bodies() == []

    run(scenario, tmp_path)


def test_an_acknowledged_message_is_never_received_again(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 3)
        member = Member(broker)
        zero, one, two = await member.receive()
        assert await member.ack(one) == [OK]
        assert await member.ack(one) == [EXPIRED]
        assert await member.ack(zero, zero) == [OK, EXPIRED]
        await asyncio.sleep(60)
        assert [each.offset for each in await member.receive()] == [2]
        assert await member.ack(two) == [EXPIRED]

    run(scenario, tmp_path)


def test_the_groups_offset_is_its_first_message_without_an_ack(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 4)
        member = Member(broker)
        got = await member.receive(3)
        assert member.offset == 0
        await member.ack(got[1])
        assert member.offset == 0
        await member.ack(got[0])
        assert member.offset == 2
        await member.ack(got[2])
        assert member.offset == 3
        answer = await broker.ask(
            RequestCode.QUERY_CONSUMER_OFFSET,
            {"consumerGroup": "g", "topic": "orders", "queueId": "0"},
        )
        assert answer.ext["offset"] == "3"

    run(scenario, tmp_path)


def test_a_changed_time_counts_from_now_and_has_a_handle_of_its_own(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 2)
        member = Member(broker)
        zero, one = await member.receive()
        await asyncio.sleep(9)
        longer = await member.pop.change_invisible("g", "orders", zero.receipt_handle, 20_000)
        assert longer.status is OK
        assert await member.ack(zero) == [EXPIRED]
        at_once = await member.pop.change_invisible("g", "orders", one.receipt_handle, 0)
        assert at_once.status is OK
        assert await member.ack(at_once.receipt_handle) == [EXPIRED]
        (again,) = await member.receive()
        assert (again.offset, again.delivery_attempt) == (1, 2)
        await asyncio.sleep(19)
        assert await member.bodies() == [b"1"]
        assert await member.ack(longer.receipt_handle) == [OK]

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    "handle",
    ["", "x", "1 2 3 0 0 broker-a 0", "1 2 3 0 0 broker-b 0 0", "1 2 3 0 1 broker-a 0 0",
     "-1 2 3 0 0 broker-a 0 0", "٣ 2 3 0 0 broker-a 0 0", "9" * 600, "1 2 3 0 0 broker-a 7 0",
     f"0 {1 << 63} 3 0 0 broker-a 0 0"],
)  # fmt: skip
def test_what_is_no_handle_of_this_broker_is_refused(tmp_path: Path, handle: str) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1)
        member = Member(broker)
        await member.receive()
        assert await member.ack(handle) == [INVALID]
        changed = await member.pop.change_invisible("g", "orders", handle, 1000)
        assert changed.status is INVALID
        dead = await member.pop.to_dead_letter("g", "orders", handle, 1, 1)
        assert dead.status is INVALID

    run(scenario, tmp_path)


def test_a_handle_of_another_group_offset_or_time_ends_nothing(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 2)
        member, other = Member(broker), Member(broker, "other")
        zero, _one = await member.receive()
        foreign, _ = await other.receive()
        fields = zero.receipt_handle.split(" ")
        assert await member.ack(foreign) == [EXPIRED]
        for place, value in ((1, "1"), (2, "1"), (3, "1"), (7, "9")):
            forged = [*fields[:place], value, *fields[place + 1 :]]
            assert await member.ack(" ".join(forged)) == [EXPIRED]
        assert await member.ack(zero) == [OK]
        assert await other.ack(foreign) == [OK]

    run(scenario, tmp_path)


def test_after_the_last_attempt_a_message_is_a_dead_letter_and_no_delivery(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1)
        member = Member(broker)
        await committed(broker, PutGroup.of(GroupConfig("g", retry_max_times=2), 1))
        for attempt in (1, 2, 3):
            (got,) = await member.receive(invisible_ms=1000)
            assert got.delivery_attempt == attempt
            await asyncio.sleep(1.1)
        assert await member.bodies() == []
        await asyncio.sleep(0.1)
        assert member.offset == 1
        (dead,) = messages(await broker.pull("%DLQ%g", 0, 0))
        assert (dead.body, dead.reconsume_times) == (b"0", 3)
        assert dead.property_map["RETRY_TOPIC"] == "orders"
        await asyncio.sleep(10)
        assert await member.bodies() == []
        assert len(messages(await broker.pull("%DLQ%g", 0, 0))) == 1

    run(scenario, tmp_path)


def test_a_member_gives_a_message_up(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1)
        member = Member(broker)
        (got,) = await member.receive()
        dead = await member.pop.to_dead_letter("g", "orders", got.receipt_handle, 1, 1)
        assert dead.status is OK
        assert [each.body for each in messages(await broker.pull("%DLQ%g", 0, 0))] == [b"0"]
        assert await member.ack(got) == [EXPIRED]
        again = await member.pop.to_dead_letter("g", "orders", got.receipt_handle, 1, 1)
        assert again.status is EXPIRED
        assert member.offset == 1

    run(scenario, tmp_path)


def test_a_dead_letter_that_cannot_be_stored_waits_and_is_not_received(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 2)
        await broker.create_topic("%DLQ%g", 1, perm=4)
        member = Member(broker)
        await committed(broker, PutGroup.of(GroupConfig("g", retry_max_times=0), 1))
        await member.receive(1, invisible_ms=1000)
        await asyncio.sleep(2)
        assert await member.bodies() == [b"1"]
        await broker.create_topic("%DLQ%g", 1, perm=6)
        assert await member.bodies() == []
        await asyncio.sleep(0.1)
        assert [each.body for each in messages(await broker.pull("%DLQ%g", 0, 0))] == [b"0"]

    run(scenario, tmp_path)


# --- waiting


def test_a_message_ends_the_wait_of_one_member(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 0)
        member = Member(broker)
        waiting = [
            asyncio.ensure_future(member.bodies(hold=20, queue=None, invisible_ms=60_000))
            for _ in range(3)
        ]
        await asyncio.sleep(1)
        assert len(member.pop.held) == 3
        await sent(broker, 2)
        await asyncio.sleep(0.1)
        done = [each.result() for each in waiting if each.done()]
        assert sorted(done) == [[b"0"], [b"1"]]
        await asyncio.sleep(20)
        assert sorted(each.result() for each in waiting) == [[], [b"0"], [b"1"]]
        assert len(member.pop.held) == 0

    run(scenario, tmp_path)


def test_a_delivery_that_becomes_visible_ends_a_wait(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1)
        member = Member(broker)
        early = asyncio.ensure_future(member.receive(hold=30, queue=1))
        await member.receive(invisible_ms=5000)
        began = broker.loop.time()
        (got,) = await member.receive(hold=30)
        assert got.delivery_attempt == 2
        assert broker.loop.time() - began == pytest.approx(5, abs=0.1)
        early.cancel()

    run(scenario, tmp_path)


def test_who_waits_is_woken_by_the_time_that_others_set_later(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1)
        member = Member(broker)
        (got,) = await member.receive()
        waiting = asyncio.ensure_future(member.receive(hold=30))
        await asyncio.sleep(1)
        await member.pop.change_invisible("g", "orders", got.receipt_handle, 2000)
        began = broker.loop.time()
        (again,) = await waiting
        assert again.delivery_attempt == 2
        assert broker.loop.time() - began == pytest.approx(2, abs=0.1)

    run(scenario, tmp_path)


def test_whoever_waits_is_refused_when_the_node_leads_no_more(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 0)
        member = Member(broker)
        waiting = asyncio.ensure_future(member.receive(hold=20))
        await asyncio.sleep(1)
        context = broker.broker.context
        broker.broker.leadership_changed(Leadership(context.batcher.term, None, serving=False))
        with pytest.raises(NotLeaderError):
            await waiting
        with pytest.raises(NotLeaderError):
            await member.receive()

    run(scenario, tmp_path)


def test_a_node_with_a_wrong_state_gives_nothing_out(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 0)
        member = Member(broker)
        waiting = asyncio.ensure_future(member.receive(hold=20))
        await asyncio.sleep(1)
        broker.broker._state_diverged()
        with pytest.raises(WrongStateError):
            await waiting
        with pytest.raises(WrongStateError):
            await member.ack("0 1 2 3 0 broker-a 0 0")

    run(scenario, tmp_path)


def test_a_client_that_goes_leaves_its_message_to_the_next(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 0)
        member = Member(broker)
        gone = asyncio.ensure_future(member.receive(hold=20))
        stays = asyncio.ensure_future(member.bodies(hold=20))
        await asyncio.sleep(1)
        member.pop.held.arrived("orders")  # the first is told of something
        gone.cancel()
        await sent(broker, 1)
        assert await stays == [b"0"]

    run(scenario, tmp_path)


# --- filters, queues, limits


def test_filters_pass_messages_over_for_good(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        for tag in ("a", "b", "a"):
            await sent(broker, 1, tags=tag)
        member = Member(broker)
        assert await member.bodies(tags="b") == [b"1"]
        assert await member.bodies(tags="b") == []
        await asyncio.sleep(2)
        assert await member.bodies(tags="b") == []
        assert await member.bodies(tags="a") == []
        assert member.offset == 1

    run(scenario, tmp_path)


def test_a_filter_holds_for_messages_that_are_visible_again(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        for tag in ("a", "b", "a"):
            await sent(broker, 1, tags=tag)
        member = Member(broker)
        assert await member.bodies() == [b"0", b"1", b"2"]
        await asyncio.sleep(11)
        assert await member.bodies(tags="b") == [b"1"]
        await asyncio.sleep(11)
        assert await member.bodies() == [b"1"]

    run(scenario, tmp_path)


def test_expressions_choose_messages_by_their_properties(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        for tag in ("a", "b", "a"):
            await sent(broker, 1, tags=tag)
        member = Member(broker)
        assert await member.bodies(1, kind="SQL92", tags="TAGS = 'a'") == [b"0"]
        assert await member.bodies(kind="SQL92", tags="TAGS = 'a'") == [b"2"]
        await asyncio.sleep(11)
        assert await member.bodies(kind="SQL92", tags="TAGS = 'b'") == []
        await asyncio.sleep(0.1)
        assert member.offset == 3

    run(scenario, tmp_path, property_filter=True)


def test_a_request_for_any_queue_gets_messages_of_several(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        for queue_id in range(4):
            await broker.send("orders", queue_id, b"%d" % queue_id)
        member = Member(broker)
        got = await member.receive(3, queue=None)
        assert len({each.queue for each in got}) == 3
        got += await member.receive(3, queue=None)
        assert sorted(each.queue for each in got) == [0, 1, 2, 3]
        assert await member.ack(*got) == [OK] * 4

    run(scenario, tmp_path)


def test_beyond_the_limit_of_a_queue_nothing_new_is_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import broker.pop.pop as door  # noqa: PLC0415 - its limits are replaced
    from broker.pop import receiver  # noqa: PLC0415

    class Few:
        pop_queue_deliveries_max = 2
        pop_deliveries_max = 100
        offsets_max = STATE.offsets_max
        queues_max = STATE.queues_max

    async def scenario(broker: SingleBroker) -> None:
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

    monkeypatch.setattr(receiver, "STATE", Few)
    monkeypatch.setattr(door, "STATE", Few)
    run(scenario, tmp_path)


def test_requests_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
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

    run(scenario, tmp_path)


def test_nothing_is_written_that_a_member_does_not_know(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1)
        features = broker.broker.context.node.features
        features._known["n0"] = frozenset()
        with pytest.raises(UnavailableError):
            await Member(broker).receive()

    run(scenario, tmp_path)


def test_one_request_gets_so_many_messages_at_most(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, CONSUME.pop_messages_max + 1)
        assert len(await Member(broker).receive(1000)) == CONSUME.pop_messages_max

    run(scenario, tmp_path)


# --- the same messages for the same attempt


def test_the_same_attempt_gets_the_same_messages(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 4)
        member = Member(broker)
        first = await member.receive(2, attempt_id="a1")
        again = await member.receive(2, attempt_id="a1")
        assert [each.receipt_handle for each in again] == [each.receipt_handle for each in first]
        assert [each.offset for each in await member.receive(2, attempt_id="a2")] == [2, 3]
        await member.ack(first[0])
        assert [each.offset for each in await member.receive(2, attempt_id="a1")] == [1]
        await asyncio.sleep(11)
        renewed = await member.receive(2, attempt_id="a1")
        assert [(each.offset, each.delivery_attempt) for each in renewed] == [(1, 2), (2, 2)]
        assert await member.ack(first[1]) == [EXPIRED]
        assert await member.ack(renewed[0]) == [OK]

    run(scenario, tmp_path)


# --- beside 4.x members, operators and retention


def test_a_commit_of_a_4x_member_acknowledges_and_never_goes_back(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 6)
        await committed(broker, CommitOffset("g", "orders", 0, 1))
        member = Member(broker)
        one, two, three = await member.receive(3)
        assert one.offset == 1
        await committed(broker, CommitOffset("g", "orders", 0, 3))
        assert await member.ack(one, two, three) == [EXPIRED, EXPIRED, OK]
        assert member.offset == 4
        await committed(broker, CommitOffset("g", "orders", 0, 2))
        assert member.offset == 4
        await committed(broker, CommitOffset("g", "orders", 0, 5))
        assert await member.bodies() == [b"5"]

    run(scenario, tmp_path)


@pytest.mark.parametrize("is_online", [True, False])
def test_a_reset_moves_the_group_back_and_ends_its_handles(tmp_path: Path, is_online: bool) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 3)
        member = Member(broker)
        zero, one, two = await member.receive()
        await member.ack(zero, one)
        if is_online:
            group = {"groupName": "g", "subscriptionDataSet": []}
            body = orjson.dumps({"clientID": "one", "consumerDataSet": [group]})
            assert (await broker.ask(RequestCode.HEART_BEAT, {}, body)).code == 0
            ext = {"topic": "orders", "group": "g", "timestamp": "0", "isForce": "true"}
            answer = await broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        else:
            place = {"topic": "orders", "consumerGroup": "g", "queueId": "0"}
            answer = await broker.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": "0"}
            )
        assert answer.code == 0, answer.remark
        assert member.offset == 0
        assert await member.ack(two) == [INVALID]
        again = await member.receive()
        assert [(each.offset, each.delivery_attempt) for each in again] == [(0, 1), (1, 1), (2, 1)]

    run(scenario, tmp_path)


def test_expired_messages_are_over(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 3)
        member = Member(broker)
        zero, *_ = await member.receive(2)
        context = broker.broker.context
        (end,) = [context.machine.applied_end]
        await sent(broker, 1)
        await committed(broker, Expire(end))
        assert await member.ack(zero) == [OK]
        await asyncio.sleep(11)
        assert await member.bodies() == [b"3"]
        assert member.offset == 3

    run(scenario, tmp_path)


def test_a_deleted_topic_ends_its_deliveries(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 2)
        member = Member(broker)
        got = await member.receive()
        await committed(broker, DeleteTopic("orders", 1))
        assert await member.ack(*got) == [INVALID, INVALID]
        assert not broker.broker.context.machine.state.pop.queues
        await sent(broker, 1)
        assert await member.bodies() == [b"2"]

    run(scenario, tmp_path)


@pytest.mark.parametrize("remove_offsets", [True, False])
def test_a_deleted_group_begins_where_its_offset_is(tmp_path: Path, remove_offsets: bool) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 3)
        member = Member(broker)
        zero, one, two = await member.receive()
        await member.ack(zero, two)
        await committed(broker, DeleteGroup("g", remove_offsets, 1))
        assert await member.ack(one) == [INVALID]
        expected = [0, 1, 2] if remove_offsets else [1, 2]
        assert [each.offset for each in await member.receive()] == expected

    run(scenario, tmp_path)


def test_queues_that_a_topic_loses_keep_their_deliveries(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders", 4)
        await broker.send("orders", 3, b"last")
        member = Member(broker)
        (got,) = await member.receive(queue=3)
        await broker.create_topic("orders", 2)
        with pytest.raises(UnknownQueueError):
            await member.receive(queue=3)
        assert await member.bodies(queue=None) == []
        changed = await member.pop.change_invisible("g", "orders", got.receipt_handle, 5000)
        assert changed.status is OK
        await broker.create_topic("orders", 4)
        await asyncio.sleep(6)
        assert await member.bodies(queue=3) == [b"last"]

    run(scenario, tmp_path)


def test_a_new_group_begins_at_the_first_message_or_where_it_asked_first(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 2)
        context = broker.broker.context
        await committed(broker, Expire(context.machine.applied_end))
        await sent(broker, 1)
        assert await Member(broker, "early").bodies() == [b"2"]
        late = Member(broker, "late")
        assert await late.bodies(from_end=True) == []
        await sent(broker, 1)
        assert await late.bodies(from_end=True) == [b"3"]

    run(scenario, tmp_path)


# --- the log decides


def test_an_answer_waits_for_its_entry(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1)
        member = Member(broker)
        broker.log_executor.hold()
        receiving = asyncio.ensure_future(member.receive())
        await asyncio.sleep(1)
        assert not receiving.done()
        broker.log_executor.release()
        (got,) = await receiving
        broker.log_executor.hold()
        acknowledging = asyncio.ensure_future(member.ack(got))
        await asyncio.sleep(1)
        assert not acknowledging.done()
        assert await member.ack(got) == [EXPIRED]  # by what is pending
        broker.log_executor.release()
        assert await acknowledging == [OK]

    run(scenario, tmp_path)


def test_what_is_refused_leaves_the_deliveries_as_they_are(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 2)
        member = Member(broker)
        zero, _ = await member.receive(2)
        batcher = broker.broker.context.batcher
        acknowledging = asyncio.ensure_future(member.ack(zero))
        await asyncio.sleep(0)
        batcher._refuse_pending(NotLeaderError(None))
        with pytest.raises(NotLeaderError):
            await acknowledging
        assert await member.ack(zero) == [OK]

    run(scenario, tmp_path)


def test_one_turn_is_one_entry(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 8)
        member = Member(broker)
        got = await member.receive()
        machine = broker.broker.context.machine
        before = machine.changed_index
        await asyncio.gather(*[member.ack(each) for each in got])
        assert machine.changed_index - before == 1

    run(scenario, tmp_path)


def test_a_restart_keeps_deliveries_and_attempts(tmp_path: Path) -> None:
    handles: list[str] = []

    async def before(broker: SingleBroker) -> None:
        await sent(broker, 3)
        member = Member(broker)
        got = await member.receive(invisible_ms=3_600_000)
        await member.ack(got[1])
        changed = await member.pop.change_invisible("g", "orders", got[2].receipt_handle, 1)
        assert changed.status is OK
        handles.append(got[0].receipt_handle)

    async def after(broker: SingleBroker) -> None:
        member = Member(broker)
        await asyncio.sleep(0.1)
        (again,) = await member.receive()
        assert (again.offset, again.delivery_attempt) == (2, 2)
        assert await member.ack(*handles) == [OK]
        assert await member.ack(again) == [OK]
        assert member.offset == 3

    run(before, tmp_path)
    run(after, tmp_path)


def test_the_clock_never_runs_behind_the_last_reception(tmp_path: Path) -> None:
    async def before(broker: SingleBroker) -> None:
        await sent(broker, 1)
        broker.now_ms += 3_600_000
        await Member(broker).receive(invisible_ms=10_000)

    async def after(broker: SingleBroker) -> None:  # its wall clock is an hour behind
        await asyncio.sleep(21)  # it runs half as fast
        assert len(await Member(broker).receive()) == 1

    run(before, tmp_path)
    run(after, tmp_path)


def test_a_received_record_is_that_of_the_log(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1, tags="a")
        (got,) = await Member(broker).receive()
        (pulled,) = messages(await broker.pull("orders", 0, 0))
        assert decode_record(got.record) == pulled

    run(scenario, tmp_path)


def test_an_unknown_outcome_is_told(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await sent(broker, 1)
        member = Member(broker)
        (got,) = await member.receive()
        context = broker.broker.context
        broker.log_executor.hold()
        acknowledging = asyncio.ensure_future(member.ack(got))
        await asyncio.sleep(0.1)
        (batch,) = context.batcher._in_flight
        context.batcher._proposed(batch, OutcomeUnknownError(9, 9))
        with pytest.raises(OutcomeUnknownError):
            await acknowledging
        broker.log_executor.release()

    run(scenario, tmp_path)
