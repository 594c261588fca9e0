"""Every bound on what others can grow in a broker or a NameServer, in one typed place.

A bound is a field of the class that names what it bounds; modules use the instance below it. A name
with ``_MAX`` elsewhere is no such bound, and its docstring begins with one of these words
(``tests/broker/test_limits.py``):

- ``Format:`` a number that a format or RocketMQ's protocol fixes.
- ``Setting:`` the range of a value in ``node.toml``, which is the operator's.
- ``Pace:`` how much this process does by itself in one go, or how long it waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.limits.grpc import GRPC, GrpcLimits
from broker.limits.operators import (
    ADMIN,
    CONSOLE,
    HTTP,
    METRICS,
    QUOTAS,
    AdminLimits,
    ConsoleLimits,
    HttpLimits,
    MetricLimits,
    QuotaLimits,
)

__all__ = [
    "ADMIN",
    "BODY_LIMITS",
    "CLIENTS",
    "CONSOLE",
    "CONSUME",
    "FORWARDING",
    "GRPC",
    "HTTP",
    "METRICS",
    "NAMESERVER",
    "PRODUCE",
    "QUOTAS",
    "REMOTING",
    "STATE",
    "AdminLimits",
    "BodyLimits",
    "ClientLimits",
    "ConsoleLimits",
    "ConsumeLimits",
    "ForwardingLimits",
    "GrpcLimits",
    "HttpLimits",
    "MetricLimits",
    "NameServerLimits",
    "ProduceLimits",
    "QuotaLimits",
    "RemotingLimits",
    "StateLimits",
]


@dataclass(frozen=True, slots=True)
class RemotingLimits:
    """Limits of the remoting port. Defaults are RocketMQ's if it has them (idle, connect)."""

    idle_seconds: float = 120.0
    """A connection without traffic in either direction for so long is closed."""

    connections_max: int = 20_000
    """The server closes further connections as soon as they are accepted. The limit is lower if the
    process may not open so many files (:mod:`broker.system.file_descriptor_limits`)."""

    backlog: int = 1024
    """Connections that wait to be accepted; RocketMQ's ``serverSocketBacklogSize``."""
    handshakes_max: int = 1024
    """With TLS, connections whose first byte or handshake has not come."""
    write_buffer_high: int = 1024 * 1024
    """Bytes that wait for the peer to read; above, the server handles none of its requests."""
    write_buffer_max: int = 64 * 1024 * 1024
    """Answers to held pulls still come after that; a peer that leaves more unread is cut."""
    kernel_unsent: int = 128 * 1024
    """Bytes that the kernel takes of each connection and has not sent: they are in no budget."""

    pending_max: int = 65_536
    """Requests of one connection that may wait for an answer."""

    turn_frames: int = 768
    """Frames, or KiB of body, that are handled before heartbeats and disks have their turn."""

    turn_seconds: float = 0.01
    """The same in time. Only a single request can take longer."""

    unhandled_max: int = 128 * 1024 * 1024
    """Bytes of incomplete frames, and of requests that wait for a turn, of all connections. Above,
    the link with the oldest of them is closed."""

    unhandled_each: int = 16 * 1024
    """Bytes of them that each connection may keep in any case."""

    unread_max: int = 256 * 1024 * 1024
    """Bytes of answers that peers have not read, of all connections. Above, the link that has had
    some for the longest time is closed."""

    unread_each: int = 64 * 1024
    """Bytes of them that each connection may have in any case."""

    progress_seconds: float = 15.0
    progress_bytes: int = 8 * 1024
    """An incomplete frame must get so many bytes in so many seconds: 5 kbit/s are quick enough."""
    header_template_size_max: int = 4096
    header_templates_max: int = 64
    """Headers that others of one connection are compared with; then it starts again."""

    connect_seconds: float = 3.0

    stop_seconds: float = 1.0
    """How long a closing server lets peers take the answers that are written already."""


REMOTING = RemotingLimits()


