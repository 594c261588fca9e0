"""Whether the replicated state has room for one more topic, group or offset (``StateLimits``).

What is there already, in a state that is older than a limit, stays and may be changed.
"""

from __future__ import annotations

from broker.group_commit.batcher import Batcher
from broker.limits import STATE
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.topics_and_groups import TopicConfig


def check_topic_quota(batcher: Batcher, topic: TopicConfig) -> None:
    """Raises :class:`RequestError`, code 1, where an operator may not create or change it."""
    totals = batcher.totals()
    known = batcher.topic(topic.name)
    if known is None and totals.topics >= STATE.topics_max:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the topic {topic.name} is not created: there are {totals.topics} topics, "
            f"at most {STATE.topics_max} are allowed; delete some first",
        )
    more = topic.queues - (0 if known is None else known.queues)
    # One queue has room where its topic has: older states may have more queues than are allowed,
    # and a group must have its retry topic there, too.
    if more > 0 and topic.queues > 1 and totals.queues + more > STATE.all_queues_max:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the topic {topic.name} cannot have {topic.queues} queues: all topics have "
            f"{totals.queues}, at most {STATE.all_queues_max} are allowed",
        )


def check_auto_created_topic_quota(batcher: Batcher, topic: TopicConfig) -> None:
    """The same for a topic that somebody sends to. RocketMQ's clients try another broker on code
    17, and tell who sends when there is none."""
    totals = batcher.totals()
    if totals.topics >= STATE.automatic_topics_max:
        what = f"{totals.topics} topics, of at most {STATE.automatic_topics_max}"
    elif totals.queues + topic.queues > STATE.automatic_queues_max:
        what = f"{totals.queues} queues of topics, of at most {STATE.automatic_queues_max}"
    else:
        return
    raise RequestError(
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[{topic.name}] not exist, apply first please! It is not created by sending to it: "
        f"there are {what} with which that is done",
    )


def check_group_quota(batcher: Batcher, name: str, *, automatic: bool = False) -> None:
    """Raises :class:`RequestError` where there are too many groups to create another: code 26 for
    a consumer, which shows it, and 1 for an operator."""
    groups = batcher.totals().groups
    groups_max = STATE.automatic_groups_max if automatic else STATE.groups_max
    if groups >= groups_max:
        code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST if automatic else ResponseCode.SYSTEM_ERROR
        by_whom = "by a consumer that uses it" if automatic else ""
        raise RequestError(
            code,
            f"the subscription group {name} is not created {by_whom}".rstrip()
            + f": there are {groups} groups, at most {groups_max} are allowed for that",
        )


def check_offset_quota(
    batcher: Batcher, offsets: int, group: str, topic: str, queue_id: int
) -> None:
    """Raises :class:`RequestError` for the first offset of a group in a queue where there are
    ``offsets`` already, and that is too many."""
    if offsets >= STATE.offsets_max and batcher.offset(group, topic, queue_id) is None:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"no offset is kept for queue {queue_id} of {topic}: there are {offsets} offsets of "
            f"groups, at most {STATE.offsets_max} are allowed",
        )
