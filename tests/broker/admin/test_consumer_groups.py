"""Which consumer groups exist and how far they are."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from broker.admin.consumer_groups import ConsumerGroups, TooManyQueuesError
from broker.admin.turns import ITEMS_PER_TURN
from broker.http.json_documents import groups_document
from broker.limits import AdminLimits
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.state.commands import Command, CommitOffset, Expire
from dledger.errors import ProposeError
from tests.broker.single_broker import ADDRESS, SingleBroker


async def commit(broker: SingleBroker, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Whatever that is: replicas may hold offsets that a request with them would be refused for."""
    await apply(broker, CommitOffset(group, topic, queue_id, offset))


async def apply(broker: SingleBroker, command: Command) -> None:
    done: asyncio.Future[ProposeError | None] = broker.loop.create_future()
    broker.broker.context.batcher.add_command(command, done.set_result)
    assert await done is None


async def configure(broker: SingleBroker, group: str) -> None:
    body = orjson.dumps({"groupName": group})
    await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)


async def join(
    broker: SingleBroker,
    group: str,
    *topics: str,
    client: RemotingClient | None = None,
    model: str = "CLUSTERING",
) -> None:
    consumer = {
        "groupName": group,
        "messageModel": model,
        "subscriptionDataSet": [
            {"topic": topic, "subString": "*", "subVersion": 1} for topic in topics
        ],
    }
    body = orjson.dumps({"clientID": f"{group}@1", "consumerDataSet": [consumer]})
    answer = await (client or broker.client).invoke(ADDRESS, RequestCode.HEART_BEAT, {}, (body,))
    assert answer.code == ResponseCode.SUCCESS


async def expire(broker: SingleBroker, topic: str, queue_id: int, offset: int) -> None:
    """Gives up what lies before a message."""
    machine = broker.broker.context.machine
    queue = machine.queue(topic, queue_id)
    assert queue is not None
    position = int.from_bytes(queue.read(offset, 1)[:8], "big")
    await apply(broker, Expire(position))


def groups_of(broker: SingleBroker) -> ConsumerGroups:
    return ConsumerGroups(broker.broker.context.machine, broker.broker.context.clients)


def lag(broker: SingleBroker, group: str, topic: str) -> int | None:
    progress = groups_of(broker).progress(group, topic)
    assert progress is not None
    assert progress.broadcast or progress.lag == sum(queue.lag for queue in progress.queues())
    return progress.lag


# --- lag


