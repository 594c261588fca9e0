"""Types of arguments that name a server, a topic or a group."""

from __future__ import annotations

import re
from collections.abc import Callable

from broker.remoting.protocol.addresses import parse_name_servers
from broker.topics_and_groups import NameRefusedError, check_group_name, check_topic_name
from dledger.wire.endpoint import Endpoint, EndpointError, parse_host
from store.quoting import quoted, shortened


def checked(check: Callable[[str], object], *failures: type[Exception]) -> Callable[[str], str]:
    """An argument type that keeps the text; ``check`` raises one of ``failures`` for bad text."""

    def argument(text: str) -> str:
        try:
            check(text)
        except failures as error:
            raise ValueError(shortened(error)) from None
        return text

    return argument


topic_name = checked(check_topic_name, NameRefusedError)
group_name = checked(check_group_name, NameRefusedError)


URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def name_servers(text: str) -> str:
    """The type of ``--namesrv``: one or more addresses."""
    parts = parse_name_servers(text)
    if not parts or not all(_is_address(part) for part in parts):
        what = "is a URL" if URL.match(text) else "is not an address host:port"
        raise ValueError(
            f"{quoted(text)} {what}: give the NameServer's host and port, such as "
            "127.0.0.1:9876, or several with a semicolon between them"
        )
    return ";".join(parts)


def server_address(text: str) -> str:
    """The type of an option with the address of a server."""
    if not _is_address(text):
        raise ValueError(f"{quoted(text)} is not an address host:port")
    return text


def host_name(text: str) -> str:
    """The type of an option for one of this machine's addresses to listen on."""
    try:
        return parse_host(text)
    except EndpointError as error:
        raise ValueError(str(error)) from None


def _is_address(text: str) -> bool:
    try:
        Endpoint.parse(text)
    except EndpointError:
        return False
    return True
