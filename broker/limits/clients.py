"""Limits of what a broker knows about its clients."""

from __future__ import annotations

from typing import NamedTuple


class ClientLimits(NamedTuple):
    """Limits of heartbeats, and of other data of clients on a broker."""

    groups_max: int = 1024
    """Producer and consumer groups of one connection. An application has a few."""
    ids_max: int = 64
    """Client ids of one connection. An application has one."""

    members_max: int = 10_000
    """Connections in one group: each is notified whenever one comes or goes."""

    memberships_max: int = 131_072
    """Memberships of all connections in all groups."""

    subscriptions_max: int = 1024
    """Topics that one group is subscribed to."""

    name_size_max: int = 512
    """Characters of a client id, of a producer group and of a subscribed topic."""

    held_pulls_max: int = 16_384
    """Held pulls of one connection: one for each queue of the largest topic."""

    locks_max: int = 262_144
    """Queue locks of all groups."""

    topic_metrics_max: int = 65_536
    """Pairs of a topic and a group with counters; further pairs have none."""


CLIENTS = ClientLimits()
