"""All limits of a broker or a NameServer for data that others can make grow, in one typed place.

A limit is a field of a class; modules use the instance below the class. A name with ``_MAX``
elsewhere is not such a limit, and its docstring begins with one of these words
(``tests/broker/test_limits.py``):

- ``Format:`` fixed by a format or by RocketMQ's protocol.
- ``Setting:`` the range of a value in ``node.toml``.
- ``Pace:`` how much this process does by itself at a time, or how long it waits.
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
    """A connection without traffic in either direction is closed after this time."""

    connections_max: int = 20_000
    """Open connections; the server closes further ones at once. The limit is lower if the process
    may not open so many files (:mod:`broker.system.file_descriptor_limits`)."""

    backlog: int = 1024
    """Connections that wait to be accepted; RocketMQ's ``serverSocketBacklogSize``."""
    handshakes_max: int = 1024
    """With TLS, connections whose first byte or handshake has not come yet."""
    write_buffer_high: int = 1024 * 1024
    """Bytes that the peer has not read; above that the server handles none of its requests."""
    write_buffer_max: int = 64 * 1024 * 1024
    """Answers to held pulls are still sent above that; then the peer is disconnected."""
    kernel_unsent: int = 128 * 1024
    """Unsent bytes that the kernel buffers for each connection; no budget counts them."""

    pending_max: int = 65_536
    """Requests of one connection that wait for an answer."""

    turn_frames: int = 768
    """Frames, or KiB of body, that are handled before heartbeats and disks get a turn."""

    turn_seconds: float = 0.01
    """The same in time. Only a single request may take longer."""

    unhandled_max: int = 128 * 1024 * 1024
    """Bytes of incomplete frames, and of requests that wait for a turn, of all connections. Above
    that, the connection with the oldest of them is closed."""

    unhandled_each: int = 16 * 1024
    """The part of these bytes that each connection may always have."""

    unread_max: int = 256 * 1024 * 1024
    """Bytes of answers that peers have not read, of all connections. Above that, the connection
    that has had some for the longest time is closed."""

    unread_each: int = 64 * 1024
    """The part of these bytes that each connection may always have."""

    progress_seconds: float = 15.0
    progress_bytes: int = 8 * 1024
    """An incomplete frame must get so many bytes in so many seconds: 5 kbit/s are enough."""
    header_template_size_max: int = 4096
    header_templates_max: int = 64
    """Bytes of a header with a template; templates of a connection, before all are dropped."""

    connect_seconds: float = 3.0

    stop_seconds: float = 1.0
    """How long a closing server waits for peers to read the written answers."""


REMOTING = RemotingLimits()


@dataclass(frozen=True, slots=True)
class ForwardingLimits:
    """Limits of the requests that a follower forwards to the leader."""

    wait_seconds: float = 1.0
    """How long requests wait for a leader. Then all are refused at once until there is one."""

    waiting_max: int = 10_000
    waiting_bytes_max: int = 32 * 1024 * 1024
    """Waiting requests, and the bytes of their bodies."""

    answer_seconds: float = 5.0
    """How long the leader may take to answer. Clients wait for 3 s by default."""

    http_answer_max: int = 64 * 1024
    """Bytes of the leader's answer over HTTP. An answer to a message has far fewer."""


FORWARDING = ForwardingLimits()


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Limits of the replicated state: topics, groups and offsets of a broker group."""

    topics_max: int = 20_000
    """Topics. Their settings fit one frame, with names of any length, also in code 21."""

    automatic_topics_max: int = 10_000
    """Topics above which messages create none: a faulty producer leaves room for others."""

    queues_max: int = 16_384
    """Queues of one topic. A queue costs nothing before its first message."""

    all_queues_max: int = 262_144
    """Queues of all topics. Listing them takes a step for each queue that has had a message."""

    automatic_queues_max: int = 131_072
    """Queues of all topics above which messages create no topic."""

    groups_max: int = 10_000
    """Subscription groups. Each may add a topic for dead letters above ``topics_max``."""

    automatic_groups_max: int = 8_000
    """Groups above which a consumer of an unknown group creates none."""

    retry_queues_max: int = 256
    """Queues of a group's retry topic."""
    offsets_max: int = 262_144
    """Committed offsets, one for each queue of a group. A checkpoint packs so many in 0.2 s."""

    pop_queue_deliveries_max: int = 10_000
    """Deliveries by POP of a group in one queue: messages that are not acknowledged, or that wait
    for their message group. Above that the group receives no new messages."""

    pop_deliveries_max: int = 131_072
    """Deliveries of all groups and queues. A checkpoint packs so many in 0.05 s."""

    transactions_max: int = 65_536
    """Open transactions; above that half messages are refused."""

    recalled_max: int = 131_072
    """Recalled timed messages whose time has not come."""

    accounts_max: int = 1_000
    account_permissions_max: int = 1_000
    """Accounts; and the permissions of one account for topics, and as many for groups."""
    account_changes_max: int = 64
    """Waiting requests for changes of accounts."""


