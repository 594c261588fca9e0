"""``dledger topic``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from broker.cli.cluster_admin.admin_client import (
    AdminClient,
    RefusedError,
    document_of,
    run_admin,
    run_on_leaders,
)
from broker.cli.terminal.command_error import CommandError
from broker.cli.terminal.name_arguments import server_address, topic_name
from broker.cli.terminal.options import (
    DEFAULT_CLUSTER,
    add_json,
    add_namesrv,
    positive,
    print_json,
    print_table,
)
from broker.limits import STATE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.topics_and_groups import (
    AUTO_CREATE_TOPIC,
    MESSAGE_TYPES,
    PERM_READ,
    PERM_WRITE,
)

QUEUES_MAX = STATE.queues_max
QUEUES_USUAL = 8

TopicConfig: TypeAlias = Mapping[str, Any]
"""A topic as its broker reports it, by RocketMQ's names; empty if there is none."""
READ_QUEUES, WRITE_QUEUES = "readQueueNums", "writeQueueNums"

EXAMPLES = """\
  dledger topic create orders --queues 8
  dledger topic create orders -b 127.0.0.1:10911
  dledger topic create payments --type TRANSACTION
  dledger topic list
  dledger topic describe orders
  dledger topic delete orders
"""

ROUTE_SECONDS = 15.0
ASK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue: its messages have the offsets from ``min_offset`` up to below ``max_offset``."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="create a topic, or change its number of queues")
    create.add_argument("name", metavar="NAME", type=topic_name)
    create.add_argument(
        "--queues",
        type=_queues,
        metavar="N",
        help=f"of each broker group, 1 to {QUEUES_MAX} (default: {QUEUES_USUAL}, or as many as a "
        "topic that exists has)",
    )
    create.add_argument(
        "--type",
        choices=MESSAGE_TYPES,
        help="the type of message that it takes (default: all, or as it is); UNSPECIFIED and MIXED "
        "are all",
    )
    create.add_argument(
        "--fewer",
        action="store_true",
        help="take queues away from a topic that has more; consumers no longer see what is in them",
    )
    where = create.add_mutually_exclusive_group()
    where.add_argument(
        "-b",
        dest="broker",
        metavar="BROKER_ADDR",
        type=server_address,
        help="on the broker group of this broker",
    )
    where.add_argument(
        "-c",
        dest="cluster",
        metavar="CLUSTER",
        default=DEFAULT_CLUSTER,
        help=f"on every broker group of a cluster (default: {DEFAULT_CLUSTER})",
    )
    listing = actions.add_parser("list", help="the topics that the NameServer knows")
    describe = actions.add_parser("describe", help="a topic's queues, and what they hold")
    describe.add_argument("name", metavar="NAME", type=topic_name)
    delete = actions.add_parser("delete", help="delete a topic and its messages")
    delete.add_argument("name", metavar="NAME", type=topic_name)
    for action in (create, listing, describe, delete):
        add_namesrv(action)
        add_json(action)


def _queues(text: str) -> int:
    count = positive(text)
    if count > QUEUES_MAX:
        raise argparse.ArgumentTypeError(f"{text} queues are too many: it may be 1 to {QUEUES_MAX}")
    return count


def run(args: argparse.Namespace) -> int:
    actions = {"create": _create, "list": _list, "describe": _describe, "delete": _delete}
    return actions[args.action](args)


def _create(args: argparse.Namespace) -> int:

    async def create(admin: AdminClient) -> tuple[dict[str, TopicConfig], int, bool]:
        configs = await _configs(admin, args)
        queues: int = args.queues or max(map(_queue_count, configs.values())) or QUEUES_USUAL
        wanting = [
            address
            for address, config in configs.items()
            if not config
            or (args.queues and {config[READ_QUEUES], config[WRITE_QUEUES]} != {queues})
            or (args.type and _message_type(config) != args.type)
        ]
        for address in wanting:
            config = configs[address]
            of_it = args.queues or _queue_count(config) or queues
            await _set_queues(admin, address, args.name, config, of_it, args.type)
        await _until_created(admin, args.name, configs)
        return configs, queues, bool(wanting)

    configs, queues, changed = run_on_leaders(args.namesrv, create)
    if args.json:
        print_json({"topic": args.name, "queues": queues, "brokers": [*configs]})
        return 0
    where = ", ".join(configs)
    if not any(configs.values()):
        print(f"created {args.name} with {queues} queues on {where}")
    elif changed:
        print(f"changed {args.name} to {queues} queues on {where}")
    else:
        print(f"{args.name} has {queues} queues already on {where}")
    return 0


async def _configs(admin: AdminClient, args: argparse.Namespace) -> dict[str, TopicConfig]:
    """The topic's settings on each broker that takes writes, by address.

    Raises :class:`CommandError` if fewer queues are requested without ``--fewer``.
    """
    configs = {}
    for address in await _leaders(admin, args.broker, args.cluster):
        configs[address] = config = await _config_at(admin, address, args.name)
        count = _queue_count(config)
        if args.queues is not None and count > args.queues and not args.fewer:
            raise CommandError(
                f"{args.name} has {count} queues on {address}: with {args.queues}, consumers no "
                "longer see the messages in the others; --fewer does it all the same"
            )
    return configs


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


async def _set_queues(  # noqa: PLR0917 - the last two are the settings
    admin: AdminClient,
    address: str,
    topic: str,
    config: TopicConfig,
    queues: int,
    message_type: str | None = None,
) -> None:
    """Sets the number of the topic's queues, and the type of its messages if one is given; the
    rest stays as in its ``config``, if there is one."""
    attributes = {} if message_type is None else {"attributes": f"+message.type={message_type}"}
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
            **attributes,
        },
    )


def _message_type(config: TopicConfig) -> str:
    found: str = config.get("attributes", {}).get("message.type", MESSAGE_TYPES[0])
    return found


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


def _list(args: argparse.Namespace) -> int:
    async def topics(admin: AdminClient) -> list[str]:
        answer = await admin.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(document_of(answer)["topicList"])

    names = run_admin(args.namesrv, topics)
    if args.json:
        print_json({"topics": names})
    else:
        print("\n".join(names))
    return 0


def _describe(args: argparse.Namespace) -> int:
    queues = run_on_leaders(args.namesrv, lambda admin: view_queues(admin, args.name))
    if args.json:
        print_json({"topic": args.name, "queues": [asdict(queue) for queue in queues]})
    else:
        print_table(
            ("BROKER", "QUEUE", "MIN", "MAX", "MESSAGES"),
            [
                (q.broker, q.queue_id, q.min_offset, q.max_offset, q.max_offset - q.min_offset)
                for q in queues
            ],
        )
    return 0


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


def _delete(args: argparse.Namespace) -> int:
    brokers = run_on_leaders(args.namesrv, lambda admin: delete_topic(admin, args.name))
    if args.json:
        print_json({"topic": args.name, "brokers": brokers})
    else:
        print(f"deleted {args.name} on {', '.join(brokers)}")
    return 0


async def delete_topic(admin: AdminClient, topic: str) -> list[str]:
    """Deletes the topic on every group that has it, then at the NameServer."""
    addresses = list((await admin.route(topic)).masters.values())
    for address in addresses:
        await admin.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    await admin.tell_namesrvs(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
    return addresses
