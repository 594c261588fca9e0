"""``dledger node``."""

from __future__ import annotations

import asyncio
import errno
import gc
import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from broker.cli.terminal.foreground import (
    announce,
    hangups_held,
    run_until_stopped,
    show_as,
    tell_reopened,
)
from broker.cli.terminal.options import PATH, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.command_error import CommandError, UsageError
from broker.config.config_file import NODE, read_config
from broker.config.node_config import NodeConfig
from broker.config.reload import take_changes
from broker.config.security_config import EXPOSED
from broker.config.setting_checks import ConfigError
from broker.system.malloc_tuning import keep_freed_memory
from broker.system.server_log import ServerLog
from dledger.node.service import StopSignal, run_service
from store.errors import DamagedError, StoreError

if TYPE_CHECKING:
    from broker.server.broker import Broker
    from broker.server.broker_server import BrokerServer

log = logging.getLogger(__name__)

ADDRESS_ERRORS = frozenset(
    {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EACCES}
)
"""Why a server cannot listen on an address."""

RESTORE_BACKUP = (
    "the node has no peers that could repair it: keep a copy of its data, and restore a backup "
    "(dledger restore)"
)

EXAMPLES = """\
  dledger node --config /var/lib/dledger/broker-a/n0/node.toml
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.option(
    "--config",
    "path",
    metavar="FILE",
    type=PATH,
    required=True,
    help="A node.toml; `dledger config init` and `dledger up` write one.",
)
@json_option
def command(path: str, output: Output) -> int:
    with UsageError.instead_of(ConfigError):
        config = read_config(path, os.environ)
    if config.tracing and not _has_opentelemetry():
        raise UsageError(
            f"{path}: tracing: needs OpenTelemetry: `pip install dledger[tracing]`; or omit it"
        )
    with hangups_held():
        show_as(config.name)
        server_log = ServerLog(config.logging, config.name)
        if config.exposed:
            logging.getLogger("dledger").warning(EXPOSED)
        import_server(grpc=config.listening.grpc is not None)
        tune_interpreter()
        node = ForegroundNode(config, path, server_log, output)
        return run_until_stopped(node.serve, node.reload)


def _has_opentelemetry() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # one of its packages is missing
        return False


class ForegroundNode:
    """The node of this process. ``path`` is that of its ``node.toml``."""

    def __init__(
        self, config: NodeConfig, path: str, server_log: ServerLog, output: Output
    ) -> None:
        self._config = config
        self._path = path
        self._log = server_log
        self._output = output
        self._server: BrokerServer[Broker] | None = None

    async def serve(self, stop: StopSignal) -> int:
        """Runs the node until ``stop``, or until its group has removed it. Raises
        :class:`CommandError`."""

        async def start() -> BrokerServer[Broker]:
            self._server = await _start(self._config, self._output)
            self._server.broker.context.settings.config = self._config  # perhaps read again since
            end_once_removed(self._server, self._config, partial(stop.ask, at_once=False))
            return self._server

        reason = await run_service(start, stop)
        if reason is not None:
            raise CommandError(f"{self._config.name} stopped by itself: {reason}")
        return 0

    def reload(self) -> None:
        """Reopens the log, and reads the settings again."""
        self._log.reopen()
        try:
            read = read_config(self._path, os.environ)
        except ConfigError as error:
            log.error("the settings are not changed: %s", error)
            return
        self._log.configure(read.logging)  # every setting of it may change
        self._config = take_changes(NODE.settings, self._config, read)
        if self._server is not None:
            self._server.broker.context.settings.config = self._config
        tell_reopened(self._config.logging)


def end_once_removed(
    server: BrokerServer[Broker], config: NodeConfig, end: Callable[[], None]
) -> None:
    """Calls ``end`` once the node's group has removed it, whoever asked for that: from now on
    `dledger up` leaves it out."""
    from broker.server.decommissioning import Decommissioning  # noqa: PLC0415 - as in _start

    def mark_and_end() -> None:
        from broker.cli.local_cluster.local_member import mark_removed  # noqa: PLC0415 - once

        try:
            mark_removed(config)
        except OSError as error:
            log.warning("`dledger up` would start this node again: %s", error)
        end()

    Decommissioning(asyncio.get_running_loop(), server.broker.context.node, mark_and_end)


def import_server(*, grpc: bool = True) -> None:
    """Imports a node's modules as fast as possible, because that takes most of a node's start.
    Without ``grpc`` it leaves out those of the gRPC port, which take a sixth of the time. Nodes of
    a local cluster have that port, and share the imports.

    aiohttp reads the system's root certificates at its import, but a node does not need them. The
    modules make no garbage, so the collector need not run.
    """
    os.environ["SSL_CERT_FILE"] = os.environ["SSL_CERT_DIR"] = os.devnull
    gc.disable()
    try:
        import broker.server.os_environment  # noqa: PLC0415 - after the environment is set

        if grpc:
            import broker.grpc.port  # noqa: F401, PLC0415 - as above
    finally:
        gc.enable()


def tune_interpreter() -> None:
    """Tunes the interpreter for a server. The threads that write and sync need the interpreter for
    microseconds, but while the event loop is busy they wait for a whole switch interval (5 ms by
    default). Messages are too short-lived for a collection after every 700 objects.

    NumPy is imported a little later. It would start a thread of linear algebra for
    each core, and each would spin for a while.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    keep_freed_memory()
    sys.setswitchinterval(0.0005)
    gc.set_threshold(50_000, 20, 50)


def _is_of_address(error: OSError) -> bool:
    """Whether a server could not listen. An error of a file names the file."""
    return error.filename is None and (
        isinstance(error, socket.gaierror) or error.errno in ADDRESS_ERRORS
    )


async def _start(config: NodeConfig, output: Output) -> BrokerServer[Broker]:
    from broker.server.os_environment import serve  # noqa: PLC0415 - after the environment is set

    try:
        server = await serve(config)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    except StoreError as error:
        alone = isinstance(error, DamagedError) and not config.peers
        advice = f"; {RESTORE_BACKUP}" if alone else ""
        raise CommandError(f"{config.name}: {error}{advice}") from error
    except OSError as error:
        if not _is_of_address(error):
            raise CommandError(f"{config.name} cannot start: {error}") from error
        wanted = ", ".join(map(str, config.listening.endpoints.values()))
        raise CommandError(
            f"{config.name} cannot listen on its addresses ({wanted}): "
            f"{os.strerror(error.errno or 0)}; stop what uses them, or change its node.toml"
        ) from error
    addresses = {key: str(endpoint) for key, endpoint in config.own.endpoints.items()}
    announce(
        {"node": config.name, "pid": os.getpid(), **addresses},
        f"{config.name} listens on {config.own.address}",
        output,
    )
    return server
