"""``dledger config init``, ``check`` and ``show``: settings files, without a running node."""

from __future__ import annotations

import os
from typing import Any

import click

from broker.cli.terminal.options import PATH, json_option
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Command
from broker.command_error import CommandError, UsageError
from broker.config.config_file import KINDS, Loaded, load, wanted_kind
from broker.config.config_text import commented_toml
from broker.config.setting_checks import ConfigError
from broker.config.toml_text import toml_value
from dledger.wire.endpoint import Endpoint

kind_option = click.option(
    "--kind", type=click.Choice([*KINDS]), help="Default: by the content of the file."
)


@click.command(
    cls=Command,
    examples="""\
  dledger config init node.toml                   all settings of a node, explained
  dledger config init namesrv.toml --kind namesrv
""",
)
@click.argument("path", metavar="FILE", type=PATH, required=False, help="Default: stdout.")
@click.option("--kind", type=click.Choice([*KINDS]), default="node", help="Default: node.")
@json_option
def init(*, path: str | None, kind: str, output: Output) -> None:
    """Write a file with all settings, explained."""
    text = commented_toml(KINDS[kind])
    document = {"kind": kind, "file": path, "text": text}
    if path is None:
        if not output.document(document):
            print(text, end="")
        return
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CommandError(f"{path} exists already and is not changed") from None
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
    output.document(document)


@UsageError.instead_of(ConfigError)
def _load(path: str, kind: str | None) -> Loaded[Any]:
    if os.path.isdir(path):
        path = os.path.join(path, "node.toml")
    return load(KINDS[kind] if kind else wanted_kind(path), path, os.environ)


@click.command(
    cls=Command,
    examples="""\
  dledger config check node.toml                  every problem, with its line
""",
)
@click.argument("path", metavar="FILE", type=PATH)
@kind_option
@json_option
def check(*, path: str, kind: str | None, output: Output) -> int:
    """Check the file of a node or a NameServer."""
    loaded = _load(path, kind)
    if not output.document({"kind": loaded.kind.title, "problems": loaded.problems}):
        for problem in loaded.problems:
            print(problem)
        if not loaded.problems:
            print(f"{path}: can be used for a {loaded.kind.title}")
    return _end(loaded)


def _end(loaded: Loaded[Any]) -> int:
    """Raises :class:`CommandError` if there are problems. They were printed to stdout."""
    if loaded.problems:
        count = len(loaded.problems)
        raise CommandError(f"{count} problem{'s' * (count > 1)} with the settings, shown on stdout")
    return 0


@click.command(
    cls=Command,
    examples="""\
  dledger config show node.toml                   each value, and where it comes from
""",
)
@click.argument(
    "path", metavar="FILE", type=PATH, required=False, help="Default: only the environment."
)
@kind_option
@json_option
def show(*, path: str | None, kind: str | None, output: Output) -> int:
    """Show each setting, and where its value comes from."""
    loaded = _load(path or "", kind)
    settings = {
        key: {"value": str(value) if isinstance(value, Endpoint) else value, "from": origin}
        for key, value, origin in loaded.effective()
    }
    document = {"kind": loaded.kind.title, "settings": settings, "problems": loaded.problems}
    if not output.document(document):
        print_table(
            ("SETTING", "VALUE", "FROM"),
            [
                (key, None if value is None else toml_value(value), origin)
                for key, value, origin in loaded.effective()
            ],
        )
        for problem in loaded.problems:
            print(problem)
    return _end(loaded)
