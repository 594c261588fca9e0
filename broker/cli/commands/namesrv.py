"""``dledger namesrv``."""

from __future__ import annotations

import argparse
import os
import socket

from broker.cli.terminal.command_error import CommandError
from broker.cli.terminal.foreground import announce, run_until_stopped, show_as
from broker.cli.terminal.name_arguments import host_name
from broker.cli.terminal.options import add_json, port_number
from broker.nameserver.server import serve
from broker.system.log_output import log_to_stderr
from dledger.node.service import StopSignal

EXAMPLES = """\
  dledger namesrv
  dledger namesrv --host 0.0.0.0 --port 9876
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", type=host_name, default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument(
        "--port", type=port_number, default=9876, help="default: 9876; 0: any that is free"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    show_as("dledger-namesrv")
    log_to_stderr()
    return run_until_stopped(lambda stop: _serve(args, stop))


async def _serve(args: argparse.Namespace, stop: StopSignal) -> int:
    try:
        nameserver = await serve(args.host, args.port)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {args.host}:{args.port} ({_reason(error)}): "
            "stop what uses it, or choose another with --port"
        ) from error
    address = f"{args.host}:{nameserver.port}"
    announce({"namesrv": address}, f"the NameServer listens on {address}", as_json=args.json)
    await stop.asked
    await nameserver.stop()
    return 0


def _reason(error: OSError) -> str:
    """A name that cannot be resolved has an error number of its own kind."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno or 0)
