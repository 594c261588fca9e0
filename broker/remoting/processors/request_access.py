"""The permissions that each request code needs: one row for each handler in ``processor_table.py``.

A row reads the same fields of the frame as the handler, and gives the actions that the caller must
be allowed. Source: RocketMQ 4.9, ``PlainAccessResource.parse`` and ``Permission.ADMIN_CODE``; codes
that RocketMQ leaves open, such as offsets and locks, need a permission for the group here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.limits import BODY_LIMITS
from broker.remoting.access_guard import Classifier
from broker.remoting.processors.json_body import json_object, objects_of, text_of
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.security.authorize import (
    ADMINISTER,
    CONSUME_ANY,
    DESCRIBE,
    Access,
    consume,
    consume_as,
    publish,
)


def _every(needed: tuple[Access, ...]) -> Classifier:
    """The same for every request."""
    return lambda _request: needed


def _send(request: Frame) -> Iterable[Access]:
    return (publish(ext_str(request, "topic")),)


def _send_short(request: Frame) -> Iterable[Access]:
    return (publish(ext_str(request, "b")),)


def _send_back(request: Frame) -> Iterable[Access]:
    """The message is named by its position. If the request has the topic, the handler compares
    it."""
    group = ext_str(request, "group")
    topic = ext_str(request, "originTopic", "")
    return (consume_as(group), consume(topic) if topic else CONSUME_ANY[0])


def _pull(request: Frame) -> Iterable[Access]:
    return (consume(ext_str(request, "topic")), consume_as(ext_str(request, "consumerGroup")))


def _consume_topic(request: Frame) -> Iterable[Access]:
    return (consume(ext_str(request, "topic")),)


def _group(request: Frame) -> Iterable[Access]:
    return (consume_as(ext_str(request, "consumerGroup")),)


def _unregister(request: Frame) -> Iterable[Access]:
    group = ext_str(request, "consumerGroup", "")
    return (consume_as(group),) if group else DESCRIBE


def _heartbeat(request: Frame) -> Iterable[Access]:
    """The group and topics of each consumer. Producers need no permission here."""
    body = json_object(request, "the heartbeat")
    needed = list(DESCRIBE)
    for each in objects_of(body, "consumerDataSet"):
        needed.append(consume_as(text_of(each, "groupName")))
        needed += [
            consume(text_of(topic, "topic")) for topic in objects_of(each, "subscriptionDataSet")
        ]
    return needed


def _locks(request: Frame) -> Iterable[Access]:
    body = json_object(request, "the request for locks", BODY_LIMITS.lock_marks)
    return (consume_as(text_of(body, "consumerGroup")),)


def _ack_batch(request: Frame) -> Iterable[Access]:
    """Each acknowledgement names its group and topic."""
    body = json_object(request, "the acknowledgements")
    needed: list[Access] = []
    for each in objects_of(body, "acks"):
        needed += (consume(text_of(each, "t")), consume_as(text_of(each, "c")))
    return needed


def _consume_directly(request: Frame) -> Iterable[Access]:
    return (consume_as(ext_str(request, "consumerGroup")), *CONSUME_ANY)


_DESCRIBE = _every(DESCRIBE)
_ADMINISTER = _every(ADMINISTER)

BROKER_ACCESS: Mapping[int, Classifier] = {
    RequestCode.SEND_MESSAGE: _send,
    RequestCode.SEND_MESSAGE_V2: _send_short,
    RequestCode.SEND_BATCH_MESSAGE: _send_short,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.POP_MESSAGE: _pull,
    RequestCode.ACK_MESSAGE: _pull,
    RequestCode.BATCH_ACK_MESSAGE: _ack_batch,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pull,
    RequestCode.NOTIFICATION: _pull,
    RequestCode.QUERY_CONSUMER_OFFSET: _pull,
    RequestCode.UPDATE_CONSUMER_OFFSET: _pull,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _DESCRIBE,
    RequestCode.GET_MAX_OFFSET: _DESCRIBE,
    RequestCode.GET_MIN_OFFSET: _DESCRIBE,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _DESCRIBE,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.CHECK_CLIENT_CONFIG: _DESCRIBE,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _group,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _DESCRIBE,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _DESCRIBE,
    RequestCode.GET_ALL_PRODUCER_INFO: _DESCRIBE,
    RequestCode.END_TRANSACTION: _DESCRIBE,
    RequestCode.RECALL_MESSAGE: _send,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.QUERY_CONSUME_TIME_SPAN: _DESCRIBE,
    RequestCode.GET_BROKER_CONSUME_STATS: _DESCRIBE,
    RequestCode.QUERY_CONSUME_QUEUE: _consume_topic,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _DESCRIBE,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _DESCRIBE,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _DESCRIBE,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _group,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    RequestCode.SEND_REPLY_MESSAGE: _DESCRIBE,
    RequestCode.SEND_REPLY_MESSAGE_V2: _DESCRIBE,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _ADMINISTER,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _ADMINISTER,
    RequestCode.DELETE_TOPIC_IN_BROKER: _ADMINISTER,
    RequestCode.GET_ALL_TOPIC_CONFIG: _DESCRIBE,
    RequestCode.GET_TOPIC_CONFIG: _DESCRIBE,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _DESCRIBE,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _ADMINISTER,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _ADMINISTER,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _DESCRIBE,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _DESCRIBE,
    RequestCode.VIEW_MESSAGE_BY_ID: _every(CONSUME_ANY),
    RequestCode.QUERY_MESSAGE: _consume_topic,
    RequestCode.GET_CONSUMER_GROUPS: _DESCRIBE,
    RequestCode.GET_GROUP_MEMBERS: _DESCRIBE,
    RequestCode.GET_WAITING_OF_TOPIC: _DESCRIBE,
    RequestCode.CHANGE_GROUP_MEMBERS: _ADMINISTER,
    RequestCode.TRANSFER_LEADERSHIP: _ADMINISTER,
    RequestCode.FORWARD_GRPC: _ADMINISTER,  # as the next one but one
    RequestCode.CANCEL_GRPC: _ADMINISTER,
    RequestCode.FORWARD: _ADMINISTER,  # signed by the cluster; its content is checked separately
    RequestCode.PASS_TO_CLIENT: _ADMINISTER,  # signed by the cluster; the sender has checked it
    RequestCode.GET_BROKER_RUNTIME_INFO: _DESCRIBE,
    RequestCode.VIEW_BROKER_STATS_DATA: _DESCRIBE,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _ADMINISTER,
    RequestCode.CLEAN_UNUSED_TOPIC: _ADMINISTER,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _ADMINISTER,
    RequestCode.GET_BROKER_CONFIG: _DESCRIBE,
    RequestCode.UPDATE_BROKER_CONFIG: _ADMINISTER,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _DESCRIBE,
    RequestCode.GET_TOPIC_STATS_INFO: _DESCRIBE,
    RequestCode.GET_CONSUME_STATS: _DESCRIBE,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _DESCRIBE,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: _ADMINISTER,
    RequestCode.DELETE_ACL_CONFIG: _ADMINISTER,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: _ADMINISTER,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _ADMINISTER,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: _ADMINISTER,
}
"""By request code."""

ALWAYS_ENFORCED = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    )
)
"""Refused even if access control is permissive: anybody could become an admin by them."""
