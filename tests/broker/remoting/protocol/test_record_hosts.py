"""Hosts in records: four bytes, whatever the host is."""

from __future__ import annotations

import ipaddress
import struct

from hypothesis import given
from hypothesis import strategies as st

from broker.remoting.protocol.addresses import host_bytes

RESERVED = ipaddress.IPv4Network("240.0.0.0/4")


def unpack(host: bytes) -> tuple[ipaddress.IPv4Address, int]:
    packed, port = struct.unpack(">4si", host)
    return ipaddress.IPv4Address(packed), port


@given(st.ip_addresses(v=4), st.integers(1, 65535))
def test_an_ipv4_address_is_itself(address: ipaddress.IPv4Address, port: int) -> None:
    assert unpack(host_bytes(str(address), port)) == (address, port)
    assert host_bytes(f"::ffff:{address}", port) == host_bytes(str(address), port)


@given(st.integers(1 << 48, (1 << 128) - 1).map(ipaddress.IPv6Address))
def test_any_other_host_is_a_reserved_address(address: ipaddress.IPv6Address) -> None:
    found, port = unpack(host_bytes(str(address), 7))
    assert found in RESERVED
    assert port == 7


def test_hosts_are_told_apart() -> None:
    hosts = ["::1", "fe80::1", "n0.example", "n1.example"]
    assert len({host_bytes(host, 10911) for host in hosts}) == len(hosts)
