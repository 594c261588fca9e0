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


@dataclass(frozen=True, slots=True)
class RemotingLimits:
    """Of the remoting port. Defaults are RocketMQ's where it has them (idle, connect)."""

    idle_seconds: float = 120.0
    """A connection over which nothing went in either direction for so long is closed."""

    connections_max: int = 20_000
    """The server closes a connection beyond these as soon as it is accepted. Fewer, where the
    process may not have so many files open (:mod:`broker.system.file_descriptor_limits`)."""

    backlog: int = 1024
    """Connections that wait to be accepted; RocketMQ's ``serverSocketBacklogSize``."""
    handshakes_max: int = 1024
    """With TLS, connections whose first byte or handshake has not come."""
    write_buffer_high: int = 1024 * 1024
    """Bytes that wait for the peer to read; above, the server stops reading its requests."""
    write_buffer_max: int = 64 * 1024 * 1024
    """Answers to earlier requests still come after that; a peer that lets so much wait is cut."""

    pending_max: int = 65_536
    """Requests of one connection that may wait for an answer."""

    turn_frames: int = 768
    """Frames, or KiB of body, that are handled before heartbeats and disks have their turn."""

    incomplete_max: int = 128 * 1024 * 1024
    """Bytes of frames that were begun and not finished, of all connections of a server. Above, the
    connection is closed whose frame was begun first."""

    incomplete_each: int = 16 * 1024
    """Bytes of such a frame that each connection may keep all the same."""

    progress_seconds: float = 15.0
    progress_bytes: int = 8 * 1024
    """Of a frame that was begun so many bytes must come in so many seconds, or the rest of it. A
    link that carries 5 kbit/s is quick enough."""
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
    """How long requests wait for a leader. After that they are refused at once until there is one:
    a client of several broker groups then turns to another."""

    waiting_max: int = 10_000
    waiting_bytes_max: int = 32 * 1024 * 1024
    """Requests, and bytes of their bodies, that may wait."""

    answer_seconds: float = 5.0
    """How long the leader may take to answer. Clients wait for 3 s by default."""


FORWARDING = ForwardingLimits()


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Of the replicated state: what a group of brokers keeps of topics, groups and offsets."""

    topics_max: int = 20_000
    """Of a group of brokers. With names of any length their settings fit one frame, in a
    registration and in the answer to code 21."""

    automatic_topics_max: int = 10_000
    """Beyond these sending to an unknown topic creates none: what a faulty producer leaves is room
    enough for an operator."""

    queues_max: int = 16_384
    """Of one topic. A queue costs nothing before its first message."""

    all_queues_max: int = 262_144
    """Of all topics. Lists of them take a step for each that ever had a message."""

    automatic_queues_max: int = 131_072
    """Of all topics, beyond which sending creates no topic."""

    groups_max: int = 10_000
    """Subscription groups. Each may bring a topic for dead letters beyond ``topics_max``."""

    automatic_groups_max: int = 8_000
    """Beyond these a consumer of an unknown group creates none."""

    retry_queues_max: int = 256
    """Of one group's retry topic."""
    offsets_max: int = 262_144
    """Committed offsets: of each group one for each queue that it consumes. They are packed for
    each checkpoint, which takes 0.2 s for so many."""

    transactions_max: int = 65_536
    """Half messages are refused while so many transactions are open."""

    accounts_max: int = 1_000
    account_permissions_max: int = 1_000
    """Of one account for topics, and as many for groups."""
    account_changes_max: int = 64
    """Requests for such changes that wait for each other."""


STATE = StateLimits()


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """Of what is taken in and not yet applied, and of what is remembered of it."""

    pending_bytes_max: int = 64 << 20
    """The waiting proposals; beyond it requests are refused as busy."""

    suspect_bytes_max: int = 64 << 20
    """Of requests that may have been stored before, until that is found out; beyond it they are
    refused as busy."""

    recent_bytes_max: int = 32 << 20
    """Of the newest applied entries, which are kept in memory for those who read them."""

    keys_max: int = 256
    """Words in the ``KEYS`` of a message: each is a row of the key index, several times larger than
    a short word. A message has a few."""

    key_size_max: int = 4096
    """Bytes of one of them."""

    batch_keys_max: int = 131_072
    """Keys of all messages in one request, which takes 0.1 s for so many. It is several for each
    message even where 4 MiB are full of short ones."""

    property_templates_max: int = 4096
    """How many templates of properties are remembered; then it starts again."""

    property_template_bytes_max: int = 1024
    """Of properties that are longer, each with a template of its own, memory would be full of
    templates."""


PRODUCE = ProduceLimits()


@dataclass(frozen=True, slots=True)
class ConsumeLimits:
    """Of what is read."""

    pull_messages_max: int = 1024
    pull_bytes_max: int = 4 << 20

    long_poll_seconds_max: float = 60.0
    """Longer than any client waits; a client that asks for more is answered then."""

    held_pulls_max: int = 65_536
    """Pulls held at once; one more is told at once that there is nothing."""

    held_expressions_max: int = 8 << 20
    """Characters of the expressions of all held pulls: what is made of them takes up to 30 bytes
    for each, unless several have the same."""

    query_messages_max: int = 64
    """RocketMQ's ``maxMsgsNumBatch``."""

    query_bytes_max: int = 8 << 20
    """Of those messages, if there are several: each may have 15 MiB."""

    queue_rows_max: int = 1000
    """Of a ConsumeQueue in one answer."""

    expression_depth_max: int = 64
    """Of parentheses and signs within each other, in an SQL92 expression."""

    expression_links_max: int = 200
    """Of ``AND``, ``OR`` and tests for equality in a row: each is evaluated within the next, and
    the interpreter's stack has an end. Longer lists of values are what ``IN`` is for."""


