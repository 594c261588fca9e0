"""Topics and groups: 17, 21, 200, 201, 207, 215, 305, 351, 352.

Changes are commands, answered once they are committed and applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from broker.context import BrokerContext
from broker.errors import unknown_topic
from broker.ingest.state_quota import check_group_quota, check_topic_quota
from broker.limits import STATE
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_when_done
from broker.remoting.processors.json_body import json_object
from broker.remoting.processors.topic_attributes import changed_attributes, retention_in
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import FieldError, RequestError
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from broker.state.commands import Command, DeleteGroup, DeleteTopic, PutGroup, PutTopic
from broker.topics_and_groups import (
    MESSAGE_TYPE,
    MESSAGE_TYPE_MASK,
    PERM_MAX,
    TOPIC_SIZE_MAX,
    GroupConfig,
    TopicConfig,
    check_group_name,
    check_topic_name,
    is_reserved,
    message_type_flag,
    retry_topic,
)
from store.quoting import quoted

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
"""The values of ``topicFilterType``. It has no effect: a message has one text of tags."""

_GROUP_FIELDS: Mapping[str, str] = {
    "brokerId": "broker_id",
    "consumeBroadcastEnable": "consume_broadcast_enable",
    "consumeEnable": "consume_enable",
    "consumeFromMinEnable": "consume_from_min_enable",
    "notifyConsumerIdsChangedEnable": "notify_ids_changed",
    "retryMaxTimes": "retry_max_times",
    "retryQueueNums": "retry_queues",
    "whichBrokerWhenConsumeSlowly": "which_broker_when_slow",
}


class TopicProcessor:
    """Shows and changes topics and groups."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    # --- topics

    def create_topic(self, connection: Connection, request: Frame) -> None:
        """Code 17: creates a topic or replaces its settings.

        Of RocketMQ 5's ``attributes``, such as ``+message.type=FIFO``, the message type and the
        retention count. An attribute that the request does not name stays.
        """
        name = ext_str(request, "topic")
        filter_type = ext_str(request, "topicFilterType", FILTER_TYPES[0])
        if filter_type not in FILTER_TYPES:
            raise FieldError(
                f"topicFilterType {quoted(filter_type)} is none of {', '.join(FILTER_TYPES)}"
            )
        batcher = self._context.batcher
        attributes = changed_attributes(ext_str(request, "attributes", ""))
        known = batcher.topic(name)
        topic = TopicConfig(
            name,
            ext_int(request, "readQueueNums", minimum=1, maximum=STATE.queues_max),
            ext_int(request, "writeQueueNums", minimum=1, maximum=STATE.queues_max),
            ext_int(request, "perm", minimum=0, maximum=PERM_MAX),
            _typed_flag(
                ext_int(request, "topicSysFlag", 0, minimum=0, maximum=INT32_MAX),
                attributes,
                known,
            ),
            ext_bool(request, "order", False),
        )
        self._refuse_system_topic(name)
        if is_reserved(name):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the prefix of {name} is reserved for system topics"
            )
        check_topic_quota(batcher, topic, batcher.totals())
        commands: list[Command] = [PutTopic.of(topic, self._context.wall_clock())]
        retention_ms = retention_in(attributes)
        if retention_ms is not None and retention_ms != (known.retention_ms if known else 0):
            commands.append(self._context.topic_retention.command(name, retention_ms))
        self._commit(connection, request, *commands)

    def delete_topic(self, connection: Connection, request: Frame) -> None:
        """Code 215. Deleting a missing topic succeeds, as with RocketMQ."""
        name = ext_str(request, "topic")
        self._refuse_system_topic(name)
        self._commit(connection, request, DeleteTopic(name, self._context.wall_clock()))

    def all_topics(self, connection: Connection, request: Frame) -> None:
        """Code 21."""
        state = self._context.machine.state
        body = {
            "dataVersion": state.topics_version.as_json(),
            "topicConfigTable": {
                name: topic.as_json() for name, topic in sorted(state.topics.items())
            },
        }
        connection.respond(request, body=(encode_json(body),))

    def topic_config(self, connection: Connection, request: Frame) -> None:
        """Code 351."""
        name = ext_str(request, "topic")
        topic = self._context.machine.state.topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        connection.respond(request, body=(encode_json(topic.as_json()),))

    def system_topics(self, connection: Connection, request: Frame) -> None:
        """Code 305."""
        body = {
            "brokerAddr": str(self._context.config.own.address),
            "topicList": self._context.machine.state.system_names,
        }
        connection.respond(request, body=(encode_json(body),))

    def _refuse_system_topic(self, name: str) -> None:
        if name in self._context.machine.state.system_names:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{name} is a system topic")
        check_topic_name(name)

    # --- groups

    def create_group(self, connection: Connection, request: Frame) -> None:
        """Code 200: creates a group or replaces its settings. Apache's tools look a group up by its
        retry topic. So that topic is created too, before the first heartbeat."""
        group = _group_config(request)
        batcher, now_ms = self._context.batcher, self._context.wall_clock()
        if batcher.group(group.name) is None:
            check_group_quota(batcher.totals(), group.name)
        commands: list[Command] = [PutGroup.of(group, now_ms)]
        topic = retry_topic(group.name)
        if batcher.topic(topic) is None and len(topic) <= TOPIC_SIZE_MAX:
            queues = max(group.retry_queues, 1)
            retries = TopicConfig(topic, queues, queues)
            check_topic_quota(batcher, retries, batcher.totals())
            commands.append(PutTopic.of(retries, now_ms))
        self._commit(connection, request, *commands)

    def delete_group(self, connection: Connection, request: Frame) -> None:
        """Code 207. 4.9 and 5.x have different names for the field that deletes the offsets too.

        The retry topic is deleted with the offsets: its messages are for this group alone. Dead
        letters stay, because nobody has consumed them, until their topic is deleted.
        """
        name = ext_str(request, "groupName")
        with_offsets = ext_bool(request, "removeOffset", False) or ext_bool(
            request, "cleanOffset", False
        )
        now_ms = self._context.wall_clock()
        commands: list[Command] = [DeleteGroup(name, with_offsets, now_ms)]
        retries = retry_topic(name)
        if with_offsets and self._context.batcher.topic(retries) is not None:
            commands.append(DeleteTopic(retries, now_ms))
        self._commit(connection, request, *commands)

    def all_groups(self, connection: Connection, request: Frame) -> None:
        """Code 201."""
        state = self._context.machine.state
        body = {
            "dataVersion": state.groups_version.as_json(),
            "subscriptionGroupTable": {
                name: group.as_json() for name, group in sorted(state.groups.items())
            },
        }
        connection.respond(request, body=(encode_json(body),))

    def group_config(self, connection: Connection, request: Frame) -> None:
        """Code 352."""
        name = ext_str(request, "group")
        group = self._context.machine.state.groups.get(name)
        if group is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the group {name} does not exist"
            )
        connection.respond(request, body=(encode_json(group.as_json()),))

    def _commit(self, connection: Connection, request: Frame, *commands: Command) -> None:
        self._context.batcher.add_in_one_entry((), commands, respond_when_done(connection, request))


