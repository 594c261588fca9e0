"""Consumer groups: the answers of all leaders (request 9004), merged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import zip_longest
from typing import Any

from broker.cluster_admin.admin_client import AdminClient, document_of
from broker.cluster_admin.broker_names import unregistered
from broker.command_error import CommandError
from broker.remoting.protocol.codes import RequestCode


@dataclass(frozen=True, slots=True)
class ProgressView:
    """The progress of a group in one queue; it continues at ``offset``."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    committed: int | None
    offset: int
    lag: int
    lag_ms: int | None = None
    """How long the next message has waited; None if unknown, as with brokers of 0.1.0."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupView:
    """One consumer group on all broker groups that know it."""

    name: str
    masters: dict[str, str]
    """The leaders that know it, by broker name."""
    members: list[str]
    queues: list[ProgressView]
    broadcast: list[str]
    """Topics whose offsets the members keep themselves."""

    @property
    def lag(self) -> int:
        """The number of messages that the group has still to consume, as far as the brokers
        know."""
        return sum(queue.lag for queue in self.queues)

    @property
    def lag_ms(self) -> int | None:
        """How long the oldest of them has waited; None if unknown."""
        if not self.lag:
            return 0
        return max((ms for each in self.queues if (ms := each.lag_ms) is not None), default=None)

    def offsets(self, topic: str) -> dict[tuple[str, int], int]:
        """The offset at which the group continues, by broker group and queue."""
        return {
            (queue.broker, queue.queue_id): queue.offset
            for queue in self.queues
            if queue.topic == topic
        }


class UnknownGroupError(CommandError):
    """No broker knows the group."""

    def __init__(self, name: str, known: Iterable[str], hint: str = "") -> None:
        similar = get_close_matches(name, known)
        meant = f"; is it {' or '.join(similar)}?" if similar else ""
        super().__init__(
            f"no broker knows the group {name}{meant} (`dledger group list` shows all groups{hint})"
        )


async def group_names(admin: AdminClient) -> list[str]:
    """The consumer groups of all brokers, in order."""
    found = await _ask(admin, await admin.masters(), {})
    return sorted({group["group"] for groups in found.values() for group in groups})


async def lags_in(admin: AdminClient, address: str, topic: str) -> dict[str, int | None]:
    """The lag of each consumer group in a topic on one broker group, by its leader; None for a
    group whose members keep their offsets themselves."""
    ext = {"topic": topic}
    answer = await admin.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ext)
    lags: dict[str, int | None] = {}
    for name in document_of(answer)["groupList"]:
        found = await _ask(admin, {"": address}, {"group": name, **ext})
        for each in (each for group in found[""] for each in group["topics"]):
            lags[name] = each["lag"]
    return lags


async def find_group(admin: AdminClient, name: str, *, hint: str = "") -> ConsumerGroupView:
    """One group. Raises :class:`UnknownGroupError`; ``hint`` is added to its text."""
    masters = await admin.masters()
    answers = await _ask(admin, masters, {"group": name})
    found = {broker: groups[0] for broker, groups in answers.items() if groups}
    if not found:
        if gone := await admin.unregistered():
            hint += f"; {unregistered(gone)}"
        raise UnknownGroupError(name, await group_names(admin), hint)
    topics = [(broker, topic) for broker, group in found.items() for topic in group["topics"]]
    # A group that consumes a topic on one broker group consumes it on the others, too.
    for wanted in sorted({topic["topic"] for _, topic in topics if topic["lag"] is not None}):
        without = {
            broker: address
            for broker, address in masters.items()
            if wanted not in {topic["topic"] for of, topic in topics if of == broker}
        }
        more = await _ask(admin, without, {"group": name, "topic": wanted})
        topics += [
            (broker, topic) for broker, (group,) in more.items() for topic in group["topics"]
        ]
    return ConsumerGroupView(
        name,
        masters={broker: masters[broker] for broker in sorted(found)},
        members=sorted({member for group in found.values() for member in group["members"]}),
        queues=sorted(
            (
                ProgressView(topic=topic["topic"], broker=broker, lag_ms=lag_ms, **queue)
                for broker, topic in topics
                for queue, lag_ms in zip_longest(topic["queues"], topic.get("lag_ms", ()))
            ),
            key=lambda queue: (queue.topic, queue.broker, queue.queue_id),
        ),
        broadcast=sorted({topic["topic"] for _, topic in topics if topic["lag"] is None}),
    )


async def _ask(
    admin: AdminClient, masters: Mapping[str, str], ext: Mapping[str, object]
) -> dict[str, list[dict[str, Any]]]:
    """The answers of these leaders, by broker name."""
    answers = await asyncio.gather(
        *(admin.ask(address, RequestCode.GET_CONSUMER_GROUPS, ext) for address in masters.values())
    )
    return {
        broker: document_of(answer)["groups"]
        for broker, answer in zip(masters, answers, strict=True)
    }
