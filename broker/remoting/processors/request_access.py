"""The permissions that requests need, for the rows of ``processor_table.py``.

Each function reads the same fields of the frame as the handler, and gives the actions that the
caller must be allowed. Source: RocketMQ 4.9, ``PlainAccessResource.parse`` and
``Permission.ADMIN_CODE``; codes that RocketMQ leaves open, such as offsets and locks, need a
permission for the group here.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.limits import BODY_LIMITS
from broker.remoting.access_guard import Classifier
from broker.remoting.processors.json_body import json_object, objects_of, text_of
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


def send(request: Frame) -> Iterable[Access]:
    return (publish(ext_str(request, "topic")),)


def send_short(request: Frame) -> Iterable[Access]:
    return (publish(ext_str(request, "b")),)


def send_back(request: Frame) -> Iterable[Access]:
    """The message is named by its position. If the request has the topic, the handler compares
    it."""
    group = ext_str(request, "group")
    topic = ext_str(request, "originTopic", "")
    return (consume_as(group), consume(topic) if topic else CONSUME_ANY[0])


def pull(request: Frame) -> Iterable[Access]:
    return (consume(ext_str(request, "topic")), consume_as(ext_str(request, "consumerGroup")))


def pull_or_browse(request: Frame) -> Iterable[Access]:
    """Without a group nothing is committed or counted for one, so the topic alone is needed."""
    return pull(request) if ext_str(request, "consumerGroup") else consume_topic(request)


def consume_topic(request: Frame) -> Iterable[Access]:
    return (consume(ext_str(request, "topic")),)


def group(request: Frame) -> Iterable[Access]:
    return (consume_as(ext_str(request, "consumerGroup")),)


def unregister(request: Frame) -> Iterable[Access]:
    group = ext_str(request, "consumerGroup", "")
    return (consume_as(group),) if group else DESCRIBE


def heartbeat(request: Frame) -> Iterable[Access]:
    """The group and topics of each consumer. Producers need no permission here."""
    body = json_object(request, "the heartbeat")
    needed = list(DESCRIBE)
    for each in objects_of(body, "consumerDataSet"):
        needed.append(consume_as(text_of(each, "groupName")))
        needed += [
            consume(text_of(topic, "topic")) for topic in objects_of(each, "subscriptionDataSet")
        ]
    return needed


def locks(request: Frame) -> Iterable[Access]:
    body = json_object(request, "the request for locks", BODY_LIMITS.lock_marks)
    return (consume_as(text_of(body, "consumerGroup")),)


def ack_batch(request: Frame) -> Iterable[Access]:
    """Each acknowledgement names its group and topic."""
    body = json_object(request, "the acknowledgements")
    needed: list[Access] = []
    for each in objects_of(body, "acks"):
        needed += (consume(text_of(each, "t")), consume_as(text_of(each, "c")))
    return needed


def consume_directly(request: Frame) -> Iterable[Access]:
    return (consume_as(ext_str(request, "consumerGroup")), *CONSUME_ANY)


describe = _every(DESCRIBE)
administer = _every(ADMINISTER)
consume_any = _every(CONSUME_ANY)
