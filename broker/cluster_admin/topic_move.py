"""Moves a topic from one broker group to another, as RocketMQ's operators do.

The target gets the topic. The source takes no more messages, so producers send to the target.
Consumers read the rest at the source, and the topic is deleted there. Each step first checks
whether it is done already, so an interrupted move continues when it is repeated.

With ``in_order`` the target takes messages only once the source is empty. Until then nobody can
send to the topic, so no message is consumed before an earlier one. At the end the target always
takes messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from broker.cluster_admin.admin_client import AdminClient, RefusedError, document_of
from broker.cluster_admin.cluster_view import view_node
from broker.cluster_admin.consumer_group_views import lags_in
from broker.cluster_admin.settings import leaders_by_group
from broker.cluster_admin.topics import (
    ASK_AGAIN_SECONDS,
    READ_QUEUES,
    REGISTRATION_SECONDS,
    WRITE_QUEUES,
    TopicConfig,
    put_topic,
    topic_configs,
    until_created,
    view_queues,
)
from broker.command_error import CommandError
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.topics_and_groups import MESSAGE_TYPE, PERM_WRITE, RETENTION_MS

_COPIED = ("perm", "order", "topicSysFlag", READ_QUEUES, WRITE_QUEUES, MESSAGE_TYPE, RETENTION_MS)


@dataclass(frozen=True, slots=True)
class Place:
    """The topic in one broker group; ``config`` is empty if the group does not have it."""

    group: str
    address: str
    config: TopicConfig

    @property
    def writable(self) -> bool:
        return bool(int(self.config.get("perm", 0)) & PERM_WRITE)


@dataclass(frozen=True, slots=True)
class Remaining:
    """The messages at the source that consumers have not read."""

    messages: int
    lags: Mapping[str, int]
    """The lag by consumer group, for groups whose offsets the broker has."""
    broadcast: tuple[str, ...]
    """Groups whose members keep their offsets themselves."""

    @property
    def drained(self) -> bool:
        """Whether each group has consumed all messages, as far as the broker knows."""
        return not any(self.lags.values())


@dataclass(frozen=True, slots=True)
class Waiting:
    """Scheduled messages and half messages at the source. They would be lost with the topic."""

    messages: int
    """The messages of the topic."""
    unread: int
    """Messages whose topic is unknown, because too many wait, or because the broker has an earlier
    program."""


class TopicMove:
    """One move. Raises :class:`~broker.command_error.CommandError`."""

    def __init__(self, topic: str, source: str, target: str, *, in_order: bool | None) -> None:
        """``in_order``: None: by the topic's order setting."""
        self._topic = topic
        self._source = source
        self._target = target
        self._in_order = in_order

    async def places(self, admin: AdminClient) -> tuple[Place, Place]:
        """The topic at the source and at the target."""
        if self._source == self._target:
            raise CommandError(f"{self._topic} cannot be moved from {self._source} to itself")
        found = []
        for group in (self._source, self._target):
            (address,) = (await leaders_by_group(admin, group)).values()
            config = (await topic_configs(admin, self._topic, [address]))[address]
            found.append(Place(group, address, config))
        source, target = found
        if not source.config and not target.config:
            raise CommandError(f"neither {self._source} nor {self._target} has {self._topic}")
        return source, target

    def keeps_order(self, source: Place, target: Place) -> bool:
        """Whether the target waits until the source is empty."""
        if self._in_order is not None:
            return self._in_order
        return bool((source.config or target.config).get("order"))

    async def look(self, admin: AdminClient) -> tuple[Place, Place, Remaining]:
        """The topic at source and target, and the rest at the source. Also raises if the order
        should be kept but cannot be, because the target takes messages before the source is
        read."""
        source, target = await self.places(admin)
        remaining = await self.remaining(admin)
        both = target.writable and (source.writable or not remaining.drained)
        if both and self.keeps_order(source, target):
            raise CommandError(
                f"{target.group} takes messages of {self._topic} already, before {source.group} is "
                "closed and read: the order cannot be kept; --no-in-order moves it without order"
            )
        return source, target, remaining

    async def open_target(self, admin: AdminClient) -> bool:
        """Creates the topic at the target with the settings of the source, unless it exists. It
        takes messages at once, unless the order is kept. Returns whether it was created."""
        source, target = await self.places(admin)
        if target.config:
            return False
        config = {name: source.config[name] for name in _COPIED if source.config.get(name)}
        perm = int(config.get("perm", 0))
        in_order = self.keeps_order(source, target)
        config["perm"] = perm & ~PERM_WRITE if in_order else perm | PERM_WRITE
        await put_topic(admin, target.address, self._topic, {}, config)
        await until_created(admin, self._topic, [target.address])
        return True

    async def close_source(self, admin: AdminClient) -> bool:
        """Makes the source take no more messages. Returns whether it took messages until now."""
        source, _ = await self.places(admin)
        if not source.writable:
            return False
        await self._put_perm(admin, source, int(source.config["perm"]) & ~PERM_WRITE)
        return True

    async def remaining(self, admin: AdminClient) -> Remaining:
        """The messages that consumers have still to read at the source."""
        source, _ = await self.places(admin)
        if not source.config:
            return Remaining(0, {}, ())
        lags = await lags_in(admin, source.address, self._topic)
        queues = await view_queues(admin, self._topic)
        held = (each.max_offset - each.min_offset for each in queues if each.broker == source.group)
        return Remaining(
            sum(held),
            {group: lag for group, lag in lags.items() if lag is not None},
            tuple(group for group, lag in lags.items() if lag is None),
        )

    async def waiting(self, admin: AdminClient) -> Waiting:
        """The messages at the source that no consumer can see yet."""
        source, _ = await self.places(admin)
        if not source.config:
            return Waiting(0, 0)
        ext = {"topic": self._topic}
        try:
            answer = await admin.ask(source.address, RequestCode.GET_WAITING_OF_TOPIC, ext)
        except RefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            told = await view_node(admin, source.address)
            return Waiting(0, int(told.get("undeliveredMessages", 0)))
        return Waiting(**document_of(answer))

    async def finish(self, admin: AdminClient) -> None:
        """Makes the target take messages, and deletes the topic at the source."""
        source, target = await self.places(admin)
        if not target.config:
            raise CommandError(f"{self._topic} is not at {self._target}: it was deleted meanwhile")
        if not target.writable:
            await self._put_perm(admin, target, int(target.config["perm"]) | PERM_WRITE)
        if source.config:
            # Only at this broker: NameServers learn of it by its next registration, and keep the
            # registration of the target.
            ext = {"topic": self._topic}
            await admin.ask(source.address, RequestCode.DELETE_TOPIC_IN_BROKER, ext)
            await self._until_left(admin)

    async def _until_left(self, admin: AdminClient) -> None:
        """Waits until the NameServer's route has the source no more."""
        ends_at = asyncio.get_running_loop().time() + REGISTRATION_SECONDS
        while self._source in (await admin.route(self._topic)).masters:
            if asyncio.get_running_loop().time() >= ends_at:
                raise CommandError(
                    f"{self._topic} is moved, but the NameServer still sends clients to "
                    f"{self._source}; is it registered there? (`dledger status`)"
                )
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def _put_perm(self, admin: AdminClient, place: Place, perm: int) -> None:
        await put_topic(admin, place.address, self._topic, place.config, {"perm": perm})
