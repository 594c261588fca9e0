"""The columns of each view, for Arrow and for Spark. Both must be equal.

Indexes, positions and offsets are those of ``docs/format.md``. Positions and sizes are bytes. CRCs
are unsigned, and therefore ``bigint``. Times are ``timestamp`` with milliseconds. For Spark every
column is nullable; the comments say which columns really have nulls.
"""

from __future__ import annotations

import pyarrow as pa

from spark.datasource.column_comments import comment_of
from spark.datasource.options import ReadOptions, View
from spark.errors import OptionError

_LONG, _INT, _TEXT = "bigint", "int", "string"

COLUMNS: dict[View, tuple[tuple[str, str], ...]] = {
    View.ENTRIES: (
        ("replica", _TEXT),
        ("index", _LONG),
        ("term", _LONG),
        ("kind", _TEXT),
        ("position", _LONG),
        ("size", _INT),
        ("chain_crc", _LONG),
        ("body_crc", _LONG),
        ("body_crc_ok", "boolean"),
        ("path", _TEXT),
    ),
    View.MESSAGES: (
        ("replica", _TEXT),
        ("index", _LONG),
        ("position", _LONG),
        ("size", _INT),
        ("topic", _TEXT),
        ("queue_id", _INT),
        ("queue_offset", _LONG),
        ("msg_id", _TEXT),
        ("unique_key", _TEXT),
        ("tags", _TEXT),
        ("keys", _TEXT),
        ("flag", _INT),
        ("sys_flag", _INT),
        ("born_timestamp", "timestamp"),
        ("born_host", _TEXT),
        ("store_timestamp", "timestamp"),
        ("store_host", _TEXT),
        ("reconsume_times", _INT),
        ("prepared_position", _LONG),
        ("body_size", _INT),
        ("body_crc", _LONG),
        ("properties", "map<string,string>"),
    ),
    View.CONSUMEQUEUE: (
        ("replica", _TEXT),
        ("topic", _TEXT),
        ("queue_id", _INT),
        ("queue_offset", _LONG),
        ("position", _LONG),
        ("size", _INT),
        ("tags_code", _LONG),
        ("path", _TEXT),
    ),
    View.INDEX: (
        ("replica", _TEXT),
        ("index", _LONG),
        ("term", _LONG),
        ("kind", _TEXT),
        ("position", _LONG),
        ("size", _INT),
        ("path", _TEXT),
    ),
    View.KEYINDEX: (
        ("replica", _TEXT),
        ("key_hash", _LONG),
        ("position", _LONG),
        ("store_timestamp", "timestamp"),
        ("path", _TEXT),
    ),
    View.TOPICS: (
        ("replica", _TEXT),
        ("index", _LONG),
        ("topic", _TEXT),
        ("read_queues", _INT),
        ("write_queues", _INT),
        ("perm", _INT),
        ("sys_flag", _INT),
        ("ordered", "boolean"),
    ),
    View.GROUPS: (
        ("replica", _TEXT),
        ("index", _LONG),
        ("consumer_group", _TEXT),
        ("consume_enable", "boolean"),
        ("consume_from_min_enable", "boolean"),
        ("consume_broadcast_enable", "boolean"),
        ("retry_queues", _INT),
        ("retry_max_times", _INT),
        ("broker_id", _LONG),
        ("which_broker_when_slow", _LONG),
        ("notify_ids_changed", "boolean"),
    ),
    View.OFFSETS: (
        ("replica", _TEXT),
        ("index", _LONG),
        ("consumer_group", _TEXT),
        ("topic", _TEXT),
        ("queue_id", _INT),
        ("committed_offset", _LONG),
        ("first_offset", _LONG),
        ("end_offset", _LONG),
    ),
    View.TRANSACTIONS: (
        ("replica", _TEXT),
        ("index", _LONG),
        ("half_offset", _LONG),
        ("position", _LONG),
        ("producer_group", _TEXT),
        ("store_timestamp", "timestamp"),
        ("immunity_ms", _LONG),
        ("checks", _INT),
        ("checked_timestamp", "timestamp"),
    ),
}

_ARROW = {
    _LONG: pa.int64(),
    _INT: pa.int32(),
    _TEXT: pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


BODY = ("body", "binary")
WITH_BODIES = frozenset({View.ENTRIES, View.MESSAGES})


def row_columns(options: ReadOptions) -> tuple[tuple[str, str], ...]:
    """Names and Spark types of all columns; ``body`` only on request."""
    found = COLUMNS[options.view]
    return (*found, BODY) if has_bodies(options) else found


def has_bodies(options: ReadOptions) -> bool:
    return options.bodies or (BODY[0] in options.columns and options.view in WITH_BODIES)


def columns(options: ReadOptions) -> tuple[tuple[str, str], ...]:
    """Names and Spark types of the result of a read, in order.

    Raises :class:`~spark.errors.OptionError` for a column that the view does not have.
    """
    there = dict(row_columns(options))
    if not options.columns:
        return tuple(there.items())
    missing = [name for name in options.columns if name not in there]
    if missing:
        names = [*there, BODY[0]] if options.view in WITH_BODIES else list(there)
        raise OptionError(
            f"option columns: the view {options.view} has no column {missing[0]}: "
            f"it has {', '.join(dict.fromkeys(names))}"
        )
    return tuple((name, there[name]) for name in options.columns)


def spark_schema(options: ReadOptions) -> str:
    """The columns as DDL, with comments. Spark parses it without a session."""
    return ", ".join(
        f"`{name}` {kind} COMMENT '{comment_of(options.view, name)}'"
        for name, kind in columns(options)
    )


def arrow_schema(options: ReadOptions) -> pa.Schema:
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns(options)])
