"""Command line, HTTP, console and remoting give the same answer to the same question."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

import broker
from broker.cli.commands.group import group_json
from broker.cluster_admin.admin_client import AdminClient
from broker.cluster_admin.cluster_view import view_groups
from broker.cluster_admin.consumer_group_views import UnknownGroupError, find_group, group_names
from broker.cluster_admin.topics import view_queues
from broker.http.cluster_view import ClusterView
from broker.nameserver.server import NameServer
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.java_json import decode_json
from broker.server.name_server_registration import Registrar
from tests.broker.admin.test_consumer_groups import commit, configure, expire, join
from tests.broker.http.site import Site
from tests.broker.single_broker import SingleBroker

NAMESRV = "127.0.0.1:9876"


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
    return decode_json((await broker.ask(code, ext)).body)


async def by_http(rows: list[dict[str, Any]]) -> Answers:
    answers = Answers({row["group"] for row in rows})
    for row in rows:
        if row["topic"] is not None and row["lag"] is not None:
            answers.add(row["group"], row["topic"], row["lag"])
    return answers


async def by_command_line(admin: AdminClient) -> Answers:
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


@pytest.fixture
async def names(site: Site) -> AsyncIterator[NameServer]:
    """With which the broker is registered."""
    loop, single = site.broker.loop, site.broker
    names = NameServer(loop, "127.0.0.1", 9876)
    await names.start()
    registrar = Registrar(loop, (NAMESRV,), single.broker.announcements.current)
    single.broker.announcements.on_changed = registrar.register_now
    registrar.start()
    await asyncio.sleep(1)
    yield names
    single.broker.announcements.on_changed = lambda: None
    await registrar.stop()
    await names.stop()


@pytest.fixture
def view(site: Site, names: NameServer) -> ClusterView:
    async def no_other(_address: str, _path: str) -> dict[str, Any]:
        raise ConnectionRefusedError

    async def known() -> dict[str, Any]:
        return names.routes.cluster_info()

    return ClusterView(site.broker.broker.context, known, no_other)


@pytest.fixture
def admin(site: Site, names: NameServer) -> AdminClient:
    return AdminClient(site.broker.client, NAMESRV)


@pytest.mark.parametrize("seed", range(25))
async def test_every_surface_gives_the_same_answer(
    site: Site, admin: AdminClient, view: ClusterView, seed: int
) -> None:
    """Again: pytest tests/broker/admin/test_same_answers.py -k "same_answer and <seed>"."""

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


@pytest.mark.parametrize("seed", range(5))
async def test_every_surface_tells_the_same_of_topics_and_of_the_node(
    site: Site, admin: AdminClient, view: ClusterView, seed: int
) -> None:
    single = site.broker
    members = await random_state(single, Random(seed))
    await asyncio.sleep(1)
    _, document = await site.ask("GET", "/topics")
    told = {topic["name"]: topic["messages"] for topic in document["topics"]}
    cluster = orjson.loads(orjson.dumps(await view.document()))
    assert {topic["name"]: topic["messages"] for topic in cluster["topics"]} == told
    for name, config in single.broker.context.machine.state.topics.items():
        stats = await table(single, RequestCode.GET_TOPIC_STATS_INFO, topic=name)
        counted = {
            orjson.loads(queue)["queueId"]: entry["maxOffset"] - entry["minOffset"]
            for queue, entry in stats["offsetTable"].items()
        }
        queues = await view_queues(admin, name)
        assert {queue.queue_id for queue in queues} == set(range(config.read_queues))
        assert sum(queue.max_offset - queue.min_offset for queue in queues) == told[name]
        assert sum(counted.get(queue, 0) for queue in range(config.read_queues)) == told[name]

    _, status = await site.ask("GET", "/status")
    (node,) = cluster["nodes"]
    node["disk"] = status["disk"]  # other programs write to it meanwhile
    assert node == status | {"http": "127.0.0.1:8080"}
    (group,) = await view_groups(admin)
    assert group.health is not None
    assert cluster["broker_groups"] == [group.health.to_json() | {"missing": []}]
    shown = group.nodes[0]
    assert (shown.node, shown.address) == ("broker-a/n0", status["members"]["n0"]["address"])
    for key in ("role", "term", "last_index", "commit_index", "applied_index", "member"):
        assert getattr(shown, key) == status[key]
    assert status["groups"] == len(await group_names(admin))
    for client in members:
        await client.close()


async def test_an_unknown_group_is_told_with_those_of_similar_names(
    site: Site, admin: AdminClient
) -> None:
    for group in ("printers", "readers"):
        await configure(site.broker, group)
    with pytest.raises(UnknownGroupError, match=r"knows the group readesr; is it readers\?"):
        await find_group(admin, "readesr")
    with pytest.raises(UnknownGroupError, match=r"knows the group xyz \("):
        await find_group(admin, "xyz")


# --- what holds new code to it

TABLES = {
    "offsets": {"state", "reader"},
    "groups": {"state"},
    "consumers": {"clients"},
    "queues": {"machine"},
    "queue": {"machine"},
}
"""Tables from which such an answer is computed, by the object that has them."""

ASK_FOR_THEMSELVES = {
    "broker_info_and_config.py": "43 and 25: the table of offsets, as RocketMQ's tools copy it",
    "client_manage.py": "38 and 203: who is connected, and nothing else",
    "query_consume_queue.py": "321: the rows of one queue",
    "consumer_groups.py": "345: what is connected, and nothing else",
    "relay_to_consumer.py": "asks the members themselves",
    "reset_offset.py": "moves the members between the bounds of their queues",
    "topic_and_group_admin.py": "201 and 352: the configurations themselves",
}


def tables_read(path: Path) -> set[str]:
    """``state.offsets`` and the like, whoever holds the state."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in TABLES:
            holder = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
            if holder in TABLES[node.attr]:
                found.add(f"{holder}.{node.attr}")
    return found


def test_wires_leave_questions_about_groups_to_one_place() -> None:
    root = Path(broker.__path__[0])
    processors = root / "remoting" / "processors"
    wires = [*processors.glob("*.py"), *root.glob("http/*.py")]
    reading = {path.name for path in wires if tables_read(path)}
    assert reading <= ASK_FOR_THEMSELVES.keys(), "ask broker/admin for what is computed from tables"
    assert all((processors / name).exists() for name in ASK_FOR_THEMSELVES)
    assert tables_read(root / "admin/consumer_groups.py") >= {"state.offsets", "state.groups"}
