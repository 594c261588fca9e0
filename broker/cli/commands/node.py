"""``dledger node``."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from typing import TYPE_CHECKING

from broker.cli.terminal.command_error import CommandError, UsageError
from broker.cli.terminal.foreground import announce, run_until_stopped, show_as
from broker.cli.terminal.options import add_json
from broker.config.config_file import read_config
from broker.config.node_config import NodeConfig
from broker.config.security_config import EXPOSED
from broker.config.setting_checks import ConfigError
from broker.system.log_output import log_to_stderr
from broker.system.malloc_tuning import keep_freed_memory
from dledger.node.service import StopSignal, run_service
from store.errors import StoreError

if TYPE_CHECKING:
    from broker.server.broker import Broker
    from broker.server.broker_server import BrokerServer

EXAMPLES = """\
  dledger node --config /var/lib/dledger/broker-a/n0/node.toml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        required=True,
        help="a node.toml; `dledger up` writes them, broker/config/config_file.py explains all",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    try:
        config = read_config(args.config)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    show_as(config.name)
    log_to_stderr(config.logging)
    if config.exposed:
        logging.getLogger("dledger").warning(EXPOSED)
    import_server()
    tune_interpreter()
    return run_until_stopped(lambda stop: _serve(config, stop, as_json=args.json))


def import_server() -> None:
    """Imports what a node needs, as quickly as it can be done: it is most of a node's start.

    A node speaks no TLS, but aiohttp reads the system's root certificates when it is imported. And
    nothing of what modules make is garbage, however often the collector looks.
    """
    os.environ["SSL_CERT_FILE"] = os.environ["SSL_CERT_DIR"] = os.devnull
    gc.disable()
    try:
        import broker.server.os_environment  # noqa: F401, PLC0415 - after the environment is set
    finally:
        gc.enable()


def tune_interpreter() -> None:
    """The threads that write and sync need the interpreter for microseconds. While the event loop
    is busy, they wait for it for a whole switch interval (5 ms by default). And messages are too
    short-lived for the collector to look at them after every 700.

    NumPy, which comes when the first keys are sorted, would start a thread of linear algebra for
    each core, and every one of them spins for a while.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    keep_freed_memory()
    sys.setswitchinterval(0.0005)
    gc.set_threshold(50_000, 20, 50)


async def _serve(config: NodeConfig, stop: StopSignal, *, as_json: bool) -> int:
    reason = await run_service(lambda: _start(config, as_json=as_json), stop)
    if reason is not None:
        raise CommandError(f"{config.name} stopped by itself: {reason}")
    return 0


async def _start(config: NodeConfig, *, as_json: bool) -> BrokerServer[Broker]:
    from broker.server.os_environment import serve  # noqa: PLC0415 - after the environment is set

    try:
        server = await serve(config)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    except StoreError as error:
        raise CommandError(f"{config.name}: {error}") from error
    except OSError as error:
        wanted = ", ".join(map(str, config.own))
        raise CommandError(
            f"{config.name} cannot listen on its addresses ({wanted}): "
            f"{os.strerror(error.errno or 0)}; stop what uses them, or change its node.toml"
        ) from error
    addresses = {key: str(endpoint) for key, endpoint in config.own._asdict().items()}
    announce(
        {"node": config.name, "pid": os.getpid(), **addresses},
        f"{config.name} listens on {config.own.address}",
        as_json=as_json,
    )
    return server
