"""`dledger config get` and `set`: settings of a running group, by both of their names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from broker.cli.commands import config
from broker.cli.main import main
from broker.command_error import CommandError
from broker.config.dynamic_settings import SettingError, changed_settings
from broker.remoting.protocol.codes import RequestCode


class RunningGroup:
    """Answers as the leader of ``broker-a``."""

    def __init__(self) -> None:
        self.settings = {"fileReservedTime": "72", "maxMessageSize": "4194304"}

    async def masters(self) -> dict[str, str]:
        return {"broker-a": "10.0.0.1:10911"}

    async def ask(self, _at: str, code: RequestCode, body: Sequence[bytes] = ()) -> object:
        if code is RequestCode.UPDATE_BROKER_CONFIG:
            try:
                self.settings |= changed_settings(b"".join(body))
            except SettingError as error:
                raise CommandError(str(error)) from error
        lines = (f"{key}={value}\n" for key, value in self.settings.items())
        return SimpleNamespace(body="".join(lines).encode())


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> RunningGroup:
    group = RunningGroup()

    def run(_namesrv: str, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(work(group))

    monkeypatch.setattr(config, "run_admin", run)
    return group


@pytest.mark.parametrize("key", ["file_reserved_hours", "fileReservedTime"])
def test_a_setting_is_read_and_changed_by_either_name(
    key: str, group: RunningGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("config", "set", key, "24")) == 0
    assert group.settings["fileReservedTime"] == "24"
    assert main(("config", "get", key)) == 0
    assert capsys.readouterr().out == f"broker-a {key}=24\n" * 2
    assert main(("config", "get", key, "--json")) == 0
    assert json.loads(capsys.readouterr().out) == {"groups": {"broker-a": {key: "24"}}}


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("fileReservedTim", "did you mean fileReservedTime?"),
        ("file_reserved_hour", "did you mean file"),
        ("nonsense", "nonsense"),
    ],
)
def test_an_unknown_setting_is_refused_by_both_commands(
    key: str, hint: str, group: RunningGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(group.settings)
    assert main(("config", "get", key)) == 2
    assert hint in capsys.readouterr().err
    assert main(("config", "set", key, "24")) == 1
    assert hint in capsys.readouterr().err
    assert group.settings == before