STATE = StateLimits()


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """Limits of requests that are not applied yet, and of their memory."""

    pending_bytes_max: int = 64 << 20
    """Bytes of pending requests; above that requests are refused as busy."""

    suspect_bytes_max: int = 64 << 20
    """Bytes of suspected retries that are being looked up; above that they are refused as busy."""

    recent_bytes_max: int = 32 << 20
    """Bytes of the newest applied entries in memory, for readers."""

    keys_max: int = 256
    """Keys in the ``KEYS`` of a message. Each is a row of the key index; a few are usual."""

    key_size_max: int = 4096
    """Bytes of one key."""

    batch_messages_max: int = 16_384
    """Messages in one request; so many take 0.05 s."""

    batch_keys_max: int = 65_536
    """Keys of all messages in one request; so many take 0.02 s."""

    property_templates_max: int = 4096
    """Property templates; beyond that all are dropped."""

    property_template_bytes_max: int = 1024
    """Bytes of properties with a template. Longer ones get none: each would have its own and fill
    the memory."""


PRODUCE = ProduceLimits()


@dataclass(frozen=True, slots=True)
class ConsumeLimits:
    """Limits of deliveries."""

    pull_messages_max: int = 1024
    pull_bytes_max: int = 4 << 20

    long_poll_seconds_max: float = 60.0
    """How long a request is held, longer than any client waits."""

    pop_messages_max: int = 32
    """Messages of one receive request, as in RocketMQ."""

    pop_invisible_ms_max: int = 12 * 3600 * 1000
    """The longest invisible time, as in RocketMQ's proxy."""

    pop_waiting_rows_max: int = 256
    """Messages of a queue that wait for an earlier one of their message group."""

    pop_handles_max: int = 1024
    """Receipt handles in one request."""

    held_pulls_max: int = 65_536
    """Held pulls; a further one is answered at once without a message."""

    held_expressions_max: int = 8 << 20
    """Characters of the expressions of all held pulls, and as many of what waits by POP; parsed,
    each takes up to 30 bytes."""

    query_messages_max: int = 64
    """RocketMQ's ``maxMsgsNumBatch``."""

    query_bytes_max: int = 8 << 20
    """Bytes of the messages of a query, if there are several: each may have 15 MiB."""

    queue_rows_max: int = 1000
    """Rows of a ConsumeQueue in one answer."""

    expression_depth_max: int = 64
    """The depth of nested parentheses and signs in an SQL92 expression."""

    expression_links_max: int = 200
    """``AND``, ``OR`` and ``=`` in a row, because evaluation nests them. ``IN`` takes lists of
    2,000."""


CONSUME = ConsumeLimits()


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of heartbeats, and of other data of clients on a broker."""

    groups_max: int = 1024
    """Producer and consumer groups of one connection. An application has a few."""
    ids_max: int = 64
    """Client ids of one connection. An application has one."""

    members_max: int = 10_000
    """Connections in one group: each is notified whenever one comes or goes."""

    memberships_max: int = 131_072
    """Memberships of all connections in all groups."""

    subscriptions_max: int = 1024
    """Topics that one group is subscribed to."""

    name_size_max: int = 512
    """Characters of a client id, of a producer group and of a subscribed topic."""

    held_pulls_max: int = 16_384
    """Held pulls of one connection: one for each queue of the largest topic."""

    locks_max: int = 262_144
    """Queue locks of all groups."""

    topic_metrics_max: int = 65_536
    """Pairs of a topic and a group with counters; further pairs have none."""


CLIENTS = ClientLimits()


@dataclass(frozen=True, slots=True)
class NameServerLimits:
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
    """Encoded answers in the cache."""


NAMESERVER = NameServerLimits()


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of the content of requests, besides the size of a frame."""

    json_marks: int = 40_000
    """Braces, brackets, colons and commas in the JSON of a request; so many take 10 ms. A heartbeat
    with 2,000 subscriptions has as many. The JSON may have 50 bytes for each."""

    lock_marks: int = 131_072
    """The same for a request for queue locks, which names each queue: 20 ms for most queues."""

    settings_size: int = 64 * 1024
    """Bytes of a change of settings by an operator."""

    lenient_json_size: int = 256 * 1024
    """Bytes of JSON with unquoted keys."""

    lenient_json_marks: int = 20_000
    """Braces, brackets, colons and commas of such JSON; so many take 10 ms: the keys of 2,200
    queues."""

    lenient_json_depth: int = 1024
    """The depth of nested arrays and objects of such JSON, the same as for standard JSON."""

    inflated_size: int = 16 * 1024 * 1024
    """Bytes of a body after decompression, as many as for a plain one."""

    expression_size: int = 64 * 1024
    """Characters of a subscription's expression. Answers about its group contain it."""

    expression_tokens: int = 4096
    """Words, numbers, texts and signs of an SQL92 expression; so many take 10 ms. ``IN`` takes
    lists of 2,000."""

    expression_size_usual: int = 4 * 1024
    """Characters of a short expression: many parsed short ones are cached, and few longer ones."""


BODY_LIMITS = BodyLimits()
