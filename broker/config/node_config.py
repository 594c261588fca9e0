"""The settings of one broker process, and what each may be.

They are read from the file ``node.toml`` (:mod:`broker.config.config_file`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from broker.config.security_config import SECURITY_OFF, SecurityConfig
from broker.config.setting_checks import ConfigError, require, require_between
from broker.system.log_lines import FORMATS, LEVELS, LogLimits
from broker.system.server_log import LogSettings
from dledger.wire.endpoint import Endpoint
from store.io.disk_watermarks import DiskWatermarks
from store.log.layout import SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN
from store.log.retention_policy import HOUR_MS, RetentionPolicy
from store.quoting import quoted

FLUSH_MODES = ("sync", "async")
READ_MODES = ("linearizable", "stale")
NODE_NAME = re.compile(r"n(0|[1-9][0-9]{0,3})")
GROUP_NAME = re.compile(r"[A-Za-z0-9_-]{1,127}")
TRACING_URL = re.compile(r"https?://[!-~]{1,2000}")
HOST_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}")
MESSAGE_SIZE_MAX = 15 << 20
"""Setting: a frame of the remoting protocol holds 16 MiB, header and properties included."""

HOURS_MAX = 1_000_000
"""Setting: more than a century."""

DAY_MS = 24 * HOUR_MS
PATH_MAX = 4095
"""Setting: bytes of a path, as Linux has it."""

BYTES_MAX = 1 << 60
"""Setting: more than any disk."""


class Member(NamedTuple):
    """The three addresses of one member of the group."""

    peer: Endpoint
    address: Endpoint
    http: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings of one broker process; see the module. Raises :class:`ConfigError`."""

    group: str
    node: str
    data: str
    members: Mapping[str, Member]
    namesrv: tuple[str, ...]
    cluster: str = "DefaultCluster"
    flush: str = "sync"
    segment_size: int = 256 << 20
    max_message_size: int = 4 << 20
    auto_create_topics: bool = True
    property_filter: bool = True
    follower_reads: bool = True
    follower_reads_percent: int = 40
    election_timeout_ms: int = 600
    heartbeat_ms: int = 100
    file_reserved_hours: int = 72
    log_size_max: int = 0
    disk_clean_percent: int = 75
    disk_force_percent: int = 85
    disk_full_percent: int = 90
    disk_enough_bytes: int = 4 << 30
    disk_stall_ms: int = 10_000
    join: bool = False
    preferred_leader: str = ""
    reads: str = "linearizable"
    lease_reads: bool = False
    checkpoint_seconds: int = 30
    proof_ms: int = 400
    drain_seconds: int = 35
    scrub_mib_per_second: int = 8
    scrub_pass_seconds: int = 60
    refill_mib_per_second: int = 32
    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 30_000
    transaction_check_max: int = 15
    dedup_window_seconds: int = 60
    http_hosts: tuple[str, ...] = ()
    snapshot_dirs: tuple[str, ...] = ()
    logging_file_mib: int = 32
    logging_files: int = 4
    insecure: bool = False
    security: SecurityConfig = SECURITY_OFF
    log_level: str = "info"
    log_format: str = "text"
    tracing: str = ""

    def __post_init__(self) -> None:
        for key, name in (("group", self.group), ("cluster", self.cluster)):
            require(GROUP_NAME.fullmatch(name), key, name, "letters, digits, - and _, up to 127")
        for name in (self.node, *self.members):
            require(NODE_NAME.fullmatch(name), "node", name, "n0, n1, n2 and so on")
        if self.node not in self.members:
            known = quoted(list(self.members))
            raise ConfigError(f"members: {self.node} itself is missing from {known}")
        require(
            0 < len(os.fsencode(self.data)) <= PATH_MAX and self.data.isprintable(),
            "data",
            self.data,
            f"the path of a directory, of up to {PATH_MAX} bytes, without control characters",
        )
        _check_distinct(self.members)
        if not self.namesrv:
            raise ConfigError("namesrv: at least one NameServer is needed")
        require(self.flush in FLUSH_MODES, "flush", self.flush, '"sync" or "async"')
        require(self.reads in READ_MODES, "reads", self.reads, '"linearizable" or "stale"')
        require(
            not self.preferred_leader or NODE_NAME.fullmatch(self.preferred_leader),
            "preferred_leader",
            self.preferred_leader,
            "n0, n1, n2 and so on, or empty",
        )
        require_between("segment_size", self.segment_size, SEGMENT_SIZE_MIN, SEGMENT_SIZE_MAX)
        largest = min(MESSAGE_SIZE_MAX, self.segment_size // 2)
        require_between("max_message_size", self.max_message_size, 1, largest)
        require_between("election_timeout_ms", self.election_timeout_ms, 10, 600_000)
        require_between("heartbeat_ms", self.heartbeat_ms, 1, (self.election_timeout_ms - 1) // 2)
        require_between("file_reserved_hours", self.file_reserved_hours, 0, HOURS_MAX)
        for key in ("log_size_max", "disk_enough_bytes"):
            require_between(key, getattr(self, key), 0, BYTES_MAX)
        require_between("disk_clean_percent", self.disk_clean_percent, 1, 100)
        require_between("disk_force_percent", self.disk_force_percent, self.disk_clean_percent, 100)
        require_between("disk_full_percent", self.disk_full_percent, self.disk_force_percent, 100)
        for key in ("transaction_timeout_ms", "transaction_check_interval_ms"):
            require_between(key, getattr(self, key), 1, DAY_MS)
        require_between("transaction_check_max", self.transaction_check_max, 1, 1_000)
        require_between("dedup_window_seconds", self.dedup_window_seconds, 0, 86_400)
        require_between("logging_file_mib", self.logging_file_mib, 0, 1 << 20)
        require_between("logging_files", self.logging_files, 1, 1_000)
        require(self.log_level in LEVELS, "log_level", self.log_level, " or ".join(LEVELS))
        require(self.log_format in FORMATS, "log_format", self.log_format, " or ".join(FORMATS))
        require(
            not self.tracing or TRACING_URL.fullmatch(self.tracing),
            "tracing",
            self.tracing,
            'a URL such as "http://127.0.0.1:4318/v1/traces", or empty',
        )
        require_between("refill_mib_per_second", self.refill_mib_per_second, 1, 100_000)
        require_between("follower_reads_percent", self.follower_reads_percent, 0, 100)
        require_between("scrub_mib_per_second", self.scrub_mib_per_second, 1, 100_000)
        require_between("scrub_pass_seconds", self.scrub_pass_seconds, 1, 1_000_000)
        require_between("checkpoint_seconds", self.checkpoint_seconds, 1, 3600)
        require_between("proof_ms", self.proof_ms, 0, 3_600_000)
        require_between("drain_seconds", self.drain_seconds, 0, 3600)
        require_between("disk_stall_ms", self.disk_stall_ms, 100, 3_600_000)
        for host in self.http_hosts:
            require(HOST_NAME.fullmatch(host), "http_hosts", host, "a name without a port")
        for path in self.snapshot_dirs:
            absolute = path.startswith("/") and "\0" not in path and path.strip("/")
            require(absolute, "snapshot_dirs", path, "the absolute path of a directory")

    @property
    def name(self) -> str:
        """How the node is called everywhere outside its group: ``group/node``."""
        return f"{self.group}/{self.node}"

    @property
    def own(self) -> Member:
        """This process's own addresses."""
        return self.members[self.node]

    @property
    def exposed(self) -> bool:
        """Whether others than this machine reach a port that nothing protects."""
        return not self.security.protects and any(not each.is_loopback for each in self.own)

    @property
    def retention(self) -> RetentionPolicy:
        """How long messages are kept, and how full the disk may be."""
        return RetentionPolicy(
            age_ms_max=self.file_reserved_hours * HOUR_MS or None,
            log_bytes_max=self.log_size_max or None,
            watermarks=DiskWatermarks(
                self.disk_clean_percent,
                self.disk_force_percent,
                self.disk_full_percent,
                self.disk_enough_bytes,
            ),
        )

    @property
    def logging(self) -> LogSettings:
        """What the node's own log says, and what it may take on the disk."""
        limits = LogLimits(file_size=self.logging_file_mib << 20, files=self.logging_files)
        return LogSettings(self.log_level, self.log_format, limits)

    @property
    def peers(self) -> dict[str, str]:
        """The Raft addresses of all the other members."""
        return {node: str(m.peer) for node, m in self.members.items() if node != self.node}

    @property
    def follower_broker_id(self) -> int:
        """RocketMQ's broker id while not leading: above 0, which is the leader's."""
        return broker_id_of(self.node)

    def to_toml(self) -> str:
        """The text of a ``node.toml`` in the data directory that reads as this.

        ``data`` is left out of it, so that the directory may be moved.
        """
        lines = ["# What this node is started with: dledger node --config FILE", ""]
        tables = ("members", "security")
        settings = [f.name for f in fields(self) if f.name not in ("data", *tables)]
        lines += [f"{key} = {json.dumps(getattr(self, key))}" for key in settings]
        if self.security != SECURITY_OFF:
            lines += ["", *self.security.to_toml()]
        for node, member in self.members.items():
            lines += ["", f"[members.{node}]"]
            lines += [f'{key} = "{value}"' for key, value in member._asdict().items()]
        return "\n".join(lines) + "\n"


def broker_id_of(node: str) -> int:
    """RocketMQ's broker id of the node ``n<k>`` while it follows."""
    return int(node[1:]) + 1


def _check_distinct(members: Mapping[str, Member]) -> None:
    seen: dict[Endpoint, str] = {}
    for node, member in members.items():
        for key, endpoint in member._asdict().items():
            other = seen.setdefault(endpoint, f"members.{node}.{key}")
            if other != f"members.{node}.{key}":
                raise ConfigError(f"members.{node}.{key}: {endpoint} is {other} already")
