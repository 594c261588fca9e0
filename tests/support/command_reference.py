"""Makes the command reference, ``docs/commands.md``, from the commands themselves.

``python -m tests.support.command_reference`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click

from broker.cli.command_line import COMMANDS, load_command
from simulator.cli.main import simulator
from spark.cli import spark

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
START = """\
# Commands

This page is made from the commands themselves, by `python -m tests.support.command_reference`. Each
command says the same under `--help`. All exit with 0 on success, 1 where what they checked does not
hold or the request was refused, 2 on bad usage, 130 after Ctrl-C. Results go to stdout, everything
else to stderr.

Colours, progress and questions are for terminals: a script sees none of them. `dledger completion`
makes completion for bash, zsh and fish.

## Clusters by name

`--profile NAME` names a cluster of `~/.config/dledger/clusters.toml`, or of `$DLEDGER_CLUSTERS`:

```toml
[production]
namesrv = "10.0.0.9:9876;10.0.1.9:9876"
access_key = "admin-7f3a"
secret_key = "..."
ca = "production/ca.pem"        # relative to the file; with it, TLS

[trial]
namesrv = "127.0.0.1:9876"
```

`$DLEDGER_PROFILE` says the same for all commands. Both also take a file with these keys, as
`dledger security user add --out` writes it. `--namesrv` goes before a profile, and `$NAMESRV_ADDR`
before that of `$DLEDGER_PROFILE`.
"""

COMMON = {"--namesrv", "--profile", "--output", "--json", "--data", "--yes", "--dry-run"}
"""Options that are described once. `dledger bench` has another `--namesrv`."""


def reference() -> str:
    """The page."""
    whole = load_command("group")
    assert isinstance(whole, click.Group)
    taken = [*whole.commands["delete"].params, *whole.commands["reset-offset"].params]
    taken += load_command("down").params
    common = {each.opts[-1]: _line(each) for each in taken if COMMON & {*each.opts}}
    sections = [START, "\n".join(("## Options of many commands", "", *common.values(), ""))]
    for name in COMMANDS:
        sections += _sections(f"dledger {name}", load_command(name))
    sections += _sections("python -m simulator", simulator)
    sections += _sections("python -m spark", spark)
    return "\n".join(sections)


def commands_of(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """The command and all its subcommands, each with the words that call it."""
    yield name, command
    if isinstance(command, click.Group):
        for word, child in command.commands.items():
            yield from commands_of(f"{name} {word}", child)


def _sections(name: str, command: click.Command) -> Iterator[str]:
    for words, each in commands_of(name, command):
        yield _section(words, each, depth=2 + words.count(" ") - name.count(" "))


def _section(name: str, command: click.Command, *, depth: int) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    lines = [f"{'#' * depth} {name}", "", *_paragraphs(command.help), f"`{usage}`", ""]
    own = [each for each in command.params if not COMMON & {*each.opts}]
    lines += [*map(_line, own), *([""] if own else [])]
    common = [f"`{each.opts[-1]}`" for each in command.params if COMMON & {*each.opts}]
    lines += [f"Also {', '.join(common)}.", ""] if common else []
    if not isinstance(command, click.Group):
        lines += _block(getattr(command, "examples", ""))
    lines += _block(getattr(command, "notes", ""))
    return "\n".join(lines)


def _line(param: click.Parameter) -> str:
    what, text = param.get_help_record(click.Context(click.Command("any"))) or ("", "")
    return f"- `{what}`: {' '.join(text.split()) or 'see above'}"


def _paragraphs(text: str | None) -> list[str]:
    """The help, with examples in it as blocks."""
    lines: list[str] = []
    for paragraph in cleandoc(text or "").split("\n\n"):
        as_it_is = paragraph.startswith("\b\n")
        lines += _block(paragraph.removeprefix("\b\n")) if as_it_is else [paragraph, ""]
    return lines


def _block(text: str) -> list[str]:
    return ["```", *text.rstrip("\n").split("\n"), "```", ""] if text else []


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    print(f"{PAGE} is written")