async def test_queues_without_a_committed_offset_count_from_the_first_message(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders", queues=3)
    for queue_id, messages in ((0, 5), (1, 3), (2, 1)):
        for _ in range(messages):
            await broker.send("orders", queue_id, b"x")
    assert lag(broker, "readers", "orders") == 9
    await commit(broker, "readers", "orders", 0, 4)
    assert lag(broker, "readers", "orders") == 5
    await expire(broker, "orders", 1, 2)  # with all of queue 0, which was stored before
    assert lag(broker, "readers", "orders") == 2
    await commit(broker, "readers", "orders", 1, 100)
    assert lag(broker, "readers", "orders") == 1


async def test_queues_that_cannot_be_read_any_more_are_no_lag(broker: SingleBroker) -> None:
    await broker.create_topic("orders", queues=2)
    await broker.send("orders", 1, b"x")
    await commit(broker, "readers", "orders", 1, 1)
    await broker.create_topic("orders", queues=1)
    assert lag(broker, "readers", "orders") == 0
    (group,) = groups_of(broker).all()
    assert [topic.acknowledged for topic in group.topics] == [0]


async def test_offsets_far_behind_the_end_are_counted_as_at_the_end(broker: SingleBroker) -> None:
    await broker.create_topic("orders", queues=3)
    for queue_id in range(3):
        await broker.send("orders", queue_id, b"x")
        await commit(broker, "readers", "orders", queue_id, 2**63 - 1)
    assert lag(broker, "readers", "orders") == 0
    assert (await groups_document(broker.broker.context))["groups"] == [
        {
            "group": "readers",
            "topic": "orders",
            "members": 0,
            "acknowledged": 3,
            "lag": 0,
            "lag_ms": 0,
        }
    ]


async def test_a_topic_of_very_many_queues_is_listed_with_those_that_were_used(
    broker: SingleBroker,
) -> None:
    for name, queues in (("few", 4), ("many", 2048)):
        await broker.create_topic(name, queues=queues)
        await broker.send(name, 2, b"x")
    groups = groups_of(broker)
    listed = {
        name: [queue.queue_id for queue in topic.queues()]
        for name in ("few", "many")
        if (topic := groups.progress("readers", name)) is not None
    }
    assert listed == {"few": [0, 1, 2, 3], "many": [0, 2]}


async def test_the_event_loop_goes_on_while_a_long_list_is_made(broker: SingleBroker) -> None:
    await broker.create_topic("orders", queues=1)
    for number in range(ITEMS_PER_TURN // 2 + 1):
        broker.broker.context.machine.state.offsets[f"g{number}", "orders"] = {0: 0}
    made = asyncio.ensure_future(groups_document(broker.broker.context))
    await asyncio.sleep(0)
    assert not made.done()
    last = f"g{ITEMS_PER_TURN // 2}"
    del broker.broker.context.machine.state.offsets["g999", "orders"]
    names = {row["group"] for row in (await made)["groups"]}
    assert last in names
    assert "g999" not in names


async def test_a_group_that_subscribes_lags_before_it_commits_anything(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders", queues=1)
    await broker.send("orders", 0, b"x")
    await join(broker, "readers", "orders")
    (group,) = groups_of(broker).all()
    assert [(topic.topic, topic.lag) for topic in group.topics] == [("orders", 1)]


async def test_what_waits_to_be_tried_again_is_lag_of_its_group(broker: SingleBroker) -> None:
    await configure(broker, "readers")
    await configure(broker, "others")
    await broker.send("%RETRY%readers", 0, b"x")
    found = {
        group.name: [(topic.topic, topic.lag) for topic in group.topics]
        for group in groups_of(broker).all()
    }
    assert found == {"others": [], "readers": [("%RETRY%readers", 1)]}


async def test_the_lag_of_a_broadcasting_group_is_not_known_here(broker: SingleBroker) -> None:
    await broker.create_topic("orders", queues=1)
    await broker.send("orders", 0, b"x")
    await join(broker, "readers", "orders", model="BROADCASTING")
    (group,) = groups_of(broker).all()
    assert [(topic.topic, topic.lag) for topic in group.topics] == [("orders", None)]
    answer = await broker.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers"})
    assert answer.body == b'{"consumeTps":0.0,"offsetTable":{}}'


async def test_too_long_a_list_of_queues_is_refused(broker: SingleBroker) -> None:
    await broker.create_topic("orders", queues=3)
    for queue_id in range(3):
        await broker.send("orders", queue_id, b"x")
    context = broker.broker.context
    for queues_max in (2, 3):
        groups = ConsumerGroups(context.machine, context.clients, AdminLimits(queues_max))
        topic = groups.progress("readers", "orders")
        assert topic is not None
        if queues_max == 3:
            assert len(groups.list_queues([topic])) == 3
            continue
        with pytest.raises(TooManyQueuesError, match="more than 2 queues; ask for one group"):
            groups.list_queues([topic])


# --- which exist


async def test_a_group_exists_with_a_configuration_members_or_offsets(broker: SingleBroker) -> None:
    await configure(broker, "configured")
    await commit(broker, "committed", "orders", 0, 1)
    await join(broker, "joined")
    await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "joined"})
    groups = groups_of(broker)
    assert groups.names() == ["committed", "configured", "joined"]
    assert [group.configured for group in groups.all()] == [False, True, False]
    assert all(groups.find(name) is not None for name in groups.names())
    answer = await broker.ask(RequestCode.GET_CONSUMER_GROUPS)
    assert orjson.loads(answer.body) == {"groups": [{"group": name} for name in groups.names()]}
    assert groups.find("nobody") is None


@pytest.mark.parametrize("field", ["removeOffset", "cleanOffset"])
async def test_with_its_offsets_a_group_loses_its_retry_topic_and_keeps_its_dead_letters(
    broker: SingleBroker, field: str
) -> None:
    for group in ("readers", "others"):
        await configure(broker, group)
        for topic in (f"%RETRY%{group}", f"%DLQ%{group}"):
            await broker.send(topic, 0, b"x")
            await commit(broker, group, topic, 0, 0)
    context = broker.broker.context
    # Such an offset waits for an entry to travel in, and must not come behind the deletion.
    context.batcher.add_lazy_offset("readers", "orders", 0, 5)
    ext = {"groupName": "readers", field: "true"}
    assert (await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)).code == 0
    await asyncio.sleep(5)
    state = context.machine.state
    assert groups_of(broker).names() == ["others"]
    assert {group for group, _ in state.offsets} == {"others"}
    kept = {"%DLQ%readers", "%RETRY%others", "%DLQ%others"}
    assert {name for name in state.topics if name.startswith("%")} == kept

    await configure(broker, "readers")
    assert lag(broker, "readers", "%RETRY%readers") == 0


async def test_without_its_offsets_only_the_configuration_goes(broker: SingleBroker) -> None:
    await configure(broker, "readers")
    await commit(broker, "readers", "orders", 0, 1)
    await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "readers"})
    (group,) = groups_of(broker).all()
    assert (group.name, group.configured) == ("readers", False)
    assert "%RETRY%readers" in broker.broker.context.machine.state.topics
