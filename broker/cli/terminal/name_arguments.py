"""Types of arguments that name a server, a topic or a group. Anything else is bad usage."""

from __future__ import annotations

import re
from collections.abc import Callable

from broker.remoting.protocol.addresses import parse_name_servers, split_address
from broker.topics_and_groups import NameRefusedError, check_group_name, check_topic_name
from store.quoting import quoted, shortened


def checked(check: Callable[[str], object], *failures: type[Exception]) -> Callable[[str], str]:
    """The type of an argument that stays unchanged; ``check`` raises the reason of a refusal."""

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
HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[?[0-9A-Fa-f:.]{2,45}\]?")


def name_servers(text: str) -> str:
    """The type of ``--namesrv``: one address at least."""
    parts = parse_name_servers(text)
    if not parts or not all(_is_address(part) for part in parts):
        what = "is a URL" if URL.match(text) else "is not an address host:port"
        raise ValueError(
            f"{quoted(text)} {what}: give the NameServer's host and port, such as "
            "127.0.0.1:9876, or several with a semicolon between them"
        )
    return ";".join(parts)


def server_address(text: str) -> str:
    """The type of an option that says where a server is."""
    if not _is_address(text):
        raise ValueError(f"{quoted(text)} is not an address host:port")
    return text


def host_name(text: str) -> str:
    """The type of an option for one of this machine's addresses to listen on."""
    if not _is_host(text):
        raise ValueError(f"{quoted(text)} is neither an address nor a host's name")
    return text


def _is_address(text: str) -> bool:
    try:
        host, _ = split_address(text)
    except ValueError:
        return False
    return _is_host(host)


def _is_host(text: str) -> bool:
    # A label of a name has 1 to 63 characters (RFC 1035); the last may be followed by a dot.
    labels = text.removesuffix(".").split(".")
    is_name = all(0 < len(label) < 64 for label in labels)
    return HOST.fullmatch(text) is not None and (is_name or ":" in text)
