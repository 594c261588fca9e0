"""The topics of running groups: shows, creates, changes and deletes them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from broker.cluster_admin.admin_client import (
    AdminClient,
    RefusedError,
    document_of,
)
from broker.command_error import CommandError
from broker.limits import STATE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.topics_and_groups import (
    AUTO_CREATE_TOPIC,
    MESSAGE_TYPE,
    MESSAGE_TYPES,
    PERM_READ,
    PERM_WRITE,
    RETENTION_MS,
)

TopicConfig: TypeAlias = Mapping[str, Any]
"""The settings of a topic in the broker's answer, by RocketMQ's names; empty if there is no topic.
The attributes :data:`MESSAGE_TYPE` and :data:`RETENTION_MS` (0 for none) are among the settings
here."""
READ_QUEUES, WRITE_QUEUES = "readQueueNums", "writeQueueNums"

NEW_TOPIC: TopicConfig = {
    "perm": PERM_READ | PERM_WRITE,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}

QUEUES_USUAL = 8
PERMISSIONS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ | PERM_WRITE, "none": 0}

REGISTRATION_SECONDS = 15.0
"""The time in which a NameServer learns of a change at a broker."""

ASK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue; its messages have the offsets from ``min_offset`` to below ``max_offset``."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int


def _with_attributes(config: Mapping[str, Any]) -> TopicConfig:
    attributes = config.get("attributes", {})
    return {
        **config,
        MESSAGE_TYPE: attributes.get(MESSAGE_TYPE, MESSAGE_TYPES[0]),
        RETENTION_MS: int(attributes.get(RETENTION_MS, 0)),
    }


async def all_topic_configs(admin: AdminClient) -> list[tuple[str, str, TopicConfig]]:
    """Name, broker group and settings of each topic at each leader, in order."""
    found = []
    for group, address in (await admin.masters()).items():
        answer = await admin.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        table = document_of(answer)["topicConfigTable"]
        found += [(name, group, _with_attributes(config)) for name, config in table.items()]
    return sorted(found, key=itemgetter(0, 1))


async def topic_configs(
    admin: AdminClient, topic: str, addresses: Collection[str]
) -> dict[str, TopicConfig]:
    """The topic's settings at each of these leaders, by address."""
    return {address: await _config_at(admin, address, topic) for address in addresses}


async def _config_at(admin: AdminClient, address: str, topic: str) -> TopicConfig:
    try:
        answer = await admin.ask(address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    except RefusedError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        raise
    return _with_attributes(document_of(answer))


def queue_count(config: TopicConfig) -> int:
    """The number of queues, readable or writable: fewer are writable while a topic shrinks."""
    return max(int(config.get(name, 0)) for name in (READ_QUEUES, WRITE_QUEUES))


async def leaders_of(admin: AdminClient, broker: str | None, cluster: str | None) -> list[str]:
    """The leaders that a change goes to: the one for a broker, or all of a cluster."""
    return [await admin.leader_of(broker)] if broker else [*(await admin.masters(cluster)).values()]


async def create_topic(
    admin: AdminClient, name: str, *, queues: int, broker: str | None, cluster: str | None
) -> list[str]:
    """Creates the topic in the group of the broker at an address, or in every group of a cluster.

    Returns the leaders' addresses, once the NameServer has the topic's route.
    """
    addresses = await leaders_of(admin, broker, cluster)
    for address in addresses:
        await put_topic(admin, address, name, {}, {READ_QUEUES: queues, WRITE_QUEUES: queues})
    await until_created(admin, name, addresses)
    return addresses


async def put_topic(
    admin: AdminClient, address: str, topic: str, config: TopicConfig, changes: TopicConfig
) -> None:
    """Creates the topic at a leader, or changes it. Settings that are not in ``changes`` stay as in
    ``config``."""
    names = (*NEW_TOPIC, READ_QUEUES, WRITE_QUEUES)
    kept = {name: config[name] for name in names if name in config}
    ext = {"topic": topic, "defaultTopic": AUTO_CREATE_TOPIC, **NEW_TOPIC, **kept, **changes}
    attributes = []
    message_type, retention_ms = ext.pop(MESSAGE_TYPE, None), ext.pop(RETENTION_MS, None)
    if message_type is not None:
        attributes.append(f"+{MESSAGE_TYPE}={message_type}")
    if retention_ms is not None:
        named = f"+{RETENTION_MS}={retention_ms}" if retention_ms else f"-{RETENTION_MS}"
        attributes.append(named)
    if attributes:
        ext["attributes"] = ",".join(attributes)
    await admin.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


async def make_or_change_topic(
    admin: AdminClient, name: str, addresses: list[str], changes: Mapping[str, Any], *, fewer: bool
) -> tuple[dict[str, TopicConfig], int, bool]:
    """Creates or changes the topic. Returns its old settings, the number of queues of a created
    topic, and whether anything changed."""
    configs = await topic_configs(admin, name, addresses)
    wanted = changes.get(READ_QUEUES)
    if wanted is not None and not fewer:
        _refuse_fewer(name, wanted, configs)
    count = wanted or max(map(queue_count, configs.values())) or QUEUES_USUAL
    new = {READ_QUEUES: count, WRITE_QUEUES: count, **changes}
    changed = False
    for address, config in configs.items():
        asked = changes if config else new
        if any(config.get(key) != value for key, value in asked.items()):
            await put_topic(admin, address, name, config, asked)
            changed = True
    await until_created(admin, name, configs)
    return configs, count, changed


def _refuse_fewer(name: str, queues: int, configs: Mapping[str, TopicConfig]) -> None:
    """Raises :class:`CommandError` if the topic has more queues on any of the brokers."""
    for address, config in configs.items():
        count = queue_count(config)
        if count > queues:
            raise CommandError(
                f"{name} has {count} queues on {address}: with {queues}, consumers no "
                "longer see the messages in the others; --fewer allows it"
            )


def permission_word(bits: int) -> str:
    """The name of a topic's permission bits, one of :data:`PERMISSIONS`."""
    allowed = bits & (PERM_READ | PERM_WRITE)
    return next(name for name, each in PERMISSIONS.items() if each == allowed)


async def until_created(admin: AdminClient, name: str, addresses: Collection[str]) -> None:
    try:
        async with asyncio.timeout(REGISTRATION_SECONDS):
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


async def topic_names(admin: AdminClient) -> list[str]:
    """The topics that the NameServer knows, in order."""
    answer = await admin.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return sorted(document_of(answer)["topicList"])


async def view_queues(admin: AdminClient, topic: str) -> list[QueueView]:
    """Every readable queue of the topic, from its leader."""
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
                for queue_id in range(min(route.queues.get(broker, 0), STATE.queues_max))
            )
        )
    )


async def delete_topic(admin: AdminClient, topic: str) -> list[str]:
    """Deletes the topic on every broker group that has it, then at the NameServers."""
    addresses = list((await admin.route(topic)).masters.values())
    for address in addresses:
        await admin.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    await admin.tell_namesrvs(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
    return addresses
