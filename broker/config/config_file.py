"""What one broker process is told: the file ``node.toml``.

``dledger up`` writes it, ``dledger node --config FILE`` reads it. Nothing in it is optional in
meaning: a key that is left out has the default shown here, a key that is not known is an error,
because a misspelt setting that is silently ignored is found the day it was needed. ::

    cluster = "DefaultCluster"
    group = "broker-a"              # the group's name, and RocketMQ's broker name
    node = "n0"                     # n0, n1, ...: this process among the members below
    data = "/var/lib/dledger"       # an absolute path; default: the directory of this file
    namesrv = ["127.0.0.1:9876"]
    flush = "sync"                  # or "async": acknowledged before it is on stable storage
    segment_size = 268435456        # bytes; one for the whole group, fixed when data is first made
    max_message_size = 4194304      # bytes of a message's body
    auto_create_topics = true
    property_filter = true          # consumers may filter by SQL92 expressions
    follower_reads = true           # consumers that are far behind are sent to a follower: by more
    follower_reads_percent = 40     # than so much of the machine's memory
    election_timeout_ms = 600       # the shortest; each one is drawn between it and its double
    heartbeat_ms = 100
    file_reserved_hours = 72        # messages are kept for so long; 0: for ever
    log_size_max = 0                # bytes of log above which the oldest segments go; 0: any size
    disk_clean_percent = 75         # of the disk: a warning
    disk_force_percent = 85         # the oldest segments go, however new their messages are
    disk_full_percent = 90          # messages are refused, and another member shall lead
    disk_enough_bytes = 4294967296  # with so much free a disk is not full, whatever the share
    disk_stall_ms = 10000           # a leader whose disk ends no write for so long gives way
    checkpoint_seconds = 30         # between two checkpoints: bounds what a start has to read
    proof_ms = 400                  # members compare their state so often, while it changes; 0: not
    scrub_mib_per_second = 8        # at which what is at rest is read again, to find what rotted
    scrub_pass_seconds = 60         # of rest between two passes over the log
    transaction_timeout_ms = 6000   # so old a transaction is when its producer is asked about it,
    transaction_check_interval_ms = 30000   # again after that,
    transaction_check_max = 15      # and so often; then it is rolled back
    dedup_window_seconds = 60       # a request that is sent again within it is stored once; 0: off
    http_hosts = []                 # names to which HTTP answers, such as "broker.example.com",
                                    # beside localhost and the addresses of this node
    snapshot_dirs = []              # absolute paths below which HTTP may make snapshots, beside
                                    # snapshots/ in the data directory
    logging_file_mib = 32           # after so much another log/node.log is begun; 0: never
    logging_files = 4               # of which so many are kept
    refill_mib_per_second = 32      # what this node sends at most to members that lack old entries

    join = false                    # true: this node waits to be added to the group by
                                    # `dledger member add`; members are those whom it may ask
    preferred_leader = ""           # n0, n1, ...: who is to lead while it keeps up
    reads = "linearizable"          # offsets, queues and topics are told as they are now, or
                                    # "stale": as this node has them, which may lag on a follower
    lease_reads = false             # reads without a round to a majority; see docs/safety.md
    insecure = false                # true: listens for other machines though nothing protects it

    [security]                      # see broker/config/security_config.py; without it all is off

    [members.n0]                    # every voter of the group, this one too
    peer = "127.0.0.1:10915"        # Raft
    address = "127.0.0.1:10911"     # RocketMQ's remoting protocol
    http = "127.0.0.1:8080"
"""

from __future__ import annotations

import os
from dataclasses import MISSING, fields

from broker.config.endpoint import Endpoint
from broker.config.node_config import Member, NodeConfig
from broker.config.setting_checks import ConfigError, one_line
from broker.config.toml_file import (
    check_keys,
    endpoint_setting,
    parse_toml,
    read_settings,
    refuse_exposed,
    require_types,
    take_security,
    types_of,
)
from store.quoting import quoted

REQUIRED = [field.name for field in fields(NodeConfig) if field.default is MISSING]
TYPES = {**types_of(NodeConfig), "members": dict, "namesrv": list}


def read_config(path: str) -> NodeConfig:
    """Reads and checks a ``node.toml``.

    Raises :class:`~broker.config.setting_checks.ConfigError` naming the file and the key.
    """
    return read_settings(path, parse_config)


def read_exposed_config(path: str) -> NodeConfig:
    """As :func:`read_config`, for who only looks: it may listen for others without protection."""
    return read_settings(path, _parse)


def parse_config(text: str, directory: str) -> NodeConfig:
    """As :func:`read_config`, for a text that would stand in ``directory``."""
    config = _parse(text, directory)
    if config.exposed and not config.insecure:
        own: dict[str, Endpoint] = config.own._asdict()
        key = next(key for key, endpoint in own.items() if not endpoint.is_loopback)
        refuse_exposed(f"members.{config.node}.{key}", str(own[key]))
    return config


def _parse(text: str, directory: str) -> NodeConfig:
    given = parse_toml(text)
    check_keys(given, list(TYPES), "")
    given.setdefault("data", directory)
    for key in REQUIRED:
        if key not in given:
            raise ConfigError(f"{key}: is missing")
    take_security(given, directory)
    require_types(given, TYPES)
    if not os.path.isabs(given["data"]):
        raise ConfigError(
            f"data: {quoted(given['data'])} is not an absolute path: write out where the data is, "
            "or leave it out, which means the directory of this file"
        )
    namesrv = tuple(str(endpoint_setting("namesrv", address)) for address in given["namesrv"])
    members = {node: _member(node, value) for node, value in given["members"].items()}
    return NodeConfig(**{**given, "members": members, "namesrv": namesrv})


def _member(node: str, value: object) -> Member:
    where = f"members.{one_line(node)}"
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a table, not {quoted(value)}")
    check_keys(value, list(Member._fields), f"{where}.")
    for key in Member._fields:
        if key not in value:
            raise ConfigError(f"{where}.{key}: is missing")
    return Member(**{key: endpoint_setting(f"{where}.{key}", value[key]) for key in Member._fields})
