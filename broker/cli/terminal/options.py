"""The options that several commands take, and how their results are printed."""

from __future__ import annotations

import argparse
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from store.quoting import quoted

DEFAULT_NAMESRV = "127.0.0.1:9876"
DEFAULT_CLUSTER = "DefaultCluster"
DEFAULT_DATA = Path("data")
PORT_MAX = 65_535
_CREDENTIALS = ("DLEDGER_PROFILE", "DLEDGER_ACCESS_KEY", "DLEDGER_SECRET_KEY", "DLEDGER_CA")


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="print machine-readable JSON instead of text"
    )


def add_namesrv(parser: argparse.ArgumentParser) -> None:
    """``--namesrv``: a list separated by semicolons, as RocketMQ's tools take it; ``--profile``."""
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="a profile with access_key, secret_key and ca (default: $DLEDGER_PROFILE)",
    )
    # Imported here: commands without a server need not wait for this import.
    from broker.cli.terminal.name_arguments import FromEnvironment, name_servers  # noqa: PLC0415 - see above

    parser.add_argument(
        "--namesrv",
        metavar="ADDR",
        type=name_servers,
        default=FromEnvironment(os.environ.get("NAMESRV_ADDR", "")) or DEFAULT_NAMESRV,
        help=f"NameServer address (default: $NAMESRV_ADDR, else {DEFAULT_NAMESRV})",
    )


@contextmanager
def profile_in_environment(args: argparse.Namespace) -> Iterator[None]:
    """While a command runs, the environment says what ``--profile`` does, which goes before it: the
    processes that it starts are to know, too."""
    profile: str | None = getattr(args, "profile", None)
    if profile is None:
        yield
        return
    before = {name: os.environ.pop(name, None) for name in _CREDENTIALS}
    os.environ["DLEDGER_PROFILE"] = profile
    try:
        yield
    finally:
        del os.environ["DLEDGER_PROFILE"]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def add_data(parser: argparse.ArgumentParser) -> None:
    """``--data``."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        default=DEFAULT_DATA,
        help="where the cluster keeps its files (default: ./data)",
    )


def data_option(directory: Path) -> str:
    """``--data`` for a command that a message suggests, quoted for a shell; nothing for the default
    directory."""
    return "" if directory == DEFAULT_DATA else f" --data {shlex.quote(str(directory))}"


DIGITS_MAX = 18
"""The most digits of a number; Python reads no more than 4,300."""

COUNT_MAX = 10**DIGITS_MAX - 1


def whole_number(text: str, minimum: int, maximum: int) -> int | None:
    """The number in the text, if it is within the limits."""
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX:
        return None
    number = int(text)
    return number if minimum <= number <= maximum else None


def positive(text: str) -> int:
    """The type of an option that counts something."""
    number = whole_number(text, 1, COUNT_MAX)
    if number is None:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number from 1 up")
    return number


def port_number(text: str) -> int:
    """The type of an option for a port, 0 for any free one."""
    number = whole_number(text, 0, PORT_MAX)
    if number is None:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a port from 0 to {PORT_MAX}")
    return number


def seconds(text: str) -> float:
    """The type of an option that is a time to wait."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number of seconds above 0")
    return value


def print_json(document: object) -> None:
    """One JSON document on one line."""
    print(orjson.dumps(document).decode(), flush=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their content; None is shown as a dash."""
    lines = [[*map(str, header)], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