@dataclass(frozen=True, slots=True)
class ForwardingLimits:
    """Of the requests that a follower passes on to the leader."""

    wait_seconds: float = 1.0
    """Requests wait so long for a leader. After that all are refused at once until there is one."""

    waiting_max: int = 10_000
    waiting_bytes_max: int = 32 * 1024 * 1024
    """Requests, and bytes of their bodies, that may wait."""

    answer_seconds: float = 5.0
    """How long the leader may take to answer. Clients wait for 3 s by default."""

    http_answer_max: int = 64 * 1024
    """Bytes of the leader's answer over HTTP. An answer to a message has far less."""


FORWARDING = ForwardingLimits()


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Limits of the replicated state: topics, groups and offsets of a broker group."""

    topics_max: int = 20_000
    """With names of any length their settings fit one frame, also in the answer to code 21."""

    automatic_topics_max: int = 10_000
    """Sending creates no topic beyond these: a faulty producer leaves room for an operator."""

    queues_max: int = 16_384
    """Of one topic. A queue costs nothing before its first message."""

    all_queues_max: int = 262_144
    """The queues of all topics. Lists of them take a step for each that ever had a message."""

    automatic_queues_max: int = 131_072
    """Of all topics, beyond which sending creates no topic."""

    groups_max: int = 10_000
    """Subscription groups. Each may bring a topic for dead letters beyond ``topics_max``."""

    automatic_groups_max: int = 8_000
    """Beyond these a consumer of an unknown group creates none."""

    retry_queues_max: int = 256
    """Of one group's retry topic."""
    offsets_max: int = 262_144
    """Committed offsets, one for each queue of a group. A checkpoint packs as many in 0.2 s."""

    pop_queue_deliveries_max: int = 10_000
    """Messages of one queue that a group has received by POP and not acknowledged, or that wait for
    their message group. Beyond it receptions give nothing new."""

    pop_deliveries_max: int = 131_072
    """Those of all groups and queues. A checkpoint packs as many in 0.05 s."""

    transactions_max: int = 65_536
    """Half messages are refused while so many transactions are open."""

    recalled_max: int = 131_072
    """Timed messages that are taken back and whose time has not come."""

    accounts_max: int = 1_000
    account_permissions_max: int = 1_000
    """Of one account for topics, and as many for groups."""
    account_changes_max: int = 64
    """Requests for such changes that wait for each other."""


STATE = StateLimits()


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """Limits of requests that are not applied yet, and of the memory for them."""

    pending_bytes_max: int = 64 << 20
    """The waiting proposals; beyond it requests are refused as busy."""

    suspect_bytes_max: int = 64 << 20
    """Possible retries that are being looked up; further ones are refused as busy."""

    recent_bytes_max: int = 32 << 20
    """The newest applied entries, in memory for readers."""

    keys_max: int = 256
    """Words in the ``KEYS`` of a message, which has a few: each is a row of the key index."""

    key_size_max: int = 4096
    """Bytes of one of them."""

    batch_messages_max: int = 16_384
    """Messages in one request, which take 0.05 s."""

    batch_keys_max: int = 65_536
    """Keys of all messages in one request, which take 0.02 s."""

    property_templates_max: int = 4096
    """How many templates of properties are remembered; then it starts again."""

    property_template_bytes_max: int = 1024
    """Longer properties get no template: each would have its own and fill the memory."""


PRODUCE = ProduceLimits()


@dataclass(frozen=True, slots=True)
class ConsumeLimits:
    """Of what is read."""

    pull_messages_max: int = 1024
    pull_bytes_max: int = 4 << 20

    long_poll_seconds_max: float = 60.0
    """Longer than any client waits; a request for a longer time is answered then."""

    pop_messages_max: int = 32
    """Of one reception by POP, as in RocketMQ."""

    pop_invisible_ms_max: int = 12 * 3600 * 1000
    """How long a received message is invisible at most, as in RocketMQ's proxy."""

    pop_waiting_rows_max: int = 256
    """Messages of a queue that wait for an earlier one of their message group."""

    pop_handles_max: int = 1024
    """Receipt handles in one request."""

    held_pulls_max: int = 65_536
    """Pulls held at once; a further one is answered at once without a message."""

    held_expressions_max: int = 8 << 20
    """Characters of the expressions of all held pulls, and as many of what waits by POP; parsed,
    each takes up to 30 bytes."""

    query_messages_max: int = 64
    """RocketMQ's ``maxMsgsNumBatch``."""

    query_bytes_max: int = 8 << 20
    """Of those messages, if there are several: each may have 15 MiB."""

    queue_rows_max: int = 1000
    """Of a ConsumeQueue in one answer."""

    expression_depth_max: int = 64
    """Of parentheses and signs within each other, in an SQL92 expression."""

    expression_links_max: int = 200
    """``AND``, ``OR`` and ``=`` in a row: evaluation nests them. ``IN`` takes lists of 2,000."""


