"""``host:port`` as people write it."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.wire.endpoint import (
    NAME_MAX,
    Endpoint,
    EndpointError,
    address_host,
    is_loopback,
    join_host_port,
    listening_hosts,
    parse_host,
)

LABELS = st.from_regex(r"[a-z_]([a-z0-9_-]{0,61}[a-z0-9_])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join).filter(lambda n: len(n) <= NAME_MAX)
HOSTS = st.one_of(st.ip_addresses().map(str), NAMES)
PORTS = st.integers(1, 65535)


@given(HOSTS, PORTS)
def test_what_is_written_reads_the_same(host: str, port: int) -> None:
    endpoint = Endpoint(host, port)
    assert Endpoint.parse(str(endpoint)) == endpoint
    assert address_host(str(endpoint)) == host
    assert str(endpoint).count("[") == (":" in host)


@given(st.ip_addresses(v=6), PORTS)
def test_an_ipv6_address_has_one_spelling(address: ipaddress.IPv6Address, port: int) -> None:
    assert Endpoint.parse(f"[{address.exploded.upper()}]:{port}") == (str(address), port)


@given(st.text(max_size=300))
def test_any_text_is_an_endpoint_or_one_line_of_complaint(text: str) -> None:
    complaint = ""
    try:
        found = Endpoint.parse(text)
    except EndpointError as error:
        complaint = str(error)
    assert complaint or Endpoint.parse(str(found)) == found
    assert not complaint or (complaint.isprintable() and len(complaint) < 1000)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("10.0.0.1:10911", ("10.0.0.1", 10911)),
        ("[::1]:9876", ("::1", 9876)),
        ("[0:0::1]:9876", ("::1", 9876)),
        ("n:1", ("n", 1)),
        ("broker_1.Example.com.:65535", ("broker_1.Example.com.", 65535)),
        ("1a.2b:7", ("1a.2b", 7)),
    ],
)
def test_a_host_is_an_address_or_a_name(text: str, pair: tuple[str, int]) -> None:
    assert Endpoint.parse(text) == pair


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((each, "is not host:port") for each in ("", "host", ":1", "host:", "host:x", "h:0")),
        *((each, "is not host:port") for each in ("h:65536", "h:\u0661", "h:000001", "h" * 300)),
        ("::1:9876", "an IPv6 address stands in brackets"),
        ("[::1:9876", "an IPv6 address stands in brackets"),
        ("[10.0.0.1]:1", "is no IPv6 address"),
        ("[fe80::1%eth0\n]:1", "is no IPv6 address"),
        ("10.0.0.256:1", "neither an IP address nor the name of a host"),
        ("1.2.3:1", "neither an IP address nor the name of a host"),
        ("a..b:1", "neither an IP address nor the name of a host"),
        ("-a:1", "neither an IP address nor the name of a host"),
        (f"{'a' * 64}:1", "neither an IP address nor the name of a host"),
        ("u@h:1", "neither an IP address nor the name of a host"),
        ("http://h:1", "is not host:port"),
    ],
)
def test_what_is_no_endpoint_is_told(text: str, said: str) -> None:
    with pytest.raises(EndpointError) as caught:
        Endpoint.parse(text)
    assert said in str(caught.value)


def test_a_host_alone_may_have_brackets() -> None:
    assert parse_host("[::1]") == parse_host("::1") == "::1"
    assert join_host_port("::1", 80) == "[::1]:80"
    assert join_host_port("h", 80) == "h:80"
    assert address_host("nowhere") == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost", "LOCALHOST."])
def test_loopback_is_told_without_resolving(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "broker.example.com", "localhost.a"])  # noqa: S104 - read, not bound
def test_what_others_may_dial_is_no_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_all_addresses_are_those_of_both_families() -> None:
    assert listening_hosts("::") == ["::", "0.0.0.0"]  # noqa: S104 - read, not bound
    assert listening_hosts("::1") == "::1"
