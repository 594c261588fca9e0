"""``dledger namesrv``."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import time
from contextlib import AsyncExitStack

from broker.cli.terminal.command_error import CommandError
from broker.cli.terminal.foreground import announce, run_until_stopped, show_as
from broker.cli.terminal.name_arguments import host_name
from broker.cli.terminal.options import add_json, port_number
from broker.nameserver.server import NameServer, serve
from broker.system.log_lines import FORMATS, LEVELS
from broker.system.server_log import LogSettings, ServerLog
from dledger.node.service import StopSignal

EXAMPLES = """\
  dledger namesrv
  dledger namesrv --host 0.0.0.0 --port 9876
  dledger namesrv --http-port 8079                /metrics for Prometheus, /readyz for probes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", type=host_name, default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument(
        "--port", type=port_number, default=9876, help="default: 9876; 0: any that is free"
    )
    parser.add_argument(
        "--http-port",
        type=port_number,
        metavar="N",
        help="serve /metrics, /livez and /readyz there; 0: any that is free",
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="default: info")
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="default: text")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    show_as("dledger-namesrv")
    server_log = ServerLog(LogSettings(args.log_level, args.log_format))
    return run_until_stopped(lambda stop: _serve(args, stop), server_log.reopen)


async def _serve(args: argparse.Namespace, stop: StopSignal) -> int:
    try:
        nameserver = await serve(args.host, args.port)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {args.host}:{args.port} ({_reason(error)}): "
            "stop what uses it, or choose another with --port"
        ) from error
    document = {"namesrv": f"{args.host}:{nameserver.port}"}
    async with AsyncExitStack() as running:
        running.push_async_callback(nameserver.stop)
        if args.http_port is not None:
            document["http"] = f"{args.host}:{await _serve_http(args, nameserver, running)}"
        line = f"the NameServer listens on {document['namesrv']}"
        announce(document, line, as_json=args.json)
        await stop.asked
    return 0


async def _serve_http(
    args: argparse.Namespace, nameserver: NameServer, running: AsyncExitStack
) -> int:
    """The port of HTTP, which is stopped with what is ``running``."""
    # Imported for those alone who ask for it: it is three quarters of the start.
    from broker.nameserver.http_server import NameServerHttp  # noqa: PLC0415

    http = NameServerHttp(
        nameserver,
        asyncio.get_running_loop(),
        args.host,
        args.http_port,
        clock=time.monotonic,
    )
    try:
        await http.start()
    except OSError as error:
        raise CommandError(
            f"cannot listen on {args.host}:{args.http_port} ({_reason(error)}): "
            "stop what uses it, or choose another with --http-port"
        ) from error
    running.push_async_callback(http.stop)
    return http.port


def _reason(error: OSError) -> str:
    """A name that cannot be resolved has an error number of its own kind."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno or 0)
