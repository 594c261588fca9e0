"""Limits of admin requests, metrics and the console."""

from __future__ import annotations

from typing import NamedTuple


class AdminLimits(NamedTuple):
    """Limits of answers to operators."""

    queues_listed_max: int = 100_000
    """Entries of one answer about the progress of groups, about 100 bytes each, so that it fits a
    frame. A larger answer is refused; a tool may ask for one group and one topic."""

    empty_queues_max: int = 1024
    """Queues of a topic that are all listed. With more queues, only those that have had a message
    are."""

    nodes_asked_max: int = 256
    """Nodes that the console asks, even if a NameServer names more."""

    answer_bytes_max: int = 16 << 20
    """Bytes of a node's answer to the console; a larger one counts as missing."""

    lag_times_max: int = 2_000
    """Queues for which an answer has the waiting time of the next message. The times of twice as
    many are cached, about 200 bytes each."""

    lag_look_seconds: float = 2.0
    """How long an answer waits for these times."""

    waiting_listed_max: int = 200
    """Open transactions, and queues with deliveries of POP, that are listed singly."""

    waiting_rows_max: int = 100_000
    """Rows of timed messages that are looked at to tell when the next one is due."""

    waiting_read_max: int = 10_000
    """Waiting messages that are read to find their topic. Further ones are only counted."""

    waiting_read_bytes_max: int = 64 << 20
    """Bytes of these messages."""

    audit_files_max: int = 1_000
    """Files of ``audit_dir`` among which the newest reports are searched."""

    audit_reports_max: int = 16
    """The newest reports that are read and shown."""

    audit_bytes_max: int = 4 << 20
    """Bytes of an audit report; a larger one is not read."""

    audit_findings_listed_max: int = 50
    """Findings of such a report that are listed; the others are counted."""


ADMIN = AdminLimits()


class MetricLimits(NamedTuple):
    """Limits of ``/metrics``. A series is one line for each combination of labels. Series above a
    limit are summed in one, whose labels are ``(other)``."""

    topics_max: int = 1_000
    """Topics with their own series, and groups with one of their dead letters."""

    topic_groups_max: int = 2_000
    """Pairs of a topic and a group with their own series."""

    lag_queues_max: int = 2_000
    """Queues whose lag for a group is shown."""

    connected_groups_max: int = 1_000
    """Groups whose connections are shown."""

    samples_max: int = 2_160
    """Samples of the last hours, one for ten seconds: six hours, about 200 KiB."""


METRICS = MetricLimits()


class ConsoleLimits(NamedTuple):
    """Limits of the console's pages, and of the work of a node for them."""

    changes_max: int = 50
    """Changes in progress, and ended ones whose result is kept. Above that a change is refused."""

    visitors_max: int = 16
    """Accounts whose connections to other nodes are kept. Above that those are closed that are not
    in use, the least recently used ones first."""

    page_bytes_max: int = 16 << 20
    """Bytes of the bodies that one page reads into this node's memory."""

    body_bytes_shown_max: int = 64 << 10
    """Bytes of a body that are shown."""

    preview_rows_max: int = 20
    """Messages that a query lists; the others are counted."""

    dead_letters_last_max: int = 100
    """Dead letters that one change sends again, the last ones, each on its own."""

    chart_points_max: int = 360
    """Points of one curve."""


CONSOLE = ConsoleLimits()
