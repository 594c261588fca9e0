"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from broker.cli.terminal.name_arguments import name_servers
from broker.cli.terminal.output import Output
from broker.command_error import CommandError

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_NAMESRV = "127.0.0.1:9876"
DEFAULT_CLUSTER = "DefaultCluster"
DEFAULT_DATA = Path("data")
DIRECTORY = click.Path(path_type=Path)
PATH = click.Path()
"""A path as text."""
_CREDENTIALS = ("DLEDGER_PROFILE", "DLEDGER_ACCESS_KEY", "DLEDGER_SECRET_KEY", "DLEDGER_CA")
_JSON = "broker.cli.json"


def options(*each: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator; the help names them in this order."""

    def decorated(command: F) -> F:
        return reduce(lambda made, option: option(made), reversed(each), command)

    return decorated


def _note_json(context: click.Context, _option: click.Parameter, given: bool) -> None:
    context.meta[_JSON] = given


def _output(context: click.Context, _option: click.Parameter, given: str | None) -> Output:
    usual = Output.JSON if context.meta.get(_JSON) else Output.TABLE
    return usual if given is None else Output(given)


def _use_profile(context: click.Context, _option: click.Parameter, profile: str | None) -> None:
    if profile is not None:
        context.with_resource(profile_in_environment(profile))


def _usual_namesrv() -> str:
    return _namesrv_of(os.environ.get("DLEDGER_PROFILE", "")) or DEFAULT_NAMESRV


def _namesrv_of(profile: str) -> str:
    """The NameServer of the profile. An unusable profile is reported where its keys are needed."""
    if not profile:
        return ""
    from broker.security.credentials import CredentialsError, open_profile  # noqa: PLC0415 - slow

    try:
        return open_profile(profile).namesrv
    except CredentialsError:
        return ""


@contextmanager
def profile_in_environment(profile: str) -> Iterator[None]:
    """Puts ``--profile`` into the environment while a command runs, so that processes that it
    starts use it too."""
    new = {"DLEDGER_PROFILE": profile}
    if namesrv := _namesrv_of(profile):
        new["NAMESRV_ADDR"] = namesrv
    before = {name: os.environ.pop(name, None) for name in (*_CREDENTIALS, *new)}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def profiles(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """For shell completion: the user's clusters that begin with ``begun``. Without one the shell
    completes files; bash forgets the names if it is told both."""
    from broker.security.credentials import CredentialsError, cluster_names  # noqa: PLC0415 - slow

    try:
        names = cluster_names(os.environ)
    except CredentialsError:
        names = []
    found = [CompletionItem(name) for name in names if name.startswith(begun)]
    return found or [CompletionItem(begun, type="file")]


json_option = options(
    click.option(
        "-o",
        "--output",
        type=click.Choice([each.value for each in Output]),
        callback=_output,
        help="The form of the results (default: table, as text).",
    ),
    click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_note_json,
        help="The same as --output json.",
    ),
)
"""The parameter ``output``, an :class:`Output`."""

namesrv_option = options(
    click.option(
        "--namesrv",
        metavar="ADDR",
        type=name_servers,
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        default=_usual_namesrv,
        help=f"NameServer address (default: the profile's, else {DEFAULT_NAMESRV}).",
    ),
    click.option(
        "--profile",
        metavar="NAME|FILE",
        shell_complete=profiles,
        is_eager=True,
        expose_value=False,
        callback=_use_profile,
        help="A cluster of ~/.config/dledger/clusters.toml ($DLEDGER_CLUSTERS), or a file: "
        "namesrv, access_key, secret_key and ca (default: $DLEDGER_PROFILE).",
    ),
)
"""The parameter ``namesrv``: a list separated by semicolons, as RocketMQ's tools take it."""

cluster_options = options(namesrv_option, json_option)
"""The options of a command that asks a cluster."""

broker_group_option = click.option("--group", metavar="NAME", help="A broker group (default: all).")

data_option = click.option(
    "--data",
    metavar="DIR",
    type=DIRECTORY,
    default=DEFAULT_DATA,
    help="Where the cluster keeps its files (default: ./data).",
)


def data_hint(directory: Path) -> str:
    """``--data`` for a suggested command, quoted for a shell; empty for the default directory."""
    return "" if directory == DEFAULT_DATA else f" --data {shlex.quote(str(directory))}"


yes_option = click.option(
    "-y", "--yes", is_flag=True, help="Do not ask first. Only a terminal is asked."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the changes without making them."
)


def ask_first(question: str, *, yes: bool) -> None:
    """Asks on a terminal whether to do it. Raises :class:`CommandError` if not.

    A script, whose stdin is not a terminal, is not asked.
    """
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not click.confirm(f"{question}?", err=True):
        raise CommandError("nothing is done")
