"""What the process of a node does beside the broker."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cli.commands import node as node_command
from broker.cli.commands.node import ForegroundNode
from broker.cli.local_cluster.port_layout import Ports, plan_cluster
from broker.command_error import CommandError
from broker.config.config_file import read_config
from broker.config.config_text import node_toml
from broker.config.node_config import NodeConfig
from broker.server import os_environment
from dledger.node.service import StopSignal
from store.errors import DamagedError


async def test_settings_that_are_read_again_during_the_start_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may wait for its peers for long before it serves."""
    (config,) = plan_cluster(tmp_path, 1, ["broker-a"], Ports())
    path = tmp_path / "node.toml"
    path.write_text(node_toml(config))
    read: NodeConfig = read_config(str(path))
    settings = SimpleNamespace(config=read)
    log = SimpleNamespace(reopen=lambda: None, configure=lambda _settings: None)
    node = ForegroundNode(read, str(path), cast("Any", log), cast("Any", None))

    async def started(_config: NodeConfig, _output: object) -> object:
        path.write_text(node_toml(replace(config, drain_seconds=7)))
        node.reload()
        return SimpleNamespace(broker=SimpleNamespace(context=SimpleNamespace(settings=settings)))

    async def run(start: Any, _stop: object) -> None:
        await start()

    monkeypatch.setattr(node_command, "_start", started)
    monkeypatch.setattr(node_command, "run_service", run)
    monkeypatch.setattr(node_command, "end_once_removed", lambda *_: None)
    await node.serve(StopSignal(asyncio.get_running_loop()))
    assert settings.config.drain_seconds == 7


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            IsADirectoryError(errno.EISDIR, "Is a directory", "/data/state/tails"),
            "cannot start: [Errno 21] Is a directory: '/data/state/tails'",
        ),
        (OSError(errno.EIO, "Input/output error"), "cannot start: [Errno 5] Input/output error"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/data"),
            "cannot start: [Errno 13] Permission denied: '/data'",
        ),
        (
            OSError(errno.EADDRINUSE, "error while attempting to bind"),
            "cannot listen on its addresses (",
        ),
        (socket.gaierror(socket.EAI_NONAME, "unknown name"), "cannot listen on its addresses ("),
    ],
)
async def test_only_what_concerns_an_address_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    async def serve(_config: NodeConfig) -> None:
        raise error

    monkeypatch.setattr(os_environment, "serve", serve)
    (config,) = plan_cluster(tmp_path, 1, ["broker-a"], Ports())
    with pytest.raises(CommandError) as raised:
        await node_command._start(config, cast("Any", None))
    assert str(raised.value).startswith(f"broker-a/n0 {told}")


@pytest.mark.parametrize(("nodes", "restored"), [(1, True), (3, False)])
async def test_a_damaged_node_without_peers_is_told_to_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, restored: bool
) -> None:
    async def serve(_config: NodeConfig) -> None:
        raise DamagedError("/data/commitlog/0", 7, "cannot be read")

    monkeypatch.setattr(os_environment, "serve", serve)
    config, *_ = plan_cluster(tmp_path, nodes, ["broker-a"], Ports())
    with pytest.raises(CommandError, match="/data/commitlog/0, byte 7: cannot be read") as raised:
        await node_command._start(config, cast("Any", None))
    assert ("dledger restore" in str(raised.value)) is restored
