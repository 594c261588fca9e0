"""Moving a topic from one broker group to another, as RocketMQ's operators do it.

The target gets the topic. The source takes no more messages, so producers send to the target.
Consumers read what is left at the source, and the topic is deleted there. Each step looks first
whether it is done already, so a move that was cut off goes on when it is started again.

With ``in_order`` the target takes messages only once the source is empty. Meanwhile nobody can send
to the topic, and no message is consumed before an earlier one. Whatever a move began with, it ends
with a target that takes messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from broker.cli.terminal.command_error import CommandError
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
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.topics_and_groups import MESSAGE_TYPE, PERM_WRITE, RETENTION_MS

_COPIED = ("perm", "order", "topicSysFlag", READ_QUEUES, WRITE_QUEUES, MESSAGE_TYPE, RETENTION_MS)


@dataclass(frozen=True, slots=True)
class Place:
    """The topic in one broker group; ``config`` is empty if it is not there."""

    group: str
    address: str
    config: TopicConfig

    @property
    def writable(self) -> bool:
        return bool(int(self.config.get("perm", 0)) & PERM_WRITE)


@dataclass(frozen=True, slots=True)
class Remaining:
    """What the source still holds for consumers."""

    messages: int
    lags: Mapping[str, int]
    """By group, of those that the broker knows the place of."""
    broadcast: tuple[str, ...]
    """Groups whose members keep their places themselves."""

    @property
    def drained(self) -> bool:
        """Whether each group has consumed all there is, as far as the broker knows."""
        return not any(self.lags.values())


@dataclass(frozen=True, slots=True)
class Waiting:
    """Scheduled messages and those of open transactions at the source. They would be lost with the
    topic."""

    messages: int
    """Those of the topic."""
    unread: int
    """Others of which it is not known of which topic they are: too many wait there, or it has an
    earlier program."""


class TopicMove:
    """One move. Raises :class:`~broker.cli.terminal.command_error.CommandError`."""

    def __init__(self, topic: str, source: str, target: str, *, in_order: bool | None) -> None:
        """``in_order``: None does what the topic says."""
        self._topic = topic
        self._source = source
        self._target = target
        self._in_order = in_order

    async def places(self, admin: AdminClient) -> tuple[Place, Place]:
        """Where the topic is: at the source, and at the target."""
        if self._source == self._target:
            raise CommandError(f"{self._topic} is to be moved from {self._source} to itself")
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
        """Where the topic is, and what is left to read at the source. Also raises if the order is
        to be kept and cannot be: the target took messages before the source was read."""
        source, target = await self.places(admin)
        remaining = await self.remaining(admin)
        both = target.writable and (source.writable or not remaining.drained)
        if both and self.keeps_order(source, target):
            raise CommandError(
                f"{target.group} takes messages of {self._topic} already, before {source.group} is "
                "closed and read: the order cannot hold; --no-in-order moves it all the same"
            )
        return source, target, remaining

    async def open_target(self, admin: AdminClient) -> bool:
        """Makes the topic at the target as it is at the source, unless it is there. It takes
        messages, but not yet if the order is kept. Returns whether it was made."""
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
        """The source takes no more messages. Returns whether it did until now."""
        source, _ = await self.places(admin)
        if not source.writable:
            return False
        await self._put_perm(admin, source, int(source.config["perm"]) & ~PERM_WRITE)
        return True

    async def remaining(self, admin: AdminClient) -> Remaining:
        """What consumers have still to read at the source."""
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
        """What no consumer can see yet at the source."""
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
        """The target takes messages, and the source has the topic no more."""
        source, target = await self.places(admin)
        if not target.config:
            raise CommandError(f"{self._topic} is not at {self._target}: it was deleted meanwhile")
        if not target.writable:
            await self._put_perm(admin, target, int(target.config["perm"]) | PERM_WRITE)
        if source.config:
            # At this broker alone: NameServers learn of it by its next registration, and keep what
            # they know of the target.
            ext = {"topic": self._topic}
            await admin.ask(source.address, RequestCode.DELETE_TOPIC_IN_BROKER, ext)
            await self._until_left(admin)

    async def _until_left(self, admin: AdminClient) -> None:
        """The NameServer sends no client to the source any more."""
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
