"""Limits of a NameServer."""

from __future__ import annotations

from typing import NamedTuple


class NameServerLimits(NamedTuple):
    """Limits of a NameServer."""

    processes_max: int = 10_000
    """Registered brokers."""

    connection_processes_max: int = 64
    """Registered brokers of one connection. A broker has its own connection."""

    topics_max: int = 150_000
    """Topics in one registration."""

    all_topics_max: int = 500_000
    """Topics of all broker names; a topic counts for each."""

    queues_max: int = 65_536
    """Queues of one topic: clients make an object of each."""

    members_max: int = 64
    """Addresses of one broker name, and addresses that a leader reports; also filter servers."""
    name_size_max: int = 512
    """Characters of a name or an address."""

    departed_brokers_max: int = 1_024
    """Broker names that are kept although no process of theirs is registered."""

    expiry_ms_max: int = 3_600_000
    """The longest time after which a broker may ask to be dropped if it is silent."""

    term_max: int = 1 << 62
    """The greatest term in a registration."""
    key_values_max: int = 10_000
    """Key-value pairs in all namespaces."""

    key_value_bytes_max: int = 4 << 20
    """Bytes of all namespaces, keys and values. Those of the order configuration are in the answer
    to each registration."""

    routes_kept_max: int = 10_000
    routes_kept_bytes_max: int = 64 << 20
    """Encoded answers in the cache, before all are dropped. A longer one is not kept."""


NAMESERVER = NameServerLimits()
