"""Limits of the replicated state."""

from __future__ import annotations

from typing import NamedTuple


class StateLimits(NamedTuple):
    """Limits of the replicated state: topics, groups and offsets of a broker group."""

    topics_max: int = 20_000
    """Topics. Their settings fit one frame, with names of any length, also in code 21."""

    automatic_topics_max: int = 10_000
    """Topics above which messages create none: a faulty producer leaves room for others."""

    queues_max: int = 16_384
    """Queues of one topic. A queue costs nothing before its first message."""

    all_queues_max: int = 262_144
    """Queues of all topics. Listing them takes a step for each queue that has had a message."""

    automatic_queues_max: int = 131_072
    """Queues of all topics above which messages create no topic."""

    groups_max: int = 10_000
    """Subscription groups. Each may add a topic for dead letters above ``topics_max``."""

    automatic_groups_max: int = 8_000
    """Groups above which a consumer of an unknown group creates none."""

    retry_queues_max: int = 256
    """Queues of a group's retry topic."""
    offsets_max: int = 262_144
    """Committed offsets, one for each queue of a group. A checkpoint packs so many in 0.2 s."""

    pop_queue_deliveries_max: int = 10_000
    """Deliveries by POP of a group in one queue: messages that are not acknowledged, or that wait
    for their message group. Above that the group receives no new messages."""

    pop_deliveries_max: int = 131_072
    """Deliveries of all groups and queues. A checkpoint packs so many in 0.05 s."""

    transactions_max: int = 65_536
    """Open transactions, with the pending ones; above that half messages are refused."""

    recalled_max: int = 131_072
    """Recalled timed messages whose time has not come."""

    accounts_max: int = 1_000
    account_permissions_max: int = 1_000
    """Accounts; and the permissions of one account for topics, and as many for groups."""
    account_changes_max: int = 64
    """Waiting requests for changes of accounts."""


STATE = StateLimits()
