"""Limits of what operators and their tools ask for: admin requests, metrics, HTTP."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdminLimits:
    """Of the answers to operators."""

    queues_listed_max: int = 100_000
    """Entries of one answer about the progress of groups, some 100 bytes each, so that it fits a
    frame. A larger answer is refused; a tool may ask for one group and one topic."""

    empty_queues_max: int = 1024
    """Of a topic with more queues, only those that ever had a message are listed."""

    nodes_asked_max: int = 256
    """The most nodes that the console asks, even if a NameServer names more."""

    answer_bytes_max: int = 16 << 20
    """Bytes of a node's answer to the console; a larger one counts as no answer."""

    lag_times_max: int = 2_000
    """Queues for which an answer tells how long the next message has waited. Of twice as many the
    times are kept, some 200 bytes each."""

    lag_look_seconds: float = 2.0
    """After that an answer goes without times that cannot be read yet."""

    waiting_listed_max: int = 200
    """Open transactions, and queues with deliveries of POP, that are listed one by one."""

    waiting_rows_max: int = 100_000
    """Rows of timed messages that are looked at to tell when the next one is due."""

    waiting_read_max: int = 10_000
    """Waiting messages that are read to tell of which topic they are. Those beyond are counted."""

    waiting_read_bytes_max: int = 64 << 20
    """Bytes of them that are read."""

    audit_files_max: int = 1_000
    """Files of ``audit_dir`` that are looked at for the newest reports."""

    audit_reports_max: int = 16
    """Reports that are read and told, the newest."""

    audit_bytes_max: int = 4 << 20
    """Bytes of a report of an audit; a larger one is not read."""

    audit_findings_listed_max: int = 50
    """Findings of such a report that are listed; the others are counted."""


ADMIN = AdminLimits()


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Of quotas, and of what they keep in memory."""

    quotas_max: int = 1_000
    """Settings of quotas in the replicated state, unset ones too, as long as they are named."""

    buckets_max: int = 10_000
    """Accounts, topics and clients whose use is known at a time. Beyond them half are
    forgotten: clients first, of these those at rest, and then the oldest."""

    wait_seconds_max: float = 2.0
    """How long one answer is held back, and after how long a long poll in debt looks again: clients
    of RocketMQ wait for three seconds."""

    debt_seconds_max: float = 10.0
    """So much may be owed: seconds' worth of a quota that were taken and are not paid. Who sends
    more is refused, as an answer could not come in time. What wants no answer waits, however long.
    """

    pause_seconds_max: float = 0.5
    """For so long nothing is read from a client in debt that waits for an answer. With
    ``wait_seconds_max`` an answer comes before a client of RocketMQ gives up."""


QUOTAS = QuotaLimits()


@dataclass(frozen=True, slots=True)
class MetricLimits:
    """Of ``/metrics``. A series is one line for each combination of labels; what is beyond a limit
    is told as one series, whose labels are ``(other)``."""

    topics_max: int = 1_000
    """Topics with a series of their own."""

    topic_groups_max: int = 2_000
    """Pairs of a topic and a group."""

    lag_queues_max: int = 2_000
    """Queues for which the lag of a group is told."""

    connected_groups_max: int = 1_000
    """Groups whose connections are told."""

    samples_max: int = 2_160
    """Of the figures of the last hours, one for ten seconds: six hours, some 200 KiB."""


METRICS = MetricLimits()


@dataclass(frozen=True, slots=True)
class ConsoleLimits:
    """Of the console's pages, and of what a node does for those who look at them."""

    changes_max: int = 50
    """Changes in progress, and those whose end is remembered. Beyond, a change is refused."""

    visitors_max: int = 16
    """Accounts whose connections to other nodes are kept; the one that asked longest ago gives
    way."""

    page_bytes_max: int = 16 << 20
    """Bytes of the bodies that one page looks at: they are in the memory of this node."""

    body_bytes_shown_max: int = 64 << 10
    """Bytes of a body that are shown."""

    preview_rows_max: int = 20
    """Messages that a question lists; the others are counted."""

    dead_letters_last_max: int = 100
    """Of the last dead letters that one change sends again; all of them are sent one by one."""

    chart_points_max: int = 360
    """Of one curve."""


CONSOLE = ConsoleLimits()


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Of the HTTP port of a broker."""

    connections_max: int = 512
    """The server closes further connections as soon as they are accepted."""
    backlog: int = 128
    """Connections that wait to be accepted."""
    handshakes_max: int = 128
    """As :attr:`RemotingLimits.handshakes_max`."""
    kernel_unsent: int = 128 * 1024
    """As :attr:`RemotingLimits.kernel_unsent`."""
    piece_bytes: int = 16 << 10
    """What is read at a time; of what is no HTTP so much is kept until the connection ends."""

    idle_seconds: float = 60.0
    """A connection without a request, with all its headers, for so long is closed."""

    headers_max: int = 64
    """Of one request; each has at most 8,190 bytes."""

    stall_seconds: float = 20.0
    """A connection is closed after so long without a byte of a body, or of an answer taken."""

    body_bytes_per_second: int = 16 << 10
    """The rate of a body that takes longer than ``stall_seconds``."""

    memory_max: int = 64 << 20
    """Bytes of requests and answers in memory, of all connections together; beyond, a request is
    refused as busy. One request of the largest size always fits."""

    held_sends_max: int = 128
    """Of the requests, sends of clients beyond a quota; a further one is refused as busy."""
    held_bytes_max: int = 16 << 20
    """Of the bytes, those of such sends."""

    free_bytes: int = 64 << 10
    """This part of each request and answer is not counted: a small one always fits."""

    containers_max: int = 1000
    """Objects and lists in one request, which needs three. Eight megabytes of them, 300 ns each,
    would hold the event loop for as long as an election."""

    strings_max: int = 50_000
    """As above. All properties of a message together have at most 32,767 bytes."""

    snapshots_max: int = 8
    """Snapshots that may lie in a node's own directory of snapshots."""

    path_size_max: int = 4096
    """Characters of a path, as on Linux."""
    path_depth_max: int = 64
    """Directories of a path."""


HTTP = HttpLimits()
