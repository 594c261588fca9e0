"""JSON that would take long to parse is not parsed; what strings hold does not count."""

from __future__ import annotations

import orjson
import pytest

from broker.remoting.protocol.json_limit import BYTES_MAX, check_marks

MARKS = 1000


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"0,", b'"",', b'{"a":', b'"[",'])
def test_as_many_parts_as_are_allowed_and_no_more(unit: bytes) -> None:
    marks = sum(map(unit.count, (b"{", b"[", b":", b","))) - unit.count(b'"[')
    check_marks(unit * (MARKS // marks), MARKS)
    with pytest.raises(ValueError, match="more than 1000 braces, brackets, colons and commas"):
        check_marks(unit * (MARKS // marks + 1), MARKS)


@pytest.mark.parametrize("text", ["[{:,", '\\"[{:,', "\\\\[{", '"', "a\\"])
def test_marks_in_strings_do_not_count(text: str) -> None:
    check_marks(orjson.dumps({"a": text * 3000, text: [text] * 100}), MARKS)


def test_many_strings_are_refused_before_they_are_cut_apart() -> None:
    with pytest.raises(ValueError, match="more than 1000"):
        check_marks(b'"[" ' * (MARKS + 1), MARKS)


def test_much_longer_text_than_so_many_parts_need_is_refused_unread() -> None:
    check_marks(b" " * (BYTES_MAX * MARKS), MARKS)
    with pytest.raises(ValueError, match="50001 bytes, at most 50000 are allowed"):
        check_marks(b" " * (BYTES_MAX * MARKS + 1), MARKS)
