"""What `dledger namesrv` prints once it serves."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from broker.cli.commands import namesrv
from broker.cli.terminal.output import Output
from broker.config.name_server_config import NameServerConfig
from dledger.node.service import StopSignal


async def _nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("http_port", "line"),
    [
        (None, "the NameServer listens on 127.0.0.1:4001"),
        (0, "the NameServer listens on 127.0.0.1:4001, and for HTTP on 127.0.0.1:4002"),
    ],
)
async def test_every_port_that_was_chosen_is_printed(
    http_port: int | None,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def serve(*_: object) -> SimpleNamespace:
        return SimpleNamespace(port=4001, stop=_nothing)

    async def serve_http(*_: object) -> SimpleNamespace:
        return SimpleNamespace(port=4002, stop=_nothing)

    monkeypatch.setattr(namesrv, "serve", serve)
    monkeypatch.setattr(namesrv, "_serve_http", serve_http)
    stop = StopSignal(asyncio.get_running_loop())
    stop.ask(at_once=True)
    config = NameServerConfig(port=0, http_port=http_port)
    for output in (Output.TABLE, Output.JSON):
        await namesrv._serve(config, None, None, stop, output)

    printed, document = capsys.readouterr().out.splitlines()
    assert printed == line
    assert ("http" in json.loads(document)) == (http_port is not None)
