"""Whether a caller has a permission: a pure function for all ports.

Source: RocketMQ 4.9, ``PlainPermissionManager``. These rules are stricter here:

- Messages that are not named by their topic can be read only by callers that may consume every
  topic.
- System topics with messages of other topics are for admins.
- An address in the white list of an account replaces the signature, but not the permissions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from broker.security.accounts import Account
from broker.security.permissions import Permission
from broker.topics_and_groups import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    UNSENDABLE_TOPICS,
)
from store.quoting import quoted


class Action(Enum):
    """The action of a request on its resource."""

    DESCRIBE = auto()
    """Read about topics, groups and brokers. Every account may. Has no resource."""

    PUBLISH = auto()
    """Store messages in a topic."""

    CONSUME = auto()
    """Get the messages of a topic, or act as a member of a group."""

    CONSUME_ANY = auto()
    """Get a message of any topic by its position in the log. Has no resource."""

    ADMINISTER = auto()
    """Change topics, groups, settings, members or accounts, or reset offsets. Has no resource."""


class Access(NamedTuple):
    """One action on one resource. At most one of ``topic`` and ``group`` is not empty."""

    action: Action
    topic: str = ""
    group: str = ""


DESCRIBE = (Access(Action.DESCRIBE),)
CONSUME_ANY = (Access(Action.CONSUME_ANY),)
ADMINISTER = (Access(Action.ADMINISTER),)


def publish(topic: str) -> Access:
    """Storing in a topic. A retry topic belongs to its group: the members store there."""
    if topic.startswith(RETRY_PREFIX):
        return consume_as(topic.removeprefix(RETRY_PREFIX))
    return Access(Action.PUBLISH, topic=topic)


def consume(topic: str) -> Access:
    """Getting messages of a topic. Retries and dead letters belong to their group."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return consume_as(topic.removeprefix(prefix))
    return Access(Action.CONSUME, topic=topic)


def consume_as(group: str) -> Access:
    """Acting as a member of a group."""
    return Access(Action.CONSUME, group=group)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. ``trusted``: may do everything, by the global white list or as a
    server of the cluster."""

    name: str
    account: Account | None = None
    trusted: bool = False


_PUB = (Permission.PUB, Permission.ANY)
_SUB = (Permission.SUB, Permission.ANY)
"""The permissions that include this one. A look-up takes a tenth of the time of an operation on
flags."""

ANONYMOUS = Caller("nobody")

EVERYBODY = Caller("everybody", trusted=True)
"""The caller if access control is not enforced."""


def authorize(caller: Caller, access: Access) -> str:
    """The reason why the caller lacks the permission, for the caller and the log; empty if it has
    it."""
    action, topic, group = access
    if caller.trusted:
        return ""
    account = caller.account
    if account is None:
        return "the request names no account"
    if account.admin or action is Action.DESCRIBE:
        return ""
    if action is Action.CONSUME_ANY:
        if account.default_topic in _SUB and all(each in _SUB for each in account.topics.values()):
            return ""
        why = "may not consume every topic, which reading by a position in the log requires"
    elif group:
        if account.group_permission(group) in _SUB:
            return ""
        why = f"has no permission SUB for the group {quoted(group)}"
    elif topic and topic not in UNSENDABLE_TOPICS:
        publishes = action is Action.PUBLISH
        if account.topic_permission(topic) in (_PUB if publishes else _SUB):
            return ""
        needed = "PUB" if publishes else "SUB"
        why = f"has no permission {needed} for the topic {quoted(topic)}"
    else:
        why = "is not an admin, which this request requires"
    return f"{quoted(account.access_key)} {why}"
