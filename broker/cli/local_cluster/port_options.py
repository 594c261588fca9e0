"""The options for the ports of a local cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker.cli.local_cluster.port_layout import DEFAULT_PORTS, GRPC_PORT_DISTANCE
from broker.cli.terminal.numbers import PORT

F = TypeVar("F", bound=Callable[..., Any])


def port_options(command: F) -> F:
    """The fields of :class:`Ports`; None if not given."""
    for name, field, which, usual in (
        ("--grpc-port", "grpc", "first broker's gRPC", f"its port plus {GRPC_PORT_DISTANCE}"),
        ("--http-port", "http", "first broker's HTTP", DEFAULT_PORTS.http),
        ("--port", "remoting", "first broker's", DEFAULT_PORTS.remoting),
        ("--namesrv-port", "namesrv", "NameServer's", DEFAULT_PORTS.namesrv),
    ):
        told = f"The {which} port (default: {usual}, or unchanged; 0: any free port)."
        command = click.option(name, field, type=PORT, metavar="PORT", help=told)(command)
    return command
