"""``dledger topic``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import click

from broker.cli.cluster_admin.admin_client import (
    AdminClient,
    RefusedError,
    document_of,
    run_admin,
    run_on_leaders,
)
from broker.cli.terminal.command_error import CommandError, UsageError
from broker.cli.terminal.name_arguments import server_address, topic_name
from broker.cli.terminal.options import DEFAULT_CLUSTER, json_option, namesrv_option
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Group
from broker.limits import STATE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.topics_and_groups import (
    AUTO_CREATE_TOPIC,
    PERM_READ,
    PERM_WRITE,
)

QUEUES_MAX = STATE.queues_max
QUEUES_USUAL = 8

TopicConfig: TypeAlias = Mapping[str, Any]
"""A topic as its broker reports it, by RocketMQ's names; empty if there is none."""
READ_QUEUES, WRITE_QUEUES = "readQueueNums", "writeQueueNums"

ROUTE_SECONDS = 15.0
ASK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue: its messages have the offsets from ``min_offset`` up to below ``max_offset``."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int


command = Group()
name_argument = click.argument("name", type=topic_name)


@command.command(
    examples="""\
  dledger topic create orders --queues 8
  dledger topic create orders -b 127.0.0.1:10911
"""
)
@name_argument
@click.option(
    "--queues",
    type=click.IntRange(1, QUEUES_MAX),
    metavar="N",
    help=f"Of each broker group, 1 to {QUEUES_MAX} (default: {QUEUES_USUAL}, or as many as a "
    "topic that exists has).",
)
@click.option(
    "--fewer",
    is_flag=True,
    help="Take queues away from a topic that has more; consumers no longer see what is in them.",
)
@click.option(
    "-b",
    "broker",
    metavar="BROKER_ADDR",
    type=server_address,
    help="On the broker group of this broker.",
)
@click.option(
    "-c",
    "cluster",
    metavar="CLUSTER",
    help=f"On every broker group of a cluster (default: {DEFAULT_CLUSTER}).",
)
@namesrv_option
@json_option
def create(
    *,
    name: str,
    queues: int | None,
    fewer: bool,
    broker: str | None,
    cluster: str | None,
    namesrv: str,
    output: Output,
) -> None:
    """Create a topic, or change its number of queues."""
    if broker and cluster:
        raise UsageError("-b and -c cannot stand together")

    async def work(admin: AdminClient) -> tuple[dict[str, TopicConfig], int, bool]:
        addresses = await _leaders(admin, broker, cluster or DEFAULT_CLUSTER)
        configs = {each: await _config_at(admin, each, name) for each in addresses}
        if queues is not None and not fewer:
            _refuse_fewer(name, queues, configs)
        count = queues or max(map(_queue_count, configs.values())) or QUEUES_USUAL
        wanting = [
            address
            for address, config in configs.items()
            if not config or (queues and {config[READ_QUEUES], config[WRITE_QUEUES]} != {count})
        ]
        for address in wanting:
            await _set_queues(admin, address, name, configs[address], count)
        await _until_created(admin, name, configs)
        return configs, count, bool(wanting)

    configs, count, changed = run_on_leaders(namesrv, work)
    if output.document({"topic": name, "queues": count, "brokers": [*configs]}):
        return
    where = ", ".join(configs)
    if not any(configs.values()):
        print(f"created {name} with {count} queues on {where}")
    elif changed:
        print(f"changed {name} to {count} queues on {where}")
    else:
        print(f"{name} has {count} queues already on {where}")


def _refuse_fewer(name: str, queues: int, configs: Mapping[str, TopicConfig]) -> None:
    """Raises :class:`CommandError` if the topic has more queues somewhere."""
    for address, config in configs.items():
        count = _queue_count(config)
        if count > queues:
            raise CommandError(
                f"{name} has {count} queues on {address}: with {queues}, consumers no "
                "longer see the messages in the others; --fewer does it all the same"
            )


@command.command("list", examples="  dledger topic list\n")
@namesrv_option
@json_option
def list_topics(namesrv: str, output: Output) -> None:
    """The topics that the NameServer knows."""

    async def topics(admin: AdminClient) -> list[str]:
        answer = await admin.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(document_of(answer)["topicList"])

    names = run_admin(namesrv, topics)
    if not output.document({"topics": names}):
        print("\n".join(names))