def _group_config(request: Frame) -> GroupConfig:
    fields = json_object(request, "the group")
    if type(fields.get("groupName")) is not str:
        raise FieldError("the body is not the JSON of a group with a groupName")
    group = GroupConfig(fields["groupName"])
    check_group_name(group.name)
    for name, attribute in _GROUP_FIELDS.items():
        value = fields.get(name)
        if value is None:
            continue
        usual = getattr(group, attribute)
        if type(value) is not type(usual):
            raise FieldError(f"{name} is not {'a boolean' if usual is True else 'an integer'}")
        maximum = STATE.retry_queues_max if name == "retryQueueNums" else INT32_MAX
        if type(value) is int and not 0 <= value <= maximum:
            raise FieldError(f"{name} is not between 0 and {maximum}: {value}")
        group = replace(group, **{attribute: value})
    return group


def _typed_flag(
    sys_flag: int, attributes: Mapping[str, str | None], known: TopicConfig | None
) -> int:
    """The system flag with the message type of ``attributes``, or else the present one of the
    topic.

    Raises :class:`~broker.errors.RefusedError`.
    """
    if MESSAGE_TYPE not in attributes:
        typed = 0 if known is None else known.sys_flag & MESSAGE_TYPE_MASK
    else:
        named = attributes[MESSAGE_TYPE]
        typed = 0 if named is None else message_type_flag(named)
    return sys_flag & ~MESSAGE_TYPE_MASK | typed
