"""Which consumer groups exist and how far they are: every surface gives the same answer."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

import broker
from broker.admin.groups import ConsumerGroups, TooManyQueuesError
from broker.cli.admin import Admin
from broker.cli.consumergroups import UnknownGroupError, find_group, group_names
from broker.cli.group import group_json
from broker.commands import Command, CommitOffset, Expire
from broker.http.cluster import ClusterView
from broker.limits import AdminLimits
from broker.nameserver.server import NameServer
from broker.registration import Registrar
from broker.remoting.client import RemotingClient
from broker.remoting.codes import RequestCode, ResponseCode
from broker.remoting.javajson import quote_object_keys
from dledger.errors import ProposeError
from tests.broker.harness import ADDRESS, SingleBroker, with_broker
from tests.broker.test_http import Site, with_site

NAMESRV = "127.0.0.1:9876"


async def commit(broker: SingleBroker, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Whatever that is: replicas may hold offsets that a request with them would be refused for."""
    await apply(broker, CommitOffset(group, topic, queue_id, offset))


async def apply(broker: SingleBroker, command: Command) -> None:
    done: asyncio.Future[ProposeError | None] = broker.loop.create_future()
    broker.broker.context.gatherer.add_command(command, done.set_result)
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


def test_queues_without_a_committed_offset_count_from_the_first_message(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
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

    with_broker(scenario, tmp_path)


def test_queues_that_cannot_be_read_any_more_are_no_lag(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders", queues=2)
        await broker.send("orders", 1, b"x")
        await commit(broker, "readers", "orders", 1, 1)
        await broker.create_topic("orders", queues=1)
        assert lag(broker, "readers", "orders") == 0
        (group,) = groups_of(broker).all()
        assert [topic.acknowledged for topic in group.topics] == [0]

    with_broker(scenario, tmp_path)


def test_a_group_that_subscribes_lags_before_it_commits_anything(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders", queues=1)
        await broker.send("orders", 0, b"x")
        await join(broker, "readers", "orders")
        (group,) = groups_of(broker).all()
        assert [(topic.topic, topic.lag) for topic in group.topics] == [("orders", 1)]

    with_broker(scenario, tmp_path)


def test_what_waits_to_be_tried_again_is_lag_of_its_group(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await configure(broker, "readers")
        await configure(broker, "others")
        await broker.send("%RETRY%readers", 0, b"x")
        found = {
            group.name: [(topic.topic, topic.lag) for topic in group.topics]
            for group in groups_of(broker).all()
        }
        assert found == {"others": [], "readers": [("%RETRY%readers", 1)]}

    with_broker(scenario, tmp_path)


def test_the_lag_of_a_broadcasting_group_is_not_known_here(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await broker.create_topic("orders", queues=1)
        await broker.send("orders", 0, b"x")
        await join(broker, "readers", "orders", model="BROADCASTING")
        (group,) = groups_of(broker).all()
        assert [(topic.topic, topic.lag) for topic in group.topics] == [("orders", None)]
        answer = await broker.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers"})
        assert answer.body == b'{"consumeTps":0.0,"offsetTable":{}}'

    with_broker(scenario, tmp_path)


def test_too_long_a_list_of_queues_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
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

    with_broker(scenario, tmp_path)


# --- which exist


def test_a_group_exists_with_a_configuration_members_or_offsets(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await configure(broker, "configured")
        await commit(broker, "committed", "orders", 0, 1)
        await join(broker, "joined")
        await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "joined"})
        groups = groups_of(broker)
        assert groups.names() == ["committed", "configured", "joined"]
        assert [group.configured for group in groups.all()] == [False, True, False]
        assert all(groups.find(name) is not None for name in groups.names())
        assert groups.find("nobody") is None

    with_broker(scenario, tmp_path)


@pytest.mark.parametrize("field", ["removeOffset", "cleanOffset"])
def test_with_its_offsets_a_group_loses_its_retry_topic_and_keeps_its_dead_letters(
    tmp_path: Path, field: str
) -> None:
    async def scenario(broker: SingleBroker) -> None:
        for group in ("readers", "others"):
            await configure(broker, group)
            for topic in (f"%RETRY%{group}", f"%DLQ%{group}"):
                await broker.send(topic, 0, b"x")
                await commit(broker, group, topic, 0, 0)
        context = broker.broker.context
        # Such an offset waits for an entry to travel in, and must not come behind the deletion.
        context.gatherer.add_lazy_offset("readers", "orders", 0, 5)
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

    with_broker(scenario, tmp_path)


def test_without_its_offsets_only_the_configuration_goes(tmp_path: Path) -> None:
    async def scenario(broker: SingleBroker) -> None:
        await configure(broker, "readers")
        await commit(broker, "readers", "orders", 0, 1)
        await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "readers"})
        (group,) = groups_of(broker).all()
        assert (group.name, group.configured) == ("readers", False)
        assert "%RETRY%readers" in broker.broker.context.machine.state.topics

    with_broker(scenario, tmp_path)


# --- all surfaces


@dataclass
class Answers:
    """The groups that exist, and the lag by group and topic as far as it is known."""

    groups: set[str] = field(default_factory=set)
    lags: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, group: str, topic: str, behind: int) -> None:
        self.lags[group, topic] = self.lags.get((group, topic), 0) + behind


async def by_remoting(broker: SingleBroker, names: list[str]) -> Answers:
    """208 of each group, with and without its topics, and what 317 sums up."""
    answers = Answers(set(names))
    for name in names:
        whole = await table(broker, RequestCode.GET_CONSUME_STATS, consumerGroup=name)
        for queue, entry in whole["offsetTable"].items():
            topic = orjson.loads(queue)["topic"]
            answers.add(name, topic, entry["brokerOffset"] - entry["consumerOffset"])
        for topic in {orjson.loads(queue)["topic"] for queue in whole["offsetTable"]}:
            part = await table(
                broker, RequestCode.GET_CONSUME_STATS, consumerGroup=name, topic=topic
            )
            assert part["offsetTable"].items() <= whole["offsetTable"].items()
    every = await table(broker, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    assert every["totalDiff"] == sum(answers.lags.values())
    return answers


async def table(broker: SingleBroker, code: int, **ext: str) -> Any:
    return orjson.loads(quote_object_keys((await broker.ask(code, ext)).body))


async def by_http(rows: list[dict[str, Any]]) -> Answers:
    answers = Answers({row["group"] for row in rows})
    for row in rows:
        if row["topic"] is not None and row["lag"] is not None:
            answers.add(row["group"], row["topic"], row["lag"])
    return answers


async def by_command_line(admin: Admin) -> Answers:
    answers = Answers(set(await group_names(admin)))
    for name in answers.groups:
        document = group_json(await find_group(admin, name))
        for queue in document["queues"]:
            answers.add(name, queue["topic"], queue["lag"])
        assert document["lag"] == sum(queue["lag"] for queue in document["queues"])
    return answers


TOPICS = ("orders", "bills", "%RETRY%g0", "%RETRY%g1")
GROUPS = ("g0", "g1", "g2", "g3")


async def random_state(broker: SingleBroker, rng: Random) -> list[RemotingClient]:
    """Messages, groups of every kind, expiry, topics that shrank or went; the members' clients."""
    members = []
    for topic in TOPICS[:2]:
        await broker.create_topic(topic, queues=4)
    for _ in range(rng.randrange(40)):
        topic = rng.choice(TOPICS)
        await broker.send(topic, rng.randrange(1 if topic[0] == "%" else 4), b"x")
    for _ in range(rng.randrange(10)):
        offset = rng.randrange(12)
        await commit(broker, rng.choice(GROUPS), rng.choice(TOPICS), rng.randrange(5), offset)
    for group in GROUPS:
        if rng.random() < 0.3:
            await configure(broker, group)
        if rng.random() < 0.4:
            client = RemotingClient(broker.loop)
            members.append(client)
            model = rng.choice(("CLUSTERING", "CLUSTERING", "BROADCASTING"))
            wanted = rng.sample(TOPICS, rng.randrange(3))
            await join(broker, group, *wanted, client=client, model=model)
    queue = broker.broker.context.machine.queue("orders", 1)
    if queue is not None and rng.random() < 0.5:
        await expire(broker, "orders", 1, rng.randrange(queue.end_offset))
    if rng.random() < 0.3:
        await broker.create_topic("bills", queues=2)
    if rng.random() < 0.2:
        await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "bills"})
    if rng.random() < 0.3:
        ext = {"groupName": rng.choice(GROUPS), "removeOffset": rng.choice(("true", "false"))}
        await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)
    return members


