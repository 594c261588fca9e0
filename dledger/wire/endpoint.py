"""Where a server listens, or is dialled: a host and a port.

As text that is ``host:port``. A host is an IPv4 address, an IPv6 address in brackets, such as
``[::1]:9876``, or a name. Names are resolved when somebody dials or listens, not here.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple, Self

from store.quoting import quoted

ENDPOINT_MAX = 260
"""Setting: characters; a name has up to 253, a colon and a port 6."""

NAME_MAX = 253
LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
"""A label of a name (RFC 1123), with the underscores that container networks have."""

ANY_HOST = "::"
"""All addresses of this machine, those of IPv4 too."""


class EndpointError(ValueError):
    """A text that is no ``host:port``; says what it should be."""


class Endpoint(NamedTuple):
    """``host`` is an address as :mod:`ipaddress` writes it, without brackets, or a name."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``host:port``. Raises :class:`EndpointError`."""
        if len(text) > ENDPOINT_MAX:
            raise EndpointError(f"{quoted(text)} is not host:port, such as 127.0.0.1:10911")
        host, colon, port = text.rpartition(":")
        numeric = port.isascii() and port.isdigit() and len(port) < 6
        if not colon or not numeric or not 0 < int(port) < 65536:
            raise EndpointError(f"{quoted(text)} is not host:port, such as 127.0.0.1:10911")
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            raise EndpointError(
                f"{quoted(text)} is not host:port: an IPv6 address stands in brackets, "
                "such as [::1]:10911"
            )
        try:
            return cls(parse_host(host), int(port))
        except EndpointError as error:
            raise EndpointError(f"{quoted(text)} is not host:port: {error}") from None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can dial it, as far as can be told without resolving it."""
        return is_loopback(self.host)


def join_host_port(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_host(text: str) -> str:
    """A host as :class:`Endpoint` has it; brackets go. Raises :class:`EndpointError`."""
    in_brackets = text.startswith("[") and text.endswith("]")
    host = text[1:-1] if in_brackets else text
    if is_address(host) and "%" not in host and (":" in host or not in_brackets):
        return str(ipaddress.ip_address(host))
    if in_brackets:
        raise EndpointError(f"{quoted(text)} is no IPv6 address")
    if not _is_name(text):
        raise EndpointError(f"{quoted(text)} is neither an IP address nor the name of a host")
    return text


def _is_name(text: str) -> bool:
    labels = text.removesuffix(".").split(".") if len(text) <= NAME_MAX else [""]
    # A name whose last label is a number would be a mistyped IPv4 address.
    return all(map(LABEL.fullmatch, labels)) and not labels[-1].isdigit()


@lru_cache(maxsize=1024)
def address_host(address: str) -> str:
    """The host of the ``host:port`` of a connection, without brackets; empty without a port.

    What else it is, is not checked: other programs write it, too.
    """
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def is_address(host: str) -> bool:
    """Whether it is an IP address, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can dial the host, as far as can be told without resolving it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"


def listening_hosts(host: str) -> str | list[str]:
    """As ``create_server`` takes them. A socket of ``::`` alone would take no IPv4."""
    return [ANY_HOST, "0.0.0.0"] if host == ANY_HOST else host  # noqa: S104 - it was asked for