CONSUME = ConsumeLimits()


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of heartbeats, and of other things that clients hold on a broker."""

    groups_max: int = 1024
    """Of producers and consumers, over one connection. An application has a few."""
    ids_max: int = 64
    """Client ids over one connection. An application has one."""

    members_max: int = 10_000
    """Connections in one group: each is told whenever one comes or goes."""

    memberships_max: int = 131_072
    """Of all connections in all groups."""

    subscriptions_max: int = 1024
    """Topics that one group is subscribed to."""

    name_size_max: int = 512
    """Characters of a client's id, of a producer's group and of a topic that is subscribed to."""

    held_pulls_max: int = 16_384
    """Pulls of one connection that are held at once: one for each queue of the largest topic."""

    locks_max: int = 262_144
    """Queues that are locked by the members of groups."""

    topic_metrics_max: int = 65_536
    """Pairs of a topic and a group with counters; further pairs are not counted."""


CLIENTS = ClientLimits()


@dataclass(frozen=True, slots=True)
class NameServerLimits:
    """Of a NameServer."""

    processes_max: int = 10_000
    """Brokers that are registered."""

    connection_processes_max: int = 64
    """Those over one connection. A broker has a connection of its own."""

    topics_max: int = 150_000
    """In one registration."""

    all_topics_max: int = 500_000
    """Of all broker names, each with its own."""

    queues_max: int = 65_536
    """Of one topic: clients make an object of each."""

    members_max: int = 64
    """Addresses of one broker name, and those that a leader reports; also filter servers."""
    name_size_max: int = 512
    """Characters of a name or an address."""

    departed_brokers_max: int = 1_024
    """Broker names that are remembered though no process of theirs is registered."""

    expiry_ms_max: int = 3_600_000
    """How long a silent broker may want to be known."""

    term_max: int = 1 << 62
    """The greatest term of a leader that a registration may tell."""
    key_values_max: int = 10_000
    """Key-value pairs in all namespaces."""

    key_value_bytes_max: int = 4 << 20
    """Bytes of their namespaces, keys and values. Those of the order configuration are in the
    answer to each registration."""

    routes_kept_max: int = 10_000
    """Answers that are kept as they were encoded."""


NAMESERVER = NameServerLimits()


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Of what requests hold, beyond the size of a frame."""

    json_marks: int = 40_000
    """Braces, brackets, colons and commas in the JSON of a request, which take 10 ms: a heartbeat
    with 2,000 subscriptions has as many. It has at most 50 bytes for each."""

    lock_marks: int = 131_072
    """Those of a request for locks, which names each queue: 20 ms for the largest topic."""

    settings_size: int = 64 * 1024
    """Bytes of the settings that an operator changes at a time."""

    lenient_json_size: int = 256 * 1024
    """Bytes of JSON with keys without quotes."""

    lenient_json_marks: int = 20_000
    """Braces, brackets, colons and commas there, which take 10 ms: the keys of 2,200 queues."""

    lenient_json_depth: int = 1024
    """The depth of arrays and objects there; the parser of standard JSON has the same."""

    inflated_size: int = 16 * 1024 * 1024
    """Bytes of a body after decompression, as many as of a plain one."""

    expression_size: int = 64 * 1024
    """Characters of a subscription's expression. Clients that ask for its group get all of them."""

    expression_tokens: int = 4096
    """Words, numbers, texts and signs of an SQL92 expression, which take 10 ms: ``IN`` takes lists
    of 2,000."""

    expression_size_usual: int = 4 * 1024
    """Parsed expressions are kept: many of up to this length, and few longer ones."""


BODY_LIMITS = BodyLimits()
