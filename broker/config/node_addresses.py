"""The addresses of the members of a group, and the addresses at which this node listens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.config.setting import ANY_NODE, REQUIRED, Setting
from broker.config.setting_checks import ConfigError
from dledger.wire.endpoint import Endpoint

VIP_PORT_BELOW = 2
"""RocketMQ: the VIP port is the broker's port minus this."""


class Member(NamedTuple):
    """The addresses of one member of the group. Without ``grpc`` it has no gRPC port."""

    peer: Endpoint
    address: Endpoint
    http: Endpoint
    grpc: Endpoint | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Its addresses, by their key in ``node.toml``."""
        return {key: value for key, value in self._asdict().items() if value is not None}


class Listen(NamedTuple):
    """The addresses at which this node listens; None: its address among the members."""

    peer: Endpoint | None = None
    address: Endpoint | None = None
    http: Endpoint | None = None
    grpc: Endpoint | None = None


_PORTS = {
    "peer": ("Raft", 10915),
    "address": ("RocketMQ's remoting protocol", 10911),
    "http": ("HTTP", 8080),
    "grpc": ("RocketMQ 5's gRPC protocol", 10916),
}

LISTEN_SETTINGS = tuple(
    Setting(
        key=key,
        kind=Endpoint,
        default=None,
        doc=f"The address at which this node listens for {of}; default: its address in members.",
        example=Endpoint("0.0.0.0", port),  # noqa: S104 - an example
    )
    for key, (of, port) in _PORTS.items()
)
MEMBER_SETTINGS = tuple(
    Setting(
        key=f"{ANY_NODE}.{key}",
        kind=Endpoint,
        default=Member._field_defaults.get(key, REQUIRED),
        doc=f"The address of that node for {of}.",
        example=Endpoint("127.0.0.1", port),
    )
    for key, (of, port) in _PORTS.items()
)


def vip_address(of: Endpoint) -> Endpoint:
    """The second port for clients, below the broker's port."""
    return Endpoint(of.host, of.port - VIP_PORT_BELOW)


def check_distinct(members: Mapping[str, Member], vip: Endpoint | None) -> None:
    """Raises :class:`~broker.config.setting_checks.ConfigError` if two ports are the same."""
    seen: dict[Endpoint, str] = {}
    for node, member in members.items():
        for key, endpoint in member.endpoints.items():
            other = seen.setdefault(endpoint, f"members.{node}.{key}")
            if other != f"members.{node}.{key}":
                raise ConfigError(f"{endpoint} is {other} already", f"members.{node}.{key}")
    if vip is not None and vip.port < 1:
        raise ConfigError(f"there is no port {VIP_PORT_BELOW} below the broker's", "vip_port")
    if vip is not None and vip in seen:
        raise ConfigError(f"{vip} is {seen[vip]} already", "vip_port")
