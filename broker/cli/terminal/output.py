"""The results of a command, as text for people or as documents for programs."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from enum import Enum

import orjson

WIDTH = 10_000
"""The width of a table: large enough that no line is cut or folded."""


def unregistered_groups(names: Sequence[str]) -> dict[str, Sequence[str]]:
    """The broker groups without a registered node, in a document. ``gone_groups`` is the earlier
    name of the same."""
    return {"unregistered_groups": names, "gone_groups": names}


class Output(Enum):
    """The form of the results on stdout."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"

    def document(self, document: object) -> bool:
        """Prints the document, unless the output is text. Returns whether it was printed.

        Several documents are JSON objects, one a line, or YAML documents.
        """
        if self is Output.TABLE:
            return False
        print(self.encode(document).decode(), end="", flush=True)
        return True

    def encode(self, document: object) -> bytes:
        """The document as a line of JSON, or as a YAML document."""
        if self is not Output.YAML:
            return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
        import yaml  # noqa: PLC0415 - few ask for it

        plain = orjson.loads(orjson.dumps(document))
        text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, explicit_start=True)
        return text.encode()


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints columns as wide as their content; None is shown as a dash. On a terminal the header is
    bold, unless ``$NO_COLOR`` is set."""
    from rich.console import Console  # noqa: PLC0415 - few commands need a table
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in header:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*(Text("-" if value is None else str(value)) for value in row))
    shown = io.StringIO()  # rich would end the program if stdout is a closed pipe
    colours = sys.stdout.isatty()
    Console(file=shown, force_terminal=colours, width=WIDTH, highlight=False).print(table)
    print("\n".join(line.rstrip() for line in shown.getvalue().splitlines()))
