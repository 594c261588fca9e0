"""``dledger config init``, ``check`` and ``show``: files of settings, without a running node."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from broker.cli.terminal.command_error import CommandError, UsageError
from broker.cli.terminal.options import add_json, print_json, print_table
from broker.config.config_file import KINDS, Loaded, load, wanted_kind
from broker.config.config_text import commented_toml
from broker.config.setting_checks import ConfigError
from broker.config.toml_text import toml_value
from dledger.wire.endpoint import Endpoint


def add_file_arguments(actions: Any) -> None:
    """Adds the actions to those of ``dledger config``."""
    init = actions.add_parser("init", help="write a file with all settings, explained")
    init.add_argument("file", metavar="FILE", nargs="?", help="default: stdout")
    check = actions.add_parser("check", help="check the file of a node or a NameServer")
    check.add_argument("file", metavar="FILE")
    show = actions.add_parser("show", help="show each setting, and where its value comes from")
    show.add_argument("file", metavar="FILE", nargs="?", help="default: the environment alone")
    init.add_argument("--kind", choices=KINDS, default="node", help="default: node")
    for action in (check, show):
        action.add_argument("--kind", choices=KINDS, help="default: as the file looks")
        add_json(action)


def _init(args: argparse.Namespace) -> int:
    text = commented_toml(KINDS[args.kind])
    if args.file is None:
        print(text, end="")
        return 0
    try:
        with open(args.file, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CommandError(f"{args.file} is there already; it stays as it is") from None
    except OSError as error:
        raise CommandError(f"{args.file} cannot be written: {error.strerror}") from error
    return 0


def _load(args: argparse.Namespace) -> Loaded[Any]:
    path = args.file or ""
    if path and Path(path).is_dir():
        path = str(Path(path, "node.toml"))
    try:
        return load(KINDS[args.kind] if args.kind else wanted_kind(path), path, os.environ)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _check(args: argparse.Namespace) -> int:
    loaded = _load(args)
    if args.json:
        print_json({"kind": loaded.kind.title, "problems": loaded.problems})
    else:
        for problem in loaded.problems:
            print(problem)
        if not loaded.problems:
            print(f"{args.file}: can be used for a {loaded.kind.title}")
    return _end(loaded)


def _show(args: argparse.Namespace) -> int:
    loaded = _load(args)
    if args.json:
        settings = {
            key: {"value": str(value) if isinstance(value, Endpoint) else value, "from": origin}
            for key, value, origin in loaded.effective()
        }
        print_json({"kind": loaded.kind.title, "settings": settings, "problems": loaded.problems})
    else:
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


def _end(loaded: Loaded[Any]) -> int:
    """Raises :class:`CommandError` if there are problems, which stand on stdout."""
    if loaded.problems:
        count = len(loaded.problems)
        raise CommandError(f"{count} problem{'s' * (count > 1)} with the settings, shown on stdout")
    return 0


FILE_ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "init": _init,
    "check": _check,
    "show": _show,
}
