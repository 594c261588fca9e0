"""Options that make no sense are refused by name."""

from __future__ import annotations

import pytest

from spark.datasource.options import ReadOptions, View, parse_options
from spark.errors import OptionError


def test_names_are_read_in_any_case() -> None:
    given = {"View": "MESSAGES", "fromIndex": "3", "TOINDEX": "9", "Bodies": "True", "path": "/x"}
    assert parse_options(given) == ReadOptions(View.MESSAGES, from_index=3, to_index=9, bodies=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"veiw": "entries"}, "unknown option veiw"),
        ({"view": "tables"}, "option view=tables"),
        ({"fromIndex": "-1"}, "option fromindex=-1"),
        ({"toIndex": "1e3"}, "option toindex=1e3"),
        ({"toIndex": str(1 << 63)}, "option toindex="),
        ({"bodies": "yes"}, "option bodies=yes"),
        ({"rangeBytes": "0"}, "option rangeBytes=0"),
        ({"view": "index", "bodies": "true"}, "view index has no bodies"),
        ({"topic": "orders"}, "view entries has no topics"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(given)


def test_a_replica_is_named_with_its_group_or_without() -> None:
    options = parse_options({"replica": "n0, broker-a/n2"})
    names = ("broker-a/n0", "broker-a/n1", "broker-a/n2", "broker-b/n2")
    assert [options.wants(name) for name in names] == [True, False, True, False]
