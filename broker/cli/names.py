"""Types of arguments that name a server, a topic or a group. What cannot be one is bad usage."""

from __future__ import annotations

import argparse

from broker.cli.options import checked
from broker.client.routes import parse_name_servers
from broker.remoting.client import split_address
from broker.topics import NameRefusedError, check_group_name, check_topic_name

server_address = checked(split_address, ValueError)
"""The type of an option that says where a server is."""

topic_name = checked(check_topic_name, NameRefusedError)
group_name = checked(check_group_name, NameRefusedError)


def name_servers(text: str) -> str:
    """The type of ``--namesrv``: addresses of which there is at least one."""
    addresses = [server_address(part) for part in parse_name_servers(text)]
    if not addresses:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address host:port")
    return ";".join(addresses)
