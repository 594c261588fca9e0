"""What the process of a node does beside the broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cli.commands import node as node_command
from broker.cli.commands.node import ForegroundNode
from broker.cli.local_cluster.port_layout import Ports, plan_cluster
from broker.config.config_file import read_config
from broker.config.config_text import node_toml
from broker.config.node_config import NodeConfig
from dledger.node.service import StopSignal


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
