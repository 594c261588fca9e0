"""The addresses of the members of a group: where they are dialled, and where this node listens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.config.setting import ANY_NODE, REQUIRED, Setting
from broker.config.setting_checks import ConfigError
from dledger.wire.endpoint import Endpoint

VIP_PORT_BELOW = 2
"""RocketMQ: a client that wants the VIP port subtracts this from the broker's."""


class Member(NamedTuple):
    """The addresses of one member of the group. Without ``grpc`` it does not serve gRPC."""

    peer: Endpoint
    address: Endpoint
    http: Endpoint
    grpc: Endpoint | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Those that it has, by their key in ``node.toml``."""
        return {key: value for key, value in self._asdict().items() if value is not None}


class Listen(NamedTuple):
    """Where this node listens; None: at its address among the members."""

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
        doc=f"Where this node listens for {of}, if not at its address among the members.",
        example=Endpoint("0.0.0.0", port),  # noqa: S104 - an example
    )
    for key, (of, port) in _PORTS.items()
)
MEMBER_SETTINGS = tuple(
    Setting(
        key=f"{ANY_NODE}.{key}",
        kind=Endpoint,
        default=Member._field_defaults.get(key, REQUIRED),
        doc=f"Where that node is dialled: {of}.",
        example=Endpoint("127.0.0.1", port),
    )
    for key, (of, port) in _PORTS.items()
)


def vip_address(of: Endpoint) -> Endpoint:
    """The second port for clients, below that at which they are served."""
    return Endpoint(of.host, of.port - VIP_PORT_BELOW)


def check_distinct(members: Mapping[str, Member], vip: Endpoint | None) -> None:
    """Raises :class:`~broker.config.setting_checks.ConfigError` if two ports are one."""
    seen: dict[Endpoint, str] = {}
    for node, member in members.items():
        for key, endpoint in member.endpoints.items():
            other = seen.setdefault(endpoint, f"members.{node}.{key}")
            if other != f"members.{node}.{key}":
                raise ConfigError(f"{endpoint} is {other} already", f"members.{node}.{key}")
    if vip is not None and vip.port < 1:
        raise ConfigError(f"{VIP_PORT_BELOW} below the broker's port there is none", "vip_port")
    if vip is not None and vip in seen:
        raise ConfigError(f"{vip} is {seen[vip]} already", "vip_port")
