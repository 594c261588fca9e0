"""Every bound on what others can grow in a broker or a NameServer, in one typed place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemotingLimits:
    """Of the remoting port. Defaults are RocketMQ's where it has them (idle, connect)."""

    idle_seconds: float = 120.0
    """A connection over which nothing went in either direction for so long is closed."""

    connections_max: int = 20_000
    """The server closes a connection beyond these as soon as it is accepted. Fewer, where the
    process may not have so many files open (:mod:`broker.filelimit`)."""

    backlog: int = 1024
    """Connections that wait to be accepted; RocketMQ's ``serverSocketBacklogSize``."""

    write_buffer_high: int = 1024 * 1024
    """Bytes that wait for the peer to read; above, the server stops reading its requests."""

    write_buffer_max: int = 64 * 1024 * 1024
    """Answers to earlier requests still come after that; a peer that lets so much wait is cut."""

    pending_max: int = 65_536
    """Requests of one connection that may wait for an answer."""

    unfinished_max: int = 128 * 1024 * 1024
    """Bytes of frames that were begun and not finished, of all connections of a server. Above, the
    connection is closed whose frame was begun first."""

    unfinished_each: int = 16 * 1024
    """Bytes of such a frame that each connection may keep all the same."""

    progress_seconds: float = 15.0
    progress_bytes: int = 8 * 1024
    """Of a frame that was begun so many bytes must come in so many seconds, or the rest of it. A
    link that carries 5 kbit/s is quick enough."""

    connect_seconds: float = 3.0

    stop_seconds: float = 1.0
    """How long a closing server lets peers take the answers that are written already."""


@dataclass(frozen=True, slots=True)
class AdminLimits:
    """Of the answers to operators."""

    queues_listed_max: int = 100_000
    """In one answer about the progress of groups; some 100 bytes each, so that it fits a frame.
    Beyond, the question is refused, and may be asked for one group and one topic."""

    empty_queues_max: int = 1024
    """A topic with more queues is listed with those alone that ever had a message."""

    nodes_asked_max: int = 256
    """Nodes that the console asks, whatever a NameServer names."""

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

    idle_seconds: float = 60.0
    """A connection is closed where no request, with all its headers, came for so long."""

    headers_max: int = 64
    """Of one request; each has at most 8,190 bytes."""

    stall_seconds: float = 20.0
    """A connection is closed where no byte of a body came, or none of an answer was taken, for so
    long."""

    body_bytes_per_second: int = 16 << 10
    """What a body that takes longer than ``stall_seconds`` must come at."""

    memory_max: int = 64 << 20
    """Bytes of requests and of answers that may be in memory at a time, of all connections
    together; beyond, a request is refused as busy. One request of the largest size always fits."""

    free_bytes: int = 64 << 10
    """So much of each request and answer is not counted: a small one fits whatever others hold."""

    containers_max: int = 1000
    """Objects and lists in one request, which needs three. A list of two bytes takes 56 of memory
    and up to 300 ns: eight megabytes of them would hold the event loop for as long as an
    election."""

    strings_max: int = 50_000
    """Likewise. All properties of a message together have at most 32,767 bytes."""

    told_max: int = 1000
    """Characters of a refusal, which may repeat what was sent."""

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

    lenient_json_size: int = 1024 * 1024
    """Bytes of JSON in which keys may lack their quotes. It is read by this program, which takes
    up to a fifth of a second for so many; standard JSON may fill a frame."""

    lenient_json_depth: int = 1024
    """Of arrays and objects within each other there; the parser of standard JSON has the same."""

    inflated_size: int = 16 * 1024 * 1024
    """Bytes that a compressed body may become: as many as one that is sent as it is may have. A
    thousandth of them makes so many."""

    expression_size: int = 64 * 1024
    """Characters of a subscription's expression, whether tags or SQL92. They are kept, and sent to
    whoever asks for a group."""

    expression_size_usual: int = 4 * 1024
    """What was made of an expression is remembered for many of up to so many characters, and for
    few that are longer."""


BODY_LIMITS = BodyLimits()


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Of what a server writes to stderr."""

    line_max: int = 2000
    """Characters of a line, and as many of a traceback."""

    repeat_seconds: float = 10.0
    """Of the lines of one kind that anybody outside can cause, one is shown in so long."""

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
    """For the files of a broker: up to 256 of queues, 128 segments of the log, twice where they are
    written past the page cache, and what is read, checked and made now and then."""

    name_server_files: int = 64

    http: int = HTTP.connections_max
    """Connections of the HTTP port."""

    peers: int = 256
    """Connections of the port for peers: those linked, and as many that have not greeted yet."""
