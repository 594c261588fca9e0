"""The settings of one broker process: the file ``node.toml``.

Each setting is defined here once: name, type, default, unit, allowed values, and its sentence in
``docs/configuration.md``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass

from broker.config.node_addresses import (
    LISTEN_SETTINGS,
    MEMBER_SETTINGS,
    Listen,
    Member,
    check_distinct,
    vip_address,
)
from broker.config.security_config import OFF, SECURITY_OFF, SECURITY_SETTINGS, SecurityConfig
from broker.config.setting import (
    Allowed,
    between,
    matching,
    one_of,
    required,
    section,
    setting,
)
from broker.config.setting_checks import ConfigError, one_line, require, require_between
from broker.system.log_lines import FORMATS, LEVELS, LogLimits
from broker.system.server_log import LogSettings
from dledger.wire.endpoint import Endpoint
from store.io.disk_watermarks import DiskWatermarks
from store.log.layout import SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN
from store.log.retention_policy import HOUR_MS, RetentionPolicy
from store.quoting import quoted

FLUSH_MODES = ("sync", "async")
NODE_NAME = re.compile(r"n(0|[1-9][0-9]{0,3})")
GROUP_NAME = re.compile(r"[A-Za-z0-9_-]{1,127}")
NAME = matching(GROUP_NAME, "letters, digits, - and _, up to 127")
HOST_WITHOUT_PORT = matching(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}", "a name without a port")
MESSAGE_SIZE_MAX = 15 << 20
"""Setting: a frame of the remoting protocol has 16 MiB, with header and properties."""

HOURS_MAX = 1_000_000
"""Setting: more than a century."""

DAY_MS = 24 * HOUR_MS
PATH_MAX = 4095
"""Setting: bytes of a path, as in Linux."""

BYTES_MAX = 1 << 60
"""Setting: more than any disk."""


def _is_path(text: str) -> bool:
    return 0 < len(os.fsencode(text)) <= PATH_MAX and text.isprintable() and os.path.isabs(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings of one broker process. Raises :class:`ConfigError`."""

    group: str = required("broker-a", "The group's name, and RocketMQ's broker name.", NAME)
    node: str = required(
        "n0",
        "The name of this process among the members.",
        matching(NODE_NAME, "n0, n1, n2 and so on"),
    )
    data: str = required(
        "/var/lib/dledger",
        "The directory of the data; default: the directory of the file.",
        Allowed(
            _is_path,
            f"an absolute path of up to {PATH_MAX} bytes without control characters; "
            "give it in full, or omit it for the directory of the file",
        ),
    )
    namesrv: tuple[str, ...] = required(
        ("127.0.0.1:9876",),
        "The NameServers, one or more. The node registers at each of them.",
        item=Endpoint,
    )
    cluster: str = setting("DefaultCluster", "The cluster's name.", allowed=NAME)
    flush: str = setting(
        "sync",
        'When a message is acknowledged: on stable storage of a majority; "async": before that.',
        allowed=one_of(*FLUSH_MODES),
    )
    segment_size: int = setting(
        256 << 20,
        "The size of a segment; the same for the whole group, fixed when the data is created.",
        unit="bytes",
        allowed=between(SEGMENT_SIZE_MIN, SEGMENT_SIZE_MAX),
    )
    max_message_size: int = setting(
        4 << 20,
        "The largest body of a message, at most half a segment.",
        unit="bytes",
        allowed=between(1, MESSAGE_SIZE_MAX),
    )
    auto_create_topics: bool = setting(
        True, "Whether the first message to a topic creates it.", reload=True
    )
    property_filter: bool = setting(
        True, "Whether consumers may filter by SQL92 expressions.", reload=True
    )
    follower_reads: bool = setting(
        True, "Whether a consumer that is far behind reads from a follower.", reload=True
    )
    follower_reads_percent: int = setting(
        40,
        "The distance of such a consumer: this share of the machine's memory.",
        unit="%",
        allowed=between(0, 100),
    )
    vip_port: bool = setting(
        False,
        "true: the port two below `address` serves clients too, for Java clients up to 4.4.",
    )
    election_timeout_ms: int = setting(
        300,
        "The shortest election timeout; each is random between it and its double. With "
        "`lease_reads` the default is 600.",
        unit="ms",
        allowed=between(10, 600_000),
    )
    heartbeat_ms: int = setting(
        50,
        "The pause between two heartbeats of a leader, less than half an election timeout.",
        unit="ms",
        allowed=between(1, 300_000),
    )
    file_reserved_hours: int = setting(
        72,
        "How long messages are kept; 0: for ever.",
        unit="hours",
        allowed=between(0, HOURS_MAX),
        reload=True,
    )
    log_size_max: int = setting(
        0,
        "The size of the log above which the oldest segments are deleted; 0: any size.",
        unit="bytes",
        allowed=between(0, BYTES_MAX),
    )
    disk_clean_percent: int = setting(
        75, "A disk this full causes a warning.", unit="%", allowed=between(1, 100)
    )
    disk_force_percent: int = setting(
        85,
        "On a disk this full the oldest segments are deleted early.",
        unit="%",
        allowed=between(1, 100),
    )
    disk_full_percent: int = setting(
        90,
        "On a disk this full messages are refused, and another member should lead.",
        unit="%",
        allowed=between(1, 100),
    )
    disk_enough_bytes: int = setting(
        4 << 30,
        "A disk with this much free space is never full.",
        unit="bytes",
        allowed=between(0, BYTES_MAX),
    )
    disk_stall_ms: int = setting(
        10_000,
        "A leader transfers its leadership after this time without a completed write.",
        unit="ms",
        allowed=between(100, 3_600_000),
    )
    join: bool = setting(
        False,
        "true: the node waits to be added by `dledger member add`; it asks the members.",
    )
    preferred_leader: str = setting(
        "",
        "The node that should lead while it keeps up; empty: any.",
        allowed=matching(rf"({NODE_NAME.pattern})?", "n0, n1, n2 and so on, or empty"),
    )
    reads: str = setting(
        "linearizable",
        'Reads of offsets, queues and topics; "stale": as this node has applied them.',
        allowed=one_of("linearizable", "stale"),
        reload=True,
    )
    lease_reads: bool = setting(False, "Reads without a heartbeat round; see docs/safety.md.")
    checkpoint_seconds: int = setting(
        30,
        "The pause between two checkpoints; it limits the part of the log that a start reads.",
        unit="s",
        allowed=between(1, 3600),
    )
    proof_ms: int = setting(
        400,
        "The pause between two comparisons of the members' states; 0: none.",
        unit="ms",
        allowed=between(0, 3_600_000),
    )
    drain_seconds: int = setting(
        35,
        "How long a node drains at SIGTERM until its clients have gone.",
        unit="s",
        allowed=between(0, 3600),
        reload=True,
    )
    scrub_mib_per_second: int = setting(
        8,
        "The rate of the scrub, which reads data at rest to find damage.",
        unit="MiB/s",
        allowed=between(1, 100_000),
    )
    scrub_pass_seconds: int = setting(
        60, "The pause between two passes of the scrub.", unit="s", allowed=between(1, 1_000_000)
    )
    refill_mib_per_second: int = setting(
        32,
        "The highest rate at which this node sends snapshots to members that lack old entries.",
        unit="MiB/s",
        allowed=between(1, 100_000),
    )
    transaction_timeout_ms: int = setting(
        6_000,
        "The age of an open transaction at its first check-back.",
        unit="ms",
        allowed=between(1, DAY_MS),
    )
    transaction_check_interval_ms: int = setting(
        30_000, "The pause between two check-backs.", unit="ms", allowed=between(1, DAY_MS)
    )
    transaction_check_max: int = setting(
        15, "The number of check-backs before the rollback.", allowed=between(1, 1_000)
    )
    dedup_window_seconds: int = setting(
        60,
        "A request that is retried within this time is stored once; 0: off.",
        unit="s",
        allowed=between(0, 86_400),
    )
    http_hosts: tuple[str, ...] = setting(
        (),
        "Host names to which HTTP answers, besides localhost and the addresses of this node.",
        allowed=HOST_WITHOUT_PORT,
    )
    snapshot_dirs: tuple[str, ...] = setting(
        (),
        "Directories in which HTTP may make snapshots, besides snapshots/ in the data directory.",
        allowed=matching(r"/[^\0]*[^\0/][^\0]*", "the absolute path of a directory"),
    )
    audit_dir: str = setting(
        "",
        "The directory of audit reports, for the console's page of findings; empty: none.",
        allowed=Allowed(
            lambda text: not text or _is_path(text), "the absolute path of a directory, or empty"
        ),
        reload=True,
    )
    logging_file_mib: int = setting(
        32,
        "The size at which log/node.log is rotated; 0: never.",
        unit="MiB",
        allowed=between(0, 1 << 20),
        reload=True,
    )
    logging_files: int = setting(
        4,
        "The number of files of the node's log that are kept.",
        allowed=between(1, 1_000),
        reload=True,
    )
    insecure: bool = setting(False, "true: listens for other machines without protection.")
    security: SecurityConfig = section(SECURITY_OFF, *SECURITY_SETTINGS)
    log_level: str = setting(
        "info", "The lowest level that is logged.", allowed=one_of(*LEVELS), reload=True
    )
    log_format: str = setting(
        "text", "The format of log lines.", allowed=one_of(*FORMATS), reload=True
    )
    tracing: str = setting(
        "",
        'The URL for OpenTelemetry spans, such as "http://127.0.0.1:4318/v1/traces"; needs '
        "dledger[tracing].",
        allowed=matching(
            r"(https?://[!-~]{1,2000})?",
            'a URL such as "http://127.0.0.1:4318/v1/traces", or empty',
        ),
    )
    listen: Listen = section(Listen(), *LISTEN_SETTINGS)
    members: Mapping[str, Member] = section(MISSING, *MEMBER_SETTINGS)

    def __post_init__(self) -> None:
        for name in self.members:
            where = f"members.{one_line(name)}"
            require(NODE_NAME.fullmatch(name), where, name, "n0, n1, n2 and so on")
        if self.node not in self.members:
            known = quoted(list(self.members))
            raise ConfigError(f"{self.node} itself is missing from {known}", "members")
        if self.listen.grpc is not None and self.own.grpc is None:
            raise ConfigError(
                f"needs members.{self.node}.grpc, the address for others", "listen.grpc"
            )
        check_distinct(self.members, self.vip_address)
        if not self.namesrv:
            raise ConfigError("at least one NameServer is needed", "namesrv")
        largest = min(MESSAGE_SIZE_MAX, self.segment_size // 2)
        require_between("max_message_size", self.max_message_size, 1, largest)
        require_between("heartbeat_ms", self.heartbeat_ms, 1, (self.election_timeout_ms - 1) // 2)
        require_between("disk_force_percent", self.disk_force_percent, self.disk_clean_percent, 100)
        require_between("disk_full_percent", self.disk_full_percent, self.disk_force_percent, 100)

    @property
    def name(self) -> str:
        """The node's name outside its group: ``group/node``."""
        return f"{self.group}/{self.node}"

    @property
    def own(self) -> Member:
        """The addresses of this process for others."""
        return self.members[self.node]

    @property
    def listening(self) -> Member:
        """The addresses at which this process listens."""
        given = {key: at for key, at in self.listen._asdict().items() if at is not None}
        return self.own._replace(**given)

    @property
    def vip_address(self) -> Endpoint | None:
        """The second port for clients, below the first, if ``vip_port`` is set."""
        return vip_address(self.listening.address) if self.vip_port else None

    @property
    def exposed_ports(self) -> dict[str, Endpoint]:
        """The unprotected ports that other machines reach, by their key. A port with access control
        counts as protected, even if that is permissive. TLS alone does not count, because clients
        need no certificate."""
        kept = {"peer": self.security.peers}
        return {
            key: endpoint
            for key, endpoint in self.listening.endpoints.items()
            if kept.get(key, self.security.access_control) == OFF and not endpoint.is_loopback
        }

    @property
    def exposed(self) -> bool:
        """Whether other machines reach an unprotected port."""
        return bool(self.exposed_ports)

    @property
    def retention(self) -> RetentionPolicy:
        """The retention of messages, and the watermarks of the disk."""
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
        """The settings of the node's own log."""
        limits = LogLimits(file_size=self.logging_file_mib << 20, files=self.logging_files)
        return LogSettings(self.log_level, self.log_format, limits)

    @property
    def peers(self) -> dict[str, str]:
        """The Raft addresses of all other members."""
        return {node: str(m.peer) for node, m in self.members.items() if node != self.node}

    @property
    def follower_broker_id(self) -> int:
        """RocketMQ's broker id of this node while it does not lead: above 0, which is the
        leader's."""
        return broker_id_of(self.node)


def broker_id_of(node: str) -> int:
    """RocketMQ's broker id of the node ``n<k>`` while it follows."""
    return int(node[1:]) + 1
