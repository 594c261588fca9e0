"""The client's identity: its id towards brokers, and the unique keys of its messages."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

UNIQUE_KEY_SIZE = 32
"""The characters of a unique key: 20 of the client, 12 of the count."""

_COUNT_MASK = (1 << 48) - 1


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Address (IPv4), process id, and a nonce that tells two clients of one process apart."""

    address: str
    process_id: int
    nonce: int

    @property
    def client_id(self) -> str:
        """The client id as RocketMQ makes it: ``ip@instance``, where the instance is
        ``PID#nonce``."""
        return f"{self.address}@{self.process_id}#{self.nonce}"

    @property
    def unique_prefix(self) -> str:
        """The first 20 characters of this client's unique keys."""
        address = socket.inet_aton(self.address)
        return f"{address.hex().upper()}{self.process_id & 0xFFFF:04X}{self.nonce & 0xFFFFFFFF:08X}"


def local_identity(rng: Random) -> ClientIdentity:
    """The identity of a client in this process."""
    return ClientIdentity(_local_address(), os.getpid(), rng.getrandbits(32))


class UniqueKeys:
    """The values of UNIQ_KEY: 32 upper-case hex characters, as ``MessageClientIDSetter`` makes.

    The last 12 are a count. It starts at the milliseconds of the clock times 65536. So a restarted
    process does not repeat old keys, even if it has the same process id and nonce.
    """

    __slots__ = ("_next", "prefix")

    def __init__(self, identity: ClientIdentity, wall_clock: Callable[[], int]) -> None:
        self.prefix = identity.unique_prefix
        self._next = (wall_clock() << 16) & _COUNT_MASK

    def take(self, count: int = 1) -> int:
        """Reserves ``count`` keys with consecutive numbers; returns the number of the first."""
        first = self._next
        if first + count > _COUNT_MASK:  # so that a batch never wraps around
            first = 0
        self._next = first + count
        return first

    def key(self, number: int) -> str:
        """The key of a reserved number."""
        return f"{self.prefix}{number:012X}"

    def next(self) -> str:
        """Reserves the next key and returns it."""
        number = self._next
        if number >= _COUNT_MASK:
            number = 0
        self._next = number + 1
        return "%s%012X" % (self.prefix, number)  # noqa: UP031 - in three quarters of the time


def unique_keys(first: str, count: int) -> list[str]:
    """``count`` keys that were reserved together, given the first."""
    prefix, number = first[:20], int(first[20:], 16)
    return [f"{prefix}{number + i:012X}" for i in range(count)]


def _local_address() -> str:
    """The source address of packets to other machines. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:  # no route to other machines
            return "127.0.0.1"
        name: tuple[str, int] = probe.getsockname()
        return name[0]
