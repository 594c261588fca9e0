"""Every command gives its results to programs too, as one document."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from broker.cli.command_line import dledger
from broker.cli.main import main
from tests.support.command_leaves import Leaf, leaves_of


@pytest.mark.parametrize("leaf", [*leaves_of(dledger)], ids=lambda leaf: leaf.name)
def test_every_command_takes_json(leaf: Leaf) -> None:
    assert "--json" in {name for param in leaf.params for name in param.opts}


def test_the_settings_are_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "node.toml"
    assert main(("config", "init", str(path), "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"kind": "node", "file": str(path), "text": path.read_text()}
    assert main(("config", "init", "--json")) == 0
    assert json.loads(capsys.readouterr().out) == found | {"file": None}


def test_a_script_for_a_shell_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("completion", "fish", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(("completion", "fish")) == 0
    assert found == {"shell": "fish", "script": capsys.readouterr().out.removesuffix("\n")}


def test_a_token_is_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text('access_key = "operator"\nsecret_key = "0123456789abcdef"\n')
    monkeypatch.setitem(os.environ, "DLEDGER_PROFILE", str(profile))
    profile.chmod(0o600)
    assert main(("security", "token", "--json")) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"token", "expires_ms"}
