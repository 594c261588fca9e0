"""``dledger config init``, ``check`` and ``show``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.cli.command_line import run_command


def test_a_file_is_written_once_checked_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.toml"
    assert run_command(["config", "init", str(path)]) == 0
    text = path.read_text()
    assert run_command(["config", "init", str(path)]) == 1
    assert path.read_text() == text
    assert "exists already" in capsys.readouterr().err

    assert run_command(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: can be used for a node\n"
    path.write_text("flsh = 1\n" + text.replace('"127.0.0.1:10915"', '"::1:10915"'))
    assert run_command(["config", "check", str(path)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{path}: line 1: flsh: is not a setting; did you mean flush?"
    assert "members.n0.peer: '::1:10915' is not host:port: an IPv6 address stands in" in second
    assert run_command(["config", "check", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"] == [first, second]

    path.write_text(text)
    monkeypatch.setenv("DLEDGER_FLUSH", "async")
    assert run_command(["config", "show", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["settings"]
    assert shown["flush"] == {"value": "async", "from": "$DLEDGER_FLUSH"}
    assert shown["cluster"] == {"value": "DefaultCluster", "from": "default"}
    assert shown["security.peers"] == {"value": "off", "from": "default"}
    assert shown["members.n0.http"]["value"] == "127.0.0.1:8080"
    number = int(shown["members.n0.http"]["from"].removeprefix("line "))
    assert text.splitlines()[number - 1] == 'http = "127.0.0.1:8080"'


def test_a_name_servers_file_is_known_by_its_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["config", "init", "--kind", "namesrv"]) == 0
    path = tmp_path / "any.toml"
    path.write_text(capsys.readouterr().out + "\nhttp_port = 8079\n")
    assert run_command(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: can be used for a NameServer\n"
    assert run_command(["config", "show", str(path)]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "http_port" in line)
    assert row.split()[1] == "8079"


def test_what_cannot_be_read_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["config", "check", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: cannot be read: No such file" in capsys.readouterr().err
