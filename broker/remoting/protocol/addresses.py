"""Addresses as RocketMQ writes them: in text, and in the records of messages."""

from __future__ import annotations

import socket
from functools import lru_cache
from struct import Struct

from store.quoting import quoted

_HOST = Struct(">4si")

NO_HOST = bytes(_HOST.size)
"""In the place of an unknown address, or one without room in a record."""


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` as a pair; brackets around an IPv6 host are dropped. Raises ``ValueError``."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{quoted(address)} is not an address host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_name_servers(text: str) -> list[str]:
    """``host:port`` of each NameServer, separated by semicolons as RocketMQ writes them."""
    addresses = [address.strip() for address in text.replace(",", ";").split(";")]
    return [address for address in addresses if address]


@lru_cache(maxsize=256)
def host_bytes(host: str, port: int) -> bytes:
    """An address as a record holds it: 4 bytes of IPv4, i32 port, big-endian.

    An IPv6 address that wraps an IPv4 address is unwrapped; any other host gives :data:`NO_HOST`
    with the port.
    """
    try:
        return _HOST.pack(socket.inet_pton(socket.AF_INET, host.removeprefix("::ffff:")), port)
    except OSError:
        return _HOST.pack(bytes(4), port)