@command.command(examples="  dledger topic describe orders\n")
@name_argument
@namesrv_option
@json_option
def describe(name: str, namesrv: str, output: Output) -> None:
    """A topic's queues, and what they hold."""
    queues = run_on_leaders(namesrv, lambda admin: view_queues(admin, name))
    if output.document({"topic": name, "queues": [asdict(queue) for queue in queues]}):
        return
    print_table(
        ("BROKER", "QUEUE", "MIN", "MAX", "MESSAGES"),
        [
            (q.broker, q.queue_id, q.min_offset, q.max_offset, q.max_offset - q.min_offset)
            for q in queues
        ],
    )


@command.command(examples="  dledger topic delete orders\n")
@name_argument
@namesrv_option
@json_option
def delete(name: str, namesrv: str, output: Output) -> None:
    """Delete a topic and its messages."""
    brokers = run_on_leaders(namesrv, lambda admin: delete_topic(admin, name))
    if not output.document({"topic": name, "brokers": brokers}):
        print(f"deleted {name} on {', '.join(brokers)}")


async def _config_at(admin: AdminClient, address: str, topic: str) -> TopicConfig:
    try:
        answer = await admin.ask(address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    except RefusedError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        raise
    return document_of(answer)


def _queue_count(config: TopicConfig) -> int:
    """Readable and writable queues: fewer are writable while a topic is made smaller."""
    return max(int(config.get(name, 0)) for name in (READ_QUEUES, WRITE_QUEUES))


async def _leaders(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """The broker groups that a change goes to: that of a broker, or all of a cluster."""
    return [await admin.leader_of(broker)] if broker else [*(await admin.masters(cluster)).values()]


async def create_topic(
    admin: AdminClient, name: str, *, queues: int, broker: str | None, cluster: str | None
) -> list[str]:
    """Creates the topic in the group of the broker at an address, or in every group of a cluster.

    Returns the leaders' addresses, as soon as the NameServer gives the topic's route to clients.
    """
    addresses = await _leaders(admin, broker, cluster)
    for address in addresses:
        await _set_queues(admin, address, name, {}, queues)
    await _until_created(admin, name, addresses)
    return addresses


async def _set_queues(
    admin: AdminClient, address: str, topic: str, config: TopicConfig, queues: int
) -> None:
    """Sets the number of the topic's queues; the rest stays as in its ``config``, if there is
    one."""
    await admin.ask(
        address,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": AUTO_CREATE_TOPIC,
            READ_QUEUES: queues,
            WRITE_QUEUES: queues,
            "perm": config.get("perm", PERM_READ | PERM_WRITE),
            "topicFilterType": config.get("topicFilterType", "SINGLE_TAG"),
            "topicSysFlag": config.get("topicSysFlag", 0),
            "order": config.get("order", False),
        },
    )


async def _until_created(admin: AdminClient, name: str, addresses: Collection[str]) -> None:
    try:
        async with asyncio.timeout(ROUTE_SECONDS):
            await _until_routed(admin, name, set(addresses))
    except TimeoutError:
        raise CommandError(
            f"{name} is created, but the NameServer does not know it yet; is "
            f"{', '.join(addresses)} registered there? (`dledger status`)"
        ) from None


async def _until_routed(admin: AdminClient, topic: str, addresses: set[str]) -> None:
    while True:
        try:
            route = await admin.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            brokers = document_of(route)["brokerDatas"]
        except RefusedError:
            brokers = []
        if addresses <= {addr for data in brokers for addr in data["brokerAddrs"].values()}:
            return
        await asyncio.sleep(ASK_AGAIN_SECONDS)


async def view_queues(admin: AdminClient, topic: str) -> list[QueueView]:
    """Every readable queue of the topic, asked of its leader."""
    route = await admin.route(topic)

    async def view(broker: str, queue_id: int) -> QueueView:
        ext = {"topic": topic, "queueId": queue_id}
        minimum, maximum = await asyncio.gather(
            admin.ask(route.masters[broker], RequestCode.GET_MIN_OFFSET, ext),
            admin.ask(route.masters[broker], RequestCode.GET_MAX_OFFSET, ext),
        )
        return QueueView(
            broker, queue_id, int(str(minimum.ext["offset"])), int(str(maximum.ext["offset"]))
        )

    return list(
        await asyncio.gather(
            *(
                view(broker, queue_id)
                for broker in route.masters
                for queue_id in range(route.queues.get(broker, 0))
            )
        )
    )


async def delete_topic(admin: AdminClient, topic: str) -> list[str]:
    """Deletes the topic on every group that has it, then at the NameServer."""
    addresses = list((await admin.route(topic)).masters.values())
    for address in addresses:
        await admin.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    await admin.tell_namesrvs(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
    return addresses
