"""Moving a group whose consumers are connected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.delivery.offset_resets import RESET_SECONDS
from broker.limits import STATE
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.state.commands import Command, DeleteGroup, DeleteTopic
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from tests.broker.single_broker import (
    ADDRESS,
    NOW_MS,
    SingleBroker,
    pull_ext,
    running_broker,
)
from tests.support.virtual_network import NetworkedLoop

RESET = {"topic": "orders", "group": "readers", "timestamp": "0", "isForce": "true"}
BACK_TO_THE_START = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:0}}'


class Member:
    """A consumer of the group ``readers`` that keeps what it is told."""

    def __init__(self, broker: SingleBroker) -> None:
        self.told: list[Frame] = []
        self.client = RemotingClient(broker.loop, {RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self})

    def __call__(self, _connection: object, frame: Frame) -> None:
        self.told.append(frame)

    async def join(self) -> None:
        group = {
            "groupName": "readers",
            "subscriptionDataSet": [{"topic": "orders", "subString": "*", "subVersion": 1}],
        }
        body = orjson.dumps({"clientID": "one", "consumerDataSet": [group]})
        answer = await self.client.invoke(ADDRESS, RequestCode.HEART_BEAT, {}, (body,))
        assert answer.code == ResponseCode.SUCCESS


async def joined(broker: SingleBroker, *, messages: int = 5, consumed: int = 5) -> Member:
    """A member of a group that has consumed some of the messages, one stored each second."""
    await broker.create_topic("orders", queues=1)
    for _ in range(messages):
        await broker.send("orders", 0, b"x")
        broker.now_ms += 1000
    member = Member(broker)
    await member.join()
    await commit(broker, consumed)
    return member


async def commit(broker: SingleBroker, offset: int) -> None:
    place = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
    ext = place | {"commitOffset": str(offset)}
    assert (await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0


async def reset(broker: SingleBroker, **changed: str) -> Frame:
    return await broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET | changed)


def committed(broker: SingleBroker) -> int | None:
    return broker.broker.context.machine.state.offset("readers", "orders", 0)


async def test_a_group_that_consumes_is_moved_and_its_members_are_told(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    answer = await reset(broker)
    assert (answer.code, answer.body) == (0, BACK_TO_THE_START)
    assert committed(broker) == 0
    await asyncio.sleep(0.01)
    (told,) = member.told
    assert (told.body, told.is_one_way) == (BACK_TO_THE_START, True)
    assert told.ext == RESET
    await member.client.close()


@pytest.mark.parametrize(
    ("changed", "offset"),
    [
        ({"timestamp": str(NOW_MS + 2000)}, 2),
        ({"timestamp": str(NOW_MS + 1500)}, 2),
        ({"timestamp": str(NOW_MS + 60_000)}, 5),
        ({"timestamp": "-1"}, 5),
        ({"timestamp": "-1", "isForce": "false"}, 3),
        ({"timestamp": str(NOW_MS), "isForce": "false"}, 0),
        ({"queueId": "0", "offset": "4"}, 4),
        ({"queueId": "0", "offset": "99"}, 5),
    ],
)
async def test_a_group_goes_to_the_first_message_that_is_not_older(
    broker: SingleBroker, changed: dict[str, str], offset: int
) -> None:
    member = await joined(broker, consumed=3)
    assert (await reset(broker, **changed)).code == ResponseCode.SUCCESS
    assert committed(broker) == offset
    await member.client.close()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (DeleteTopic("orders", 1), ResponseCode.TOPIC_NOT_EXIST),
        (DeleteGroup("readers", True, 1), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
    ids=["topic", "group"],
)
async def test_nothing_is_moved_that_is_gone_once_the_times_are_read(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch, command: Command, code: ResponseCode
) -> None:
    member = await joined(broker)
    context = broker.broker.context
    load = context.reader.load

    def load_without_it(*asked: Any) -> None:
        context.batcher.add_command(command)
        load(*asked)

    monkeypatch.setattr(context.reader, "load", load_without_it)
    before = committed(broker) if isinstance(command, DeleteTopic) else None
    assert (await reset(broker, timestamp=str(NOW_MS + 2000))).code == code
    await asyncio.sleep(0.1)
    assert committed(broker) == before
    await member.client.close()


async def test_a_client_that_ignores_what_it_is_told_is_moved_by_its_next_pull(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    held = asyncio.ensure_future(
        broker.ask(RequestCode.PULL_MESSAGE, pull_ext("orders", 0, 5) | {"sysFlag": "6"})
    )
    await asyncio.sleep(0.01)
    await reset(broker)
    answer = await held
    told = (answer.code, answer.remark, answer.ext["nextBeginOffset"])
    assert told == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", "0")
    assert (await broker.pull("orders", 0, 0)).code == ResponseCode.SUCCESS
    await member.client.close()


async def test_what_a_group_commits_before_it_has_followed_does_not_count(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    await reset(broker)
    await commit(broker, 5)
    assert committed(broker) == 0
    await broker.pull("orders", 0, 0)
    await commit(broker, 1)
    assert committed(broker) == 1
    await member.client.close()


async def test_a_group_that_never_follows_is_taken_at_its_word_after_a_minute(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    await reset(broker)
    await asyncio.sleep(RESET_SECONDS)
    await commit(broker, 5)
    assert committed(broker) == 5
    await member.client.close()


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "none"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"group": "away"}, ResponseCode.CONSUMER_NOT_ONLINE),
        ({"queueId": "7"}, ResponseCode.SYSTEM_ERROR),
        ({"timestamp": "-2"}, ResponseCode.SYSTEM_ERROR),
        ({"timestamp": "noon"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_reset_that_cannot_be_done_says_why_and_changes_nothing(
    broker: SingleBroker, changed: dict[str, str], code: ResponseCode
) -> None:
    member = await joined(broker)
    body: dict[str, Any] = {"groupName": "away"}
    await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, orjson.dumps(body))
    answer = await reset(broker, **changed)
    assert (answer.code, bool(answer.remark)) == (code, True)
    assert committed(broker) == 5
    assert not member.told
    await member.client.close()


@pytest.mark.parametrize("timestamp", ["0", "-1"])
async def test_the_first_offsets_of_a_reset_must_have_room_and_known_ones_have(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch, timestamp: str
) -> None:
    monkeypatch.setattr("broker.delivery.offset_quota.STATE", STATE._replace(offsets_max=2))
    member = await joined(broker)
    await broker.create_topic("bills", queues=2)
    answer = await reset(broker, topic="bills", timestamp=timestamp)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == (
        "no offset is kept for 2 queues of bills: there are 1 offsets of groups, "
        "at most 2 are allowed"
    )
    assert not member.told
    # Those that are not applied yet count, too.
    one_queue = {"topic": "bills", "timestamp": timestamp}
    answers = await asyncio.gather(*(reset(broker, **one_queue, queueId=each) for each in "01"))
    assert [each.code for each in answers] == [0, ResponseCode.SYSTEM_ERROR]
    assert (await reset(broker)).code == ResponseCode.SUCCESS
    assert broker.broker.context.machine.state.offset_count == 2
    await member.client.close()


async def test_a_node_that_does_not_lead_moves_nobody(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, serving=False) as broker:
        assert (await reset(broker)).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_node_that_does_not_lead_forgets_which_groups_were_moved(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    await reset(broker)
    leads = broker.broker.context.node.leadership
    broker.broker.leadership_changed(Leadership(Role.FOLLOWER, leads.term, None, False))
    broker.broker.leadership_changed(leads)
    await commit(broker, 5)
    assert committed(broker) == 5
    assert (await broker.pull("orders", 0, 5)).code == ResponseCode.PULL_NOT_FOUND
    await member.client.close()


async def test_a_group_whose_configuration_was_deleted_is_moved_with_its_members(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    delete = {"groupName": "readers"}
    assert (await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)).code == 0
    assert (await reset(broker)).body == BACK_TO_THE_START
    assert member.told
    await member.client.close()
    await asyncio.sleep(1)
    assert (await reset(broker)).code == ResponseCode.CONSUMER_NOT_ONLINE  # it has offsets
    await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete | {"removeOffset": "true"})
    assert (await reset(broker)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_what_a_member_commits_while_the_group_is_being_moved_does_not_undo_it(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    place = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    moved = member.client.invoke_nowait(ADDRESS, code, RESET)
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    member.client.push(ADDRESS, code, place | {"commitOffset": "4"})
    assert (await moved).code == ResponseCode.SUCCESS
    await asyncio.sleep(0.01)
    assert committed(broker) == 0
    await member.client.close()


async def test_a_move_that_is_refused_leaves_the_members_their_commits(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    resets = broker.broker.context.delivery.resets
    resets.begin("readers", "orders", 0, 0)
    assert resets.is_pending("readers", "orders", 0)
    assert resets.take("readers", "orders", 0) is None, "nobody is sent where nobody is moved"
    resets.give_up("readers", "orders", 0)
    await commit(broker, 4)
    assert committed(broker) == 4
    await member.client.close()


async def test_who_commits_one_way_and_then_asks_is_told_what_it_committed(
    broker: SingleBroker,
) -> None:
    member = await joined(broker)
    place = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    member.client.push(ADDRESS, code, place | {"commitOffset": "2"})
    answer = await member.client.invoke(ADDRESS, RequestCode.QUERY_CONSUMER_OFFSET, place)
    assert answer.ext == {"offset": "2"}
    await member.client.close()