def expected(broker: SingleBroker) -> Answers:
    """The slow way, from the tables."""
    context = broker.broker.context
    state, consumers = context.machine.state, context.clients.consumers
    answers = Answers({*state.groups, *consumers, *(group for group, _ in state.offsets)})
    for group in answers.groups:
        members = consumers.get(group)
        if members is not None and members.settings.message_model == "BROADCASTING":
            continue
        for name, topic in state.topics.items():
            ends = [context.reader.offsets(name, each) for each in range(topic.read_queues)]
            subscribed = members is not None and name in members.subscriptions
            retries = name == f"%RETRY%{group}" and any(end for _, end in ends)
            if (group, name) in state.offsets or subscribed or retries:
                for queue_id, (first, end) in enumerate(ends):
                    begun = max(state.offset(group, name, queue_id) or 0, first)
                    answers.add(group, name, max(end - begun, 0))
    return answers


def nonzero(lags: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """A queue that never had a message is in some answers and not in others."""
    return {key: behind for key, behind in lags.items() if behind}


def with_all(
    scenario: Callable[[Site, Admin, ClusterView], Coroutine[Any, Any, None]], data: Path
) -> None:
    async def run(site: Site) -> None:
        loop, single = site.broker.loop, site.broker
        names = NameServer(loop, "127.0.0.1", 9876)
        await names.start()
        registrar = Registrar(loop, (NAMESRV,), single.broker.announcement)
        single.broker.on_announcement_changed = registrar.register_now
        registrar.start()
        await asyncio.sleep(1)

        async def no_other(_address: str, _path: str) -> dict[str, Any]:
            raise ConnectionRefusedError

        async def known() -> dict[str, Any]:
            return names.routes.cluster_info()

        view = ClusterView(single.broker.context, known, no_other)
        await scenario(site, Admin(single.client, NAMESRV), view)
        single.broker.on_announcement_changed = lambda: None
        await registrar.stop()
        await names.stop()

    with_site(run, data)


@pytest.mark.parametrize("seed", range(25))
def test_every_surface_gives_the_same_answer(tmp_path: Path, seed: int) -> None:
    """Again: pytest tests/broker/test_groups.py -k "same_answer and <seed>"."""

    async def scenario(site: Site, admin: Admin, view: ClusterView) -> None:
        members = await random_state(site.broker, Random(seed))
        await asyncio.sleep(1)
        slow = expected(site.broker)
        command_line = await by_command_line(admin)
        _, document = await site.ask("GET", "/groups")
        surfaces = {
            "remoting": await by_remoting(site.broker, sorted(command_line.groups)),
            "command line": command_line,
            "HTTP": await by_http(document["groups"]),
            "console": await by_http((await view.document())["groups"]),
        }
        for name, answers in surfaces.items():
            assert answers.groups == slow.groups, (name, seed)
            assert nonzero(answers.lags) == nonzero(slow.lags), (name, seed)
        for client in members:
            await client.close()

    with_all(scenario, tmp_path)


def test_an_unknown_group_is_told_with_those_of_similar_names(tmp_path: Path) -> None:
    async def scenario(site: Site, admin: Admin, _view: ClusterView) -> None:
        for group in ("printers", "readers"):
            await configure(site.broker, group)
        with pytest.raises(UnknownGroupError, match=r"knows the group readesr; is it readers\?"):
            await find_group(admin, "readesr")
        with pytest.raises(UnknownGroupError, match=r"knows the group xyz \("):
            await find_group(admin, "xyz")

    with_all(scenario, tmp_path)


# --- what holds new code to it

TABLES = {"offsets": {"state"}, "groups": {"state"}, "consumers": {"clients"}}
"""Tables from which such an answer is computed, by the object that has them."""

ASK_FOR_THEMSELVES = {
    "http/cluster.py": "asks other nodes over HTTP",
    "processors/admin.py": "43 and 25: the table of offsets itself, as RocketMQ's tools copy it",
    "processors/clients.py": "38 and 203: who is connected, and nothing else",
    "processors/groups.py": "345: what is connected, and nothing else",
    "processors/pull.py": "whether the group may consume",
    "processors/relay.py": "asks the members themselves",
    "processors/resets.py": "tells the members",
    "processors/topics.py": "201 and 352: the configurations themselves",
}


def tables_read(path: Path) -> set[str]:
    return {
        f"{node.value.attr}.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in TABLES.get(node.attr, ())
    }


def test_wires_leave_questions_about_groups_to_one_place() -> None:
    root = Path(broker.__path__[0])
    wires = [*root.glob("processors/*.py"), *root.glob("http/*.py")]
    reading = {str(path.relative_to(root)) for path in wires if tables_read(path)}
    assert reading <= ASK_FOR_THEMSELVES.keys(), "ask broker/admin for what is computed from tables"
    assert not {"http/documents.py", "http/console.py"} & reading
