"""Addresses as RocketMQ writes them: in text, and in the records of messages."""

from __future__ import annotations

import socket
from functools import lru_cache
from struct import Struct
from zlib import crc32

from dledger.wire.endpoint import join_host_port

_HOST = Struct(">4si")

RESERVED_BLOCK = 0xF0000000
"""240.0.0.0/4, which no host has (RFC 1112)."""

NO_HOST = bytes(_HOST.size)
"""Stands for an unknown address."""


def parse_name_servers(text: str) -> list[str]:
    """``host:port`` of each NameServer, separated by semicolons as RocketMQ writes them."""
    addresses = [address.strip() for address in text.replace(",", ";").split(";")]
    return [address for address in addresses if address]


@lru_cache(maxsize=256)
def host_bytes(host: str, port: int) -> bytes:
    """An address as a record holds it: 4 bytes of IPv4, i32 port, big-endian.

    Records have no room for IPv6: some clients of RocketMQ 4.x cannot read records with IPv6
    addresses. So an IPv6 address or a name becomes an address of the reserved block 240.0.0.0/4
    with 28 bits of its CRC-32 (like the "Pseudo IPv4" of proxies). It is the same for the same
    host, and belongs to no host. An IPv6 address that wraps an IPv4 address is unwrapped.
    """
    try:
        return _HOST.pack(socket.inet_pton(socket.AF_INET, host.removeprefix("::ffff:")), port)
    except OSError:
        number = RESERVED_BLOCK | crc32(host.encode()) & ~RESERVED_BLOCK
        return _HOST.pack(number.to_bytes(4, "big"), port)


def host_text(stored: bytes) -> str:
    """``host:port`` of an address in a record: 4 bytes of IPv4, or 16 of IPv6, and the port. An
    IPv6 address has brackets."""
    host, port = stored[:-4], int.from_bytes(stored[-4:], "big")
    family = socket.AF_INET if len(host) == 4 else socket.AF_INET6
    return join_host_port(socket.inet_ntop(family, host), port)
