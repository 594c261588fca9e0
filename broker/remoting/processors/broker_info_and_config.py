"""Requests of operators and tools: 25, 26, 28, 43, 202, and the project's own 9010.

9010  GET_WAITING_OF_TOPIC: ``topic``; a JSON body ``{"messages", "unread"}``
      (:class:`~broker.admin.waiting_of_topic.WaitingOfTopic`)

Apache's tools write some maps with JSON objects as keys, which only their own parser accepts. The
answers here do the same, because those tools need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from broker.admin.broker_properties import broker_properties
from broker.admin.runtime_info import runtime_info
from broker.admin.topic_contents import queue_ranges
from broker.admin.waiting_messages import undelivered_count
from broker.admin.waiting_of_topic import waiting_of_topic
from broker.config.dynamic_settings import SettingError, changed_settings
from broker.context import BrokerContext
from broker.delivery.store_times import Place, store_times
from broker.errors import QuotaExceededError, unknown_topic
from broker.limits import BODY_LIMITS, QUOTAS
from broker.quotas.quota import PREFIX
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_when_done
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json, object_map
from broker.state.commands import PutSetting


class BrokerInfoProcessor:
    """Describes a broker and its groups, and changes its settings."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._earliest: tuple[int, int] | None = None
        """A cache: the position up to which the log had expired, and the store time of its first
        message."""
        self._looking: asyncio.Task[None] | None = None

    def runtime_info(self, connection: Connection, request: Frame) -> None:
        """Code 28."""
        context = self._context
        expired = context.machine.expired_position
        if self._earliest is not None and self._earliest[0] == expired:
            self._answer_info(connection, request, self._earliest[1])
            return
        oldest = context.machine.oldest_message()
        if oldest is None:
            # Tools subtract it from now. RocketMQ's -1 would show messages kept since 1970.
            self._answer_info(connection, request, context.wall_clock())
            return

        def found(times: Mapping[Place, int]) -> None:
            self._earliest = (expired, times[oldest])
            self._answer_info(connection, request, times[oldest])

        store_times(context.loop, context.lookup, [oldest], found)

    def _answer_info(self, connection: Connection, request: Frame, earliest_ms: int) -> None:
        info = runtime_info(self._context) | {"earliestMessageTimeStamp": str(earliest_ms)}
        connection.respond(request, body=(encode_json({"table": info}),))

    def broker_config(self, connection: Connection, request: Frame) -> None:
        """Code 26: Java properties text."""
        settings = broker_properties(self._context)
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        version = encode_json(self._context.machine.state.topics_version.as_json()).decode()
        connection.respond(request, ext={"version": version}, body=(text.encode(),))

    def update_config(self, connection: Connection, request: Frame) -> None:
        """Code 25: Java properties text. All of it is checked before any of it is changed
        (:mod:`broker.config.dynamic_settings`)."""
        batcher = self._context.batcher
        batcher.check_serving()
        if len(request.body) > BODY_LIMITS.settings_size:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(request.body)} bytes of settings, at most {BODY_LIMITS.settings_size} are "
                "allowed",
            )
        try:
            changed = changed_settings(request.body)
        except SettingError as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        self._check_quota_count(changed)
        commands = [PutSetting(name, value) for name, value in changed.items()]
        batcher.add_in_one_entry((), commands, respond_when_done(connection, request))

    def _check_quota_count(self, changed: Iterable[str]) -> None:
        known = self._context.machine.state.settings
        quotas = {name for name in (*known, *changed) if name.startswith(PREFIX)}
        if len(quotas) > QUOTAS.quotas_max and not quotas <= known.keys():
            raise QuotaExceededError(
                f"there are {len(quotas)} quotas with these, at most {QUOTAS.quotas_max} are "
                "allowed"
            )

    def all_consumer_offsets(self, connection: Connection, request: Frame) -> None:
        """Code 43: the contents of Apache's consumerOffset.json, queue ids as bare keys."""
        table = {
            f"{topic}@{group}": dict(sorted(queues.items()))
            for (group, topic), queues in sorted(self._context.machine.state.offsets.items())
        }
        connection.respond(request, body=(encode_json({"offsetTable": table}, bare_keys=True),))

    def topic_stats(self, connection: Connection, request: Frame) -> None:
        """Code 202."""
        name = ext_str(request, "topic")
        topic = self._context.machine.state.topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        queues = queue_ranges(self._context.machine, topic)
        newest = {queue_id: (name, queue_id, end - 1) for queue_id, (_, end) in queues.items()}

        def found(times: Mapping[Place, int]) -> None:
            stats = [
                (
                    (name, queue_id),
                    {
                        "lastUpdateTimestamp": times[newest[queue_id]],
                        "maxOffset": end,
                        "minOffset": first,
                    },
                )
                for queue_id, (first, end) in queues.items()
            ]
            connection.respond(request, body=(b'{"offsetTable":%b}' % self._by_queue(stats),))

        store_times(self._context.loop, self._context.lookup, list(newest.values()), found)

    def waiting_of_topic(self, connection: Connection, request: Frame) -> None:
        """Code 9010. One at a time: each may read many messages."""
        if self._looking is not None and not self._looking.done():
            raise RequestError(ResponseCode.SYSTEM_BUSY, "another such request is in progress")
        context, topic = self._context, ext_str(request, "topic")

        async def look() -> None:
            found = await waiting_of_topic(context, topic, undelivered_count(context))
            connection.respond(request, body=(encode_json(found._asdict()),))

        self._looking = context.loop.create_task(look())

    def _by_queue(self, stats: Iterable[tuple[tuple[str, int], Mapping[str, int]]]) -> bytes:
        broker = self._context.config.group
        return object_map(
            ({"brokerName": broker, "queueId": queue, "topic": topic}, entry)
            for (topic, queue), entry in stats
        )
