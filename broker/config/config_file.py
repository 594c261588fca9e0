"""The settings of one broker process: the file ``node.toml``.

``dledger up`` writes it, ``dledger node --config FILE`` reads it. A missing key has
the default shown here. An unknown key is an error: a misspelt setting that is silently ignored is
found the day it was needed. ::

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
    follower_reads = true           # a consumer reads from a follower if it is far behind:
    follower_reads_percent = 40     # by more than this share of the machine's memory
    election_timeout_ms = 600       # the shortest; each one is drawn between it and its double
    heartbeat_ms = 100
    file_reserved_hours = 72        # messages are kept for this time; 0: for ever
    log_size_max = 0                # bytes of log above which the oldest segments go; 0: any size
    disk_clean_percent = 75         # of the disk: a warning
    disk_force_percent = 85         # the oldest segments go before their time
    disk_full_percent = 90          # messages are refused, and another member should lead
    disk_enough_bytes = 4294967296  # a disk with this much free is never full
    disk_stall_ms = 10000           # without a completed write a leader hands over after this time
    checkpoint_seconds = 30         # between two checkpoints: bounds what a start has to read
    drain_seconds = 35              # at SIGTERM a leader hands over and forwards for this time
    proof_ms = 400                  # between two comparisons of the members' states; 0: none
    scrub_mib_per_second = 8        # rate at which data at rest is read again to find damage
    scrub_pass_seconds = 60         # pause between two passes over the log
    transaction_timeout_ms = 6000   # the age at which its producer is asked about a transaction,
    transaction_check_interval_ms = 30000   # the pause before it is asked again,
    transaction_check_max = 15      # and the number of checks before it is rolled back
    dedup_window_seconds = 60       # a request sent again within this time is stored once; 0: off
    http_hosts = []                 # names to which HTTP answers, such as "broker.example.com",
                                    # beside localhost and the addresses of this node
    snapshot_dirs = []              # absolute paths below which HTTP may make snapshots, beside
                                    # snapshots/ in the data directory
    logging_file_mib = 32           # the size at which a new log/node.log begins; 0: none
    logging_files = 4               # how many of them are kept
    log_level = "info"              # or "debug", "warning", "error": the least that is logged
    log_format = "text"             # or "json"; SIGHUP has these four read again
    tracing = ""                    # where OpenTelemetry spans go, such as
                                    # "http://127.0.0.1:4318/v1/traces"; needs dledger[tracing]
    refill_mib_per_second = 32      # most that this node sends to members that lack old entries

    join = false                    # true: this node waits to be added to the group by
                                    # `dledger member add`; members are those that it may ask
    preferred_leader = ""           # n0, n1, ...: should lead while it keeps up
    reads = "linearizable"          # offsets, queues and topics as they are now, or "stale":
                                    # as this node has them, which may lag on a follower
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
from dledger.wire.endpoint import Endpoint
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