CONSUME = ConsumeLimits()


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Of what heartbeats say, and of other things that clients hold on a broker."""

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
    """Pairs of a topic and a group whose messages are counted; what others get is not."""


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
    """Addresses of one broker name, and those that a leader tells; also filter servers."""
    name_size_max: int = 512
    """Characters of a name or an address."""

    departed_brokers_max: int = 1_024
    """Broker names that are remembered though no process of theirs is registered."""

    expiry_ms_max: int = 3_600_000
    """How long a silent broker may want to be known."""

    term_max: int = 1 << 62
    key_values_max: int = 10_000
    """Key-value pairs in all namespaces."""

    key_value_bytes_max: int = 4 << 20
    """Of their namespaces, keys and values. Those of the order configuration are in the answer to
    each registration."""

    routes_kept_max: int = 10_000
    """Answers that are kept as they were encoded."""


NAMESERVER = NameServerLimits()


@dataclass(frozen=True, slots=True)
class AdminLimits:
    """Of the answers to operators."""

    queues_listed_max: int = 100_000
    """In one answer about the progress of groups; some 100 bytes each, so that it fits a frame.
    Beyond, the question is refused, and may be asked for one group and one topic."""

    empty_queues_max: int = 1024
    """A topic with more queues is listed with those alone that ever had a message."""

    nodes_asked_max: int = 256
    """The most nodes that the console asks, even if a NameServer names more."""

    answer_bytes_max: int = 16 << 20
    """Of a node that the console asks; what is larger counts as no answer."""


ADMIN = AdminLimits()


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Of the HTTP port of a broker."""

    connections_max: int = 512
    """The server closes a connection beyond these as soon as it is accepted."""
    backlog: int = 128
    """Connections that wait to be accepted."""
    handshakes_max: int = 128
    """As :attr:`RemotingLimits.handshakes_max`."""
    idle_seconds: float = 60.0
    """A connection is closed where no request, with all its headers, came for so long."""

    headers_max: int = 64
    """Of one request; each has at most 8,190 bytes."""

    stall_seconds: float = 20.0
    """A connection is closed where no byte of a body came, or none of an answer was taken, for so
    long."""

    body_bytes_per_second: int = 16 << 10
    """The rate of a body that takes longer than ``stall_seconds``."""

    memory_max: int = 64 << 20
    """Bytes of requests and of answers that may be in memory at a time, of all connections
    together; beyond, a request is refused as busy. One request of the largest size always fits."""

    free_bytes: int = 64 << 10
    """This part of each request and answer is not counted: a small one always fits."""

    containers_max: int = 1000
    """Objects and lists in one request, which needs three. A list of two bytes takes 56 of memory
    and up to 300 ns: eight megabytes of them would hold the event loop for as long as an
    election."""

    strings_max: int = 50_000
    """As above. All properties of a message together have at most 32,767 bytes."""

    snapshots_max: int = 8
    """Snapshots that may lie in a node's own directory of snapshots."""

    path_size_max: int = 4096
    """Characters of a path, as on Linux."""
    path_depth_max: int = 64
    """Directories of a path."""


HTTP = HttpLimits()


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Of what requests hold, beyond the size of a frame."""

    lenient_json_size: int = 256 * 1024
    """Bytes of JSON in which keys may lack their quotes. It is read by this program, which takes
    up to a tenth of a second for so many; standard JSON may fill a frame."""

    lenient_json_depth: int = 1024
    """Of arrays and objects within each other there; the parser of standard JSON has the same."""

    inflated_size: int = 16 * 1024 * 1024
    """Bytes that a compressed body may become: as many as one that is sent as it is may have. A
    thousandth of them makes so many."""

    expression_size: int = 64 * 1024
    """Characters of a subscription's expression, whether tags or SQL92. They are kept, and sent to
    every client that asks for a group."""

    expression_size_usual: int = 4 * 1024
    """Parsed expressions are kept: many of up to this length, and few longer ones."""


BODY_LIMITS = BodyLimits()


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Of what a server writes to stderr."""

    line_max: int = 2000
    """Characters of a line, and as many of a traceback."""

    repeat_seconds: float = 10.0
    """Of the lines of one kind that anybody outside can cause, one is shown in so long."""

    kinds_max: int = 1024
    """Kinds of which that is remembered; then it starts again."""

    file_size: int = 32 * 1024 * 1024
    """Bytes after which another file is begun; 0: never."""
    files: int = 4
    """How many are kept, the newest included."""


@dataclass(frozen=True, slots=True)
class DescriptorLimits:
    """How the descriptors of a process are shared out; what is left is for remoting."""

    files_max: int = 1 << 20
    """The limit of open files (``ulimit -n``) is raised as far as the system lets it, and no
    further than to this."""

    broker_files: int = 768
    """For the files of a broker: up to 256 of queues, 128 segments of the log (twice if they are
    written past the page cache), and files that are read, checked and made now and then."""

    name_server_files: int = 64

    http: int = HTTP.connections_max
    """Connections of the HTTP port."""

    peers: int = 256
    """Connections of the port for peers: those linked, and as many that have not greeted yet."""
