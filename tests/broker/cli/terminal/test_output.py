"""Results in the forms that people and programs want."""

from __future__ import annotations

import json

import pytest
import yaml

from broker.cli.terminal.output import Output, print_table

DOCUMENT = {"name": "orders", "queues": [1, 2], "none": None, "text": "a: b\u00e4"}


def test_a_document_is_the_same_in_json_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert Output.JSON.document(DOCUMENT)
    assert json.loads(capsys.readouterr().out) == DOCUMENT
    assert Output.YAML.document(DOCUMENT)
    assert Output.YAML.document(DOCUMENT)
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [DOCUMENT, DOCUMENT]


def test_text_is_left_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert not Output.TABLE.document(DOCUMENT)
    assert capsys.readouterr().out == ""


def test_columns_are_as_wide_as_their_content_and_plain_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "x" * 300
    print_table(("NODE", "LAG"), [("n0", None), (long, 3), ("[red]n1[/red]", "")])
    assert capsys.readouterr().out.splitlines() == [
        f"{'NODE':<300}  LAG",
        f"{'n0':<300}  -",
        f"{long}  3",
        "[red]n1[/red]",
    ]


def test_the_header_is_bold_on_a_terminal_unless_colours_are_unwanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    print_table(("NODE",), [("n0",)])
    assert capsys.readouterr().out == "\x1b[1mNODE\x1b[0m\nn0\n"
