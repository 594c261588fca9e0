"""Every metric of a node and of a NameServer, with its labels and its help text.

Names with ``rocketmq_`` and their labels are those of RocketMQ 5.x, for metrics with the same
meaning (source: ``BrokerMetricsConstant`` and ``DefaultStoreMetricsConstant`` of RocketMQ 5.3).
Each sample also has the labels ``cluster``, ``node_type`` and ``node_id`` (the broker name), as
RocketMQ's do, and ``node``. ``docs/metrics.md`` is generated from this file by ``python -m
tests.broker.prometheus.metrics_page``.
"""

from __future__ import annotations

from broker.prometheus.metric import Kind, Metric

NODE_LABELS = ("cluster", "node_type", "node_id", "node")
"""The labels of each sample. A NameServer has neither cluster nor name: these values are empty."""

BROKER, NAMESERVER = "broker", "nameserver"

_TOPIC = ("topic", "is_system")
_TOPIC_GROUP = ("topic", "consumer_group", "is_retry", "is_system")


_ALL: list[Metric] = []


def _metric(kind: Kind, name: str, text: str, labels: tuple[str, ...]) -> Metric:
    _ALL.append(Metric(name, kind, text, labels))
    return _ALL[-1]


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return _metric(Kind.GAUGE, name, text, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return _metric(Kind.COUNTER, name, text, labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return _metric(Kind.HISTOGRAM, name, text, labels)


BUILD_INFO = _gauge(
    "dledger_build_info", "Always 1; the label has the version of the program.", "version"
)

# --- messages; counted on the leader

MESSAGES_IN = _counter(
    "rocketmq_messages_in_total",
    "Messages that were stored and committed while this node led.",
    *_TOPIC,
)
THROUGHPUT_IN = _counter(
    "rocketmq_throughput_in_total", "Bytes of the records of those messages.", *_TOPIC
)
MESSAGES_OUT = _counter(
    "rocketmq_messages_out_total", "Messages that this node delivered to consumers.", *_TOPIC_GROUP
)
THROUGHPUT_OUT = _counter(
    "rocketmq_throughput_out_total", "Bytes of the records of those messages.", *_TOPIC_GROUP
)
SENT_BACK = _counter(
    "dledger_messages_sent_back_total",
    "Messages that consumers sent back, to be delivered again.",
    "topic",
    "consumer_group",
)
SEND_TO_DLQ = _counter(
    "rocketmq_send_to_dlq_messages_total",
    "Messages that were stored as dead letters.",
    "consumer_group",
)
PULLS = _counter("dledger_pulls_total", "Pulls that were answered: found or empty.", "result")
LAG = _gauge(
    "rocketmq_consumer_lag_messages",
    "Messages that the group has not acknowledged yet. On the leader, without broadcasts.",
    *_TOPIC_GROUP,
)
QUEUE_LAG = _gauge(
    "dledger_consumer_lag_queue_messages",
    "The same for each queue.",
    "topic",
    "consumer_group",
    "queue",
)
LAG_LATENCY = _gauge(
    "rocketmq_consumer_lag_latency",
    "Milliseconds that the oldest of these messages has waited; 0 if there is none.",
    *_TOPIC_GROUP,
)
TIMING_MESSAGES = _gauge(
    "rocketmq_timing_messages", "Messages that wait for their delivery time. On the leader."
)
HALF_MESSAGES = _gauge("rocketmq_half_messages", "Open transactions. On the leader.")
TOPICS = _gauge("rocketmq_topic_number", "Topics, system topics included.")
GROUPS = _gauge("rocketmq_consumer_group_number", "Consumer groups that have a configuration.")
PENDING_BYTES = _gauge(
    "dledger_pending_bytes", "Bytes of requests that wait to be proposed to the log."
)

# --- clients

PRODUCER_CONNECTIONS = _gauge(
    "rocketmq_producer_connections", "Connections of producers, by their language.", "language"
)
CONSUMER_CONNECTIONS = _gauge(
    "rocketmq_consumer_connections",
    "Connections of consumers.",
    "consumer_group",
    "language",
)
CONNECTIONS = _gauge("dledger_connections", "Open connections: remoting, http or peer.", "port")
HELD_PULLS = _gauge("dledger_held_pulls", "Pulls that wait for a message (long polling).")
REFUSED = _counter(
    "dledger_refused_requests_total",
    "Requests that were refused, by port and reason (busy, not_leader, no_room, ...).",
    "port",
    "reason",
)

FORWARDED = _counter(
    "dledger_forwarded_requests_total",
    "Requests that a follower forwarded to the leader, by the port at which they came.",
    "port",
)

# --- latencies, in seconds

COMMIT_SECONDS = _histogram(
    "dledger_commit_seconds",
    "From the proposal of an entry until it is committed and applied on the leader.",
)
SYNC_SECONDS = _histogram(
    "dledger_log_sync_seconds",
    "From a write of the log until it is known to be durable; with asynchronous flush "
    "only the sync. The wait for the event loop counts.",
)
APPLY_SECONDS = _histogram(
    "dledger_apply_seconds", "The time of the state machine for an entry, on the event loop."
)
PULL_SECONDS = _histogram(
    "dledger_pull_seconds",
    "The time to find and load messages for a pull, without the time that it was held.",
)
LOOP_LAG_SECONDS = _histogram(
    "dledger_event_loop_lag_seconds",
    "How late the event loop ran a timer, ten times a second. A shorter stall may be missed.",
)

# --- Raft

ROLE = _gauge(
    "dledger_raft_role", "1 for the role of the node: leader, follower, candidate, learner.", "role"
)
HAS_LEADER = _gauge("dledger_raft_has_leader", "1 if the node knows a leader.")
SERVING = _gauge("dledger_raft_serving", "1 on a leader that serves.")
TERM = _gauge("dledger_raft_term", "The newest term that the node knows.")
ELECTIONS = _counter("dledger_raft_elections_total", "Elections that this node has called.")
LEADER_CHANGES = _counter(
    "dledger_raft_leader_changes_total", "Changes of leader or term that the node has seen."
)
LAST_INDEX = _gauge("dledger_raft_last_index", "The last entry of the node's log.")
COMMIT_INDEX = _gauge("dledger_raft_commit_index", "The last entry known to be committed.")
APPLIED_INDEX = _gauge("dledger_raft_applied_index", "The last entry that is applied.")
VOTERS = _gauge("dledger_raft_voters", "Members that vote.")
MAY_LOSE = _gauge(
    "dledger_raft_may_lose_nodes",
    "Voters in touch that may be lost without losing the majority. On the leader.",
)
PEER_LAG = _gauge(
    "dledger_raft_peer_lag_entries",
    "Entries of the leader's log that the peer has not confirmed. On the leader.",
    "peer",
)
PEER_CONNECTED = _gauge(
    "dledger_raft_peer_connected", "1 if there is a connection to the peer.", "peer"
)
NAMESERVER_REGISTERED = _gauge(
    "dledger_nameserver_registered", "1 if that NameServer knows this broker.", "nameserver"
)

# --- quotas

QUOTA_THROTTLED = _counter(
    "dledger_quota_throttled_seconds_total",
    "How long requests waited because of a quota; *: each without its own.",
    "type",
    "name",
)

# --- disk

STORAGE_SIZE = _gauge(
    "rocketmq_storage_size", "Bytes of the commit log.", "storage_type", "storage_medium"
)
DISPATCH_BEHIND = _gauge(
    "rocketmq_storage_dispatch_behind_bytes", "Bytes of the log that are not applied yet."
)
DISK_SIZE = _gauge("dledger_disk_size_bytes", "Size of the file system with the data.")
DISK_FREE = _gauge("dledger_disk_free_bytes", "Free bytes of that file system.")
DISK_LEVEL = _gauge(
    "dledger_disk_level",
    "0: room, 1: fills up, 2: oldest segments are deleted early, 3: messages are refused.",
)
DISK_WATERMARK = _gauge(
    "dledger_disk_watermark_ratio", "The share of the disk at which a level begins.", "level"
)
DISK_STALLED = _gauge(
    "dledger_disk_stalled", "1 while a write of the log takes longer than disk_stall_ms."
)

# --- damage

DAMAGED_ENTRIES = _gauge("dledger_damaged_entries", "Entries of the log that are damaged now.")
DAMAGE_FOUND = _counter(
    "dledger_damage_found_total",
    "Damage found since the start: in entries, or in derived files.",
    "kind",
)
DAMAGE_REPAIRED = _counter("dledger_damage_repaired_total", "Repaired damage.", "kind")
STATE_DIVERGED = _gauge(
    "dledger_state_diverged", "1 if the node's state differs from its group's; it serves nobody."
)
REFILLING = _gauge("dledger_refilling", "1 while the node gets old entries from its peers.")
SCRUB_PASSES = _counter("dledger_scrub_passes_total", "Complete passes of the scrub over the log.")
SCRUB_BYTES = _counter("dledger_scrub_bytes_total", "Bytes of the log that the scrub has read.")
SCRUB_PROGRESS = _gauge(
    "dledger_scrub_progress_ratio",
    "The share of the log that the present pass of the scrub has read.",
)

# --- a NameServer

NS_BROKERS = _gauge("dledger_nameserver_brokers", "Registered broker processes.")
NS_GROUPS = _gauge("dledger_nameserver_broker_groups", "Registered broker names.")
NS_LEADERLESS = _gauge(
    "dledger_nameserver_broker_groups_without_leader",
    "Broker names without a registered leader; producers cannot send to them.",
)
NS_TOPICS = _gauge("dledger_nameserver_topics", "Topics that brokers have registered.")

METRICS = tuple(_ALL)
"""All metrics."""

ON_BOTH = frozenset((CONNECTIONS, REFUSED, LOOP_LAG_SECONDS))
ON_NAMESERVER = ON_BOTH | {NS_BROKERS, NS_GROUPS, NS_LEADERLESS, NS_TOPICS}
"""The metrics of a NameServer. A broker has all except those of NameServers alone."""
ON_BROKER = frozenset(METRICS) - (ON_NAMESERVER - ON_BOTH)

PROCESS = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
)
"""The metrics of Prometheus' client library for each process, by their usual names."""
