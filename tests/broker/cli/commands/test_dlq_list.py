"""``dledger dlq list``: of all groups, or of one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.cli.commands import dlq
from broker.cli.main import main

FOUND = [{"group": name, "topic": f"%DLQ%{name}", "messages": 2} for name in ("billing", "mail")]


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("", "GROUP    MESSAGES\nbilling  2\nmail     2\n"),
        ("mail", "GROUP  MESSAGES\nmail   2\n"),
        ("shop", "shop has no dead letters\n"),
    ],
)
def test_a_list_may_be_that_of_one_group(
    group: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(*_: Any) -> Any:
        return FOUND, []

    monkeypatch.setattr(dlq, "run_on_leaders", found)
    command = ("dlq", "list", *([group] if group else []))
    assert main(command) == 0
    assert capsys.readouterr().out == text
    assert main((*command, "--json")) == 0
    listed = json.loads(capsys.readouterr().out)["groups"]
    assert listed == [each for each in FOUND if group in ("", each["group"])]
