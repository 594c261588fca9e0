"""The options of the data source. Unknown names and impossible values are errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from spark.errors import OptionError

RANGE_BYTES = 64 << 20
_INDEX_MAX = (1 << 63) - 1


class View(StrEnum):
    """The table to read."""

    ENTRIES = "entries"
    MESSAGES = "messages"
    CONSUMEQUEUE = "consumequeue"
    INDEX = "index"
    KEYINDEX = "keyindex"
    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


OPTIONS = {
    "view": f"{', '.join(View)}; default entries",
    "replica": "names of replicas, such as n0 or broker-a/n0, with commas between; default all",
    "fromindex": "the first log entry, default the first there is",
    "toindex": "the last log entry, default the last that is committed",
    "topic": "messages and rows of this topic only",
    "bodies": "true: entries and messages with their bodies; default false",
    "columns": "names of columns, with commas between, in the order wanted; default all",
    "rangebytes": "bytes of log that one task reads, default 64 MiB",
    "pushdown": "true or false, without effect: the options above narrow what is read",
}
# Spark itself adds these options.
_GIVEN = frozenset({"path", "paths"})


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. ``to_index`` is inclusive."""

    view: View = View.ENTRIES
    replicas: frozenset[str] = frozenset()
    from_index: int = 0
    to_index: int = _INDEX_MAX
    topic: str | None = None
    bodies: bool = False
    range_bytes: int = RANGE_BYTES
    columns: tuple[str, ...] = ()

    def wants(self, name: str) -> bool:
        """Whether the replica ``group/node`` is asked for."""
        return not self.replicas or bool(self.replicas & {name, name.partition("/")[2]})


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """The options. Raises :class:`~spark.errors.OptionError` with the name of a wrong one."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(options.keys() - OPTIONS.keys() - _GIVEN)
    if unknown:
        raise OptionError(f"unknown option {unknown[0]}: there are {', '.join(OPTIONS)}")
    name = options.get("view", View.ENTRIES)
    try:
        view = View(name.lower())
    except ValueError:
        raise OptionError(f"option view={name}: it is one of {', '.join(View)}") from None
    replicas = frozenset(filter(None, options.get("replica", "").replace(" ", "").split(",")))
    parsed = ReadOptions(
        view,
        replicas,
        parse_number(options, "fromindex", 0),
        parse_number(options, "toindex", _INDEX_MAX),
        options.get("topic"),
        parse_truth(options, "bodies"),
        parse_number(options, "rangebytes", RANGE_BYTES),
        parse_names(options, "columns"),
    )
    parse_truth(options, "pushdown")
    if parsed.range_bytes == 0:
        raise OptionError("option rangeBytes=0: a task must read something")
    if parsed.bodies and view not in {View.ENTRIES, View.MESSAGES}:
        raise OptionError(f"option bodies: the view {view} has no bodies")
    if parsed.bodies and parsed.columns:
        raise OptionError("option bodies: name the column body among the columns instead")
    if parsed.topic is not None and view not in {View.MESSAGES, View.CONSUMEQUEUE}:
        raise OptionError(f"option topic: the view {view} has no topics")
    return parsed


def parse_number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and int(text) <= _INDEX_MAX):
        raise OptionError(f"option {name}={text}: not a number from 0 up")
    return int(text)


def parse_names(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = options.get(name)
    if text is None:
        return ()
    names = tuple(each.strip().lower() for each in text.split(","))
    if not all(names):
        raise OptionError(f"option {name}={text}: a name is empty")
    twice = [each for place, each in enumerate(names) if each in names[:place]]
    if twice:
        raise OptionError(f"option {name}={text}: {twice[0]} is named twice")
    return names


def parse_truth(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise OptionError(f"option {name}={text}: it is true or false")
    return text == "true"
