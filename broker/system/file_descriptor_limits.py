"""The number of connections that a server may have, given the open files of its process.

Each connection and each file of the log takes a descriptor. If connections took all of them, no
file could be opened.
"""

from __future__ import annotations

import logging
import resource
from typing import NamedTuple

from broker.limits import HTTP, RemotingLimits

log = logging.getLogger(__name__)


class DescriptorLimits(NamedTuple):
    """The shares of the descriptors of a process; the rest is for remoting."""

    files_max: int = 1 << 20
    """The limit of open files (``ulimit -n``) is raised up to this, as far as the system allows."""

    broker_files: int = 768
    """For the files of a broker: up to 256 of queues, 128 segments of the log (twice with direct
    I/O), and files that are open for a short time."""

    name_server_files: int = 64

    http: int = HTTP.connections_max
    """Connections of the HTTP port."""

    peers: int = 256
    """Connections of the peers' port: accepted ones, and as many that are not identified yet."""


class ConnectionLimits(NamedTuple):
    """The most open connections of each port."""

    remoting: RemotingLimits
    http: int
    peers: int


def raise_file_limit(limits: DescriptorLimits) -> int:
    """Raises the soft limit of open files to the hard one; returns the present limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.files_max if hard == resource.RLIM_INFINITY else min(hard, limits.files_max)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits.files_max if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("at most %d files can be open: %s", soft, error)
        return soft
    return wanted


def connections_of_broker(files: int, limits: DescriptorLimits) -> ConnectionLimits:
    """The limits of a broker whose process may have ``files`` open files."""
    http, peers = min(limits.http, files // 8), min(limits.peers, files // 8)
    left = files - min(limits.broker_files, files // 2) - http - peers
    return ConnectionLimits(_remoting(left), http, peers)


def connections_of_name_server(files: int, limits: DescriptorLimits) -> RemotingLimits:
    """The limits of a NameServer whose process may have ``files`` open files."""
    return _remoting(files - min(limits.name_server_files, files // 2))


def _remoting(connections: int) -> RemotingLimits:
    usual = RemotingLimits()
    return usual._replace(connections_max=max(1, min(usual.connections_max, connections)))
