"""``dledger namesrv``."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from broker.cli.terminal.foreground import (
    announce,
    hangups_held,
    run_until_stopped,
    show_as,
    tell_reopened,
)
from broker.cli.terminal.name_arguments import host_name
from broker.cli.terminal.numbers import PORT
from broker.cli.terminal.options import PATH, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.command_error import CommandError, UsageError
from broker.config.config_file import NAME_SERVER, read_name_server_config
from broker.config.name_server_config import NameServerConfig
from broker.config.reload import take_changes
from broker.config.security_config import ENFORCING, EXPOSED
from broker.config.setting_checks import ConfigError
from broker.nameserver.server import NameServer, serve
from broker.security.access_control import AccessControl
from broker.security.port_tls import PortTls
from broker.server.security_setup import read_port_tls, read_secrets
from broker.system.log_lines import FORMATS, LEVELS
from broker.system.server_log import ServerLog
from broker.system.wall_clock import system_clock_ms
from dledger.node.service import StopSignal
from dledger.wire.endpoint import join_host_port

if TYPE_CHECKING:
    from broker.nameserver.http_server import NameServerHttp

EXAMPLES = """\
  dledger namesrv
  dledger namesrv --config /etc/dledger/namesrv.toml
  dledger namesrv --http-port 8079                /metrics for Prometheus, /readyz for probes
"""
NOTES = """\
docs/configuration.md explains the file, and `dledger config init --kind namesrv`
writes one. Without the section [security] a NameServer listens only for this machine, unless
--insecure is given.
"""

log = logging.getLogger("dledger.nameserver")


@click.command(cls=Command, examples=EXAMPLES, notes=NOTES)
@click.option(
    "--config", "path", metavar="FILE", type=PATH, help="A settings file; options override it."
)
@click.option("--host", type=host_name, help="Default: 127.0.0.1.")
@click.option("--port", type=PORT, metavar="PORT", help="Default: 9876; 0: any free port.")
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Listen for other machines although nothing protects the NameServer.",
)
@click.option(
    "--http-port",
    type=PORT,
    metavar="N",
    help="Serve /metrics, /livez and /readyz there; 0: any free port.",
)
@click.option("--log-level", type=click.Choice(LEVELS), help="Default: info.")
@click.option("--log-format", type=click.Choice(FORMATS), help="Default: text.")
@json_option
def command(*, path: str | None, output: Output, **given: Any) -> int:
    changed = {key: value for key, value in given.items() if value is not None}
    with UsageError.instead_of(ConfigError):
        config = read_name_server_config(path or "", os.environ, changed)
        access = _access_control(config)
        tls = read_port_tls(config.security, config.name)
    with hangups_held():
        show_as("dledger-namesrv")
        server_log = ServerLog(config.logging)
        if config.exposed:
            log.warning(EXPOSED)
        present = config

        def reload() -> None:
            nonlocal present
            server_log.reopen()
            try:
                read = read_name_server_config(path or "", os.environ, changed)
            except ConfigError as error:
                log.error("the settings are not changed: %s", error)
                return
            server_log.configure(read.logging)  # every setting of it may change
            present = take_changes(NAME_SERVER.settings, present, read)
            tell_reopened(present.logging)

        return run_until_stopped(lambda stop: _serve(config, access, tls, stop, output), reload)


def _access_control(config: NameServerConfig) -> AccessControl | None:
    """Raises :class:`~broker.config.setting_checks.ConfigError`."""
    secrets = read_secrets(config.security)
    if secrets is None:
        return None
    enforcing = config.security.access_control == ENFORCING
    return AccessControl(enforcing=enforcing, secrets=secrets, now_ms=system_clock_ms)


async def _serve(
    config: NameServerConfig,
    access: AccessControl | None,
    tls: PortTls | None,
    stop: StopSignal,
    output: Output,
) -> int:
    try:
        nameserver = await serve(config.host, config.port, access, tls)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {config.at} ({_reason(error)}): "
            "stop what uses it, or choose another with --port"
        ) from error
    document = {"namesrv": join_host_port(config.host, nameserver.port)}
    async with AsyncExitStack() as running:
        running.push_async_callback(nameserver.stop)
        if config.http_port is not None:
            http = await _serve_http(nameserver, config, config.http_port, tls)
            running.push_async_callback(http.stop)
            document["http"] = join_host_port(config.host, http.port)
        line = f"the NameServer listens on {document['namesrv']}"
        if "http" in document:
            line += f", and for HTTP on {document['http']}"
        announce(document, line, output)
        await stop.asked
    return 0


async def _serve_http(
    nameserver: NameServer, config: NameServerConfig, port: int, tls: PortTls | None
) -> NameServerHttp:
    """Starts the HTTP port."""
    # Imported only if it is needed: it takes three quarters of the start.
    from broker.nameserver.http_server import NameServerHttp  # noqa: PLC0415 - see above

    http = NameServerHttp(
        nameserver,
        asyncio.get_running_loop(),
        config.host,
        port,
        clock=time.monotonic,
        http_hosts=config.http_hosts,
        tls=tls,
    )
    try:
        await http.start()
    except OSError as error:
        raise CommandError(
            f"cannot listen on {join_host_port(config.host, port)} ({_reason(error)}): "
            "stop what uses it, or choose another with --http-port"
        ) from error
    return http


def _reason(error: OSError) -> str:
    """The reason. The error numbers of names that cannot be resolved are not those of the
    system."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno or 0)
