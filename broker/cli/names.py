"""Types of arguments that name a server, a topic or a group. What cannot be one is bad usage."""

from __future__ import annotations

import argparse

from broker.client.routes import parse_name_servers
from broker.remoting.client import split_address
from broker.topics import NameRefusedError, check_group_name, check_topic_name


def server_address(text: str) -> str:
    """The type of an option that says where a server is."""
    try:
        split_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def name_servers(text: str) -> str:
    """The type of ``--namesrv``: addresses of which there is at least one."""
    addresses = [server_address(part) for part in parse_name_servers(text)]
    if not addresses:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address host:port")
    return ";".join(addresses)


def topic_name(text: str) -> str:
    """The type of an argument that names a topic."""
    try:
        check_topic_name(text)
    except NameRefusedError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def group_name(text: str) -> str:
    """The type of an argument that names a consumer group."""
    try:
        check_group_name(text)
    except NameRefusedError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
