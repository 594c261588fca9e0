"""Whether the replicated state has room for one more topic or group (``StateLimits``).

A state from before a limit may exceed it: its items stay and may be changed.
"""

from __future__ import annotations

from broker.errors import QuotaExceededError, UnknownGroupError, UnknownTopicError
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_state import Totals
from broker.limits import STATE
from broker.topics_and_groups import TopicConfig


def check_topic_quota(batcher: Batcher, topic: TopicConfig, totals: Totals) -> None:
    """Raises :class:`~broker.errors.QuotaExceededError` if there is no room for an operator to
    create or change the topic. ``totals``: without it."""
    known = batcher.topic(topic.name)
    if known is None and totals.topics >= STATE.topics_max:
        raise QuotaExceededError(
            f"the topic {topic.name} is not created: there are {totals.topics} topics, "
            f"at most {STATE.topics_max} are allowed; delete some first"
        )
    more = topic.queues - (0 if known is None else known.queues)
    # A queue has room if its topic has: older states may have more queues than are allowed, and a
    # group must have its retry topic there, too.
    if more > 0 and topic.queues > 1 and totals.queues + more > STATE.all_queues_max:
        raise QuotaExceededError(
            f"the topic {topic.name} cannot have {topic.queues} queues: all topics have "
            f"{totals.queues}, at most {STATE.all_queues_max} are allowed"
        )


def check_auto_created_topic_quota(batcher: Batcher, topic: TopicConfig) -> None:
    """The same for a topic that a message creates. Raises
    :class:`~broker.errors.UnknownTopicError`: RocketMQ's clients then try another broker, and
    report a failure if there is none."""
    totals = batcher.totals()
    if totals.topics >= STATE.automatic_topics_max:
        reached = f"{totals.topics} topics, of at most {STATE.automatic_topics_max}"
    elif totals.queues + topic.queues > STATE.automatic_queues_max:
        reached = f"{totals.queues} queues of topics, of at most {STATE.automatic_queues_max}"
    else:
        return
    raise UnknownTopicError(
        f"topic[{topic.name}] not exist, apply first please! A message does not create it: "
        f"there are {reached} up to which messages create topics"
    )


def check_group_quota(totals: Totals, name: str, *, automatic: bool = False) -> None:
    """Raises if there are too many groups: :class:`~broker.errors.UnknownGroupError` for a
    consumer, whose client shows it, and :class:`~broker.errors.QuotaExceededError` for an
    operator."""
    groups = totals.groups
    groups_max = STATE.automatic_groups_max if automatic else STATE.groups_max
    if groups >= groups_max:
        refusal = UnknownGroupError if automatic else QuotaExceededError
        by_whom = "by a consumer that uses it" if automatic else ""
        raise refusal(
            f"the subscription group {name} is not created {by_whom}".rstrip()
            + f": there are {groups} groups, at most {groups_max} are allowed for that",
        )
