"""The options for the ports of a local cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker.cli.local_cluster.port_layout import DEFAULT_PORTS, GRPC_PORT_DISTANCE
from broker.cli.terminal.numbers import PORT

F = TypeVar("F", bound=Callable[..., Any])


def port_options(command: F) -> F:
    """The parameters ``namesrv_port``, ``port``, ``http_port`` and ``grpc_port``; None if not
    given."""
    for name, what, usual in (
        ("--grpc-port", "The first broker's gRPC port", f"its port plus {GRPC_PORT_DISTANCE}"),
        ("--http-port", "The first broker's HTTP port", DEFAULT_PORTS.http),
        ("--port", "The first broker's port", DEFAULT_PORTS.remoting),
        ("--namesrv-port", "The NameServer's port", DEFAULT_PORTS.namesrv),
    ):
        told = f"{what} (default: {usual}, or unchanged; 0: any free port)."
        command = click.option(name, type=PORT, metavar="PORT", help=told)(command)
    return command
