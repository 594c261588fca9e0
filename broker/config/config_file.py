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
    refill_mib_per_second = 32      # most that this node sends to members that lack old entries

    join = false                    # true: this node waits to be added to the group by
                                    # `dledger member add`; members are those that it may ask
    preferred_leader = ""           # n0, n1, ...: should lead while it keeps up
    reads = "linearizable"          # offsets, queues and topics as they are now, or "stale":
                                    # as this node has them, which may lag on a follower
    lease_reads = false             # reads without a round to a majority; see docs/safety.md

    [members.n0]                    # every voter of the group, this one too
    peer = "127.0.0.1:10915"        # Raft
    address = "127.0.0.1:10911"     # RocketMQ's remoting protocol
    http = "127.0.0.1:8080"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields

from broker.config.node_config import ConfigError, Endpoint, Member, NodeConfig, one_line
from broker.system.bounded_file_read import read_bounded
from store.quoting import quoted, shortened

CONFIG_SIZE_MAX = 64 << 10
"""Setting: bytes of a ``node.toml``, enough for hundreds of members. tomllib takes quadratic time
for some files that say nothing."""

DOTS_MAX = 500
"""Setting: dots in one line. For a key of many parts tomllib takes quadratic time."""

TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def read_config(path: str) -> NodeConfig:
    """Reads and checks a ``node.toml``. Raises :class:`ConfigError` naming the file and the key."""
    try:
        text = read_bounded(path, CONFIG_SIZE_MAX).decode()
        return parse_config(text, os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise ConfigError(f"{one_line(path)}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {shortened(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_config(text: str, directory: str) -> NodeConfig:
    """As :func:`read_config`, for a text that would stand in ``directory``."""
    if len(text) > CONFIG_SIZE_MAX:
        raise ConfigError(f"has {len(text)} characters, at most {CONFIG_SIZE_MAX} are allowed")
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > DOTS_MAX:
            raise ConfigError(
                f"line {number} has {line.count('.')} dots, at most {DOTS_MAX} are allowed"
            )
    try:
        given = tomllib.loads(text)
    except RecursionError:
        raise ConfigError("is not TOML of this kind: it is nested too deeply") from None
    except ValueError as error:  # also for a number of thousands of digits
        raise ConfigError(f"is not TOML: {shortened(error)}") from error
    known = {field.name: field for field in fields(NodeConfig)}
    _check_keys(given, list(known), "")
    given.setdefault("data", directory)
    for key, field in known.items():
        if key not in given and field.default is MISSING:
            raise ConfigError(f"{key}: is missing")
    types: dict[str, type] = {
        "members": dict,
        "namesrv": list,
        **{key: type(f.default) for key, f in known.items() if f.default is not MISSING},
    }
    for key, value in given.items():
        wanted = types.get(key, str)
        _require_type(key, value, list if wanted is tuple else wanted)
        if wanted is tuple:
            for each in value:
                _require_type(f"{key}: each", each, str)
            given[key] = tuple(value)
    if not os.path.isabs(given["data"]):
        raise ConfigError(
            f"data: {quoted(given['data'])} is not an absolute path: write out where the data is, "
            "or leave it out, which means the directory of this file"
        )
    namesrv = tuple(_endpoint("namesrv", address) for address in given["namesrv"])
    members = {node: _member(node, value) for node, value in given["members"].items()}
    return NodeConfig(
        **{**given, "members": members, "namesrv": tuple(str(address) for address in namesrv)}
    )


def _member(node: str, value: object) -> Member:
    where = f"members.{one_line(node)}"
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a table, not {quoted(value)}")
    _check_keys(value, list(Member._fields), f"{where}.")
    for key in Member._fields:
        if key not in value:
            raise ConfigError(f"{where}.{key}: is missing")
    return Member(**{key: _endpoint(f"{where}.{key}", value[key]) for key in Member._fields})


def _endpoint(key: str, value: object) -> Endpoint:
    if not isinstance(value, str):
        raise ConfigError(f"{key}: must be a string, not {quoted(value)}")
    try:
        return Endpoint.parse(value)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def _check_keys(given: Mapping[str, object], known: list[str], where: str) -> None:
    for key in given:
        if key not in known:
            import difflib  # noqa: PLC0415 - of no use to a node that starts

            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            raise ConfigError(f"{where}{one_line(key)}: is no setting{hint}")


def _require_type(key: str, value: object, wanted: type) -> None:
    # A TOML boolean is a Python int too, and must not pass for a number.
    if type(value) is not wanted:
        raise ConfigError(f"{key}: must be {TYPE_NAMES[wanted]}, not {quoted(value)}")
