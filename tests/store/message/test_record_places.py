"""Places of records, compiled as in Python; the layout is that of the stored record."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store.message.record_places import PLACE, find_records, find_records_in_python

IN_PYTHON = find_records_in_python


class Layout(NamedTuple):
    """What matters of a record."""

    body: bytes
    rest: int = 3
    """The bytes behind the body: the topic and the properties with their lengths."""
    sys_flag: int = 0
    queue_offset: int = 7
    body_crc: int = 5

    def encode(self) -> bytes:
        hosts = [8 + 12 * bool(self.sys_flag & flag) for flag in (0x10, 0x20)]
        parts = (
            bytes(8),
            self.body_crc.to_bytes(4, "big", signed=True),
            bytes(8),
            self.queue_offset.to_bytes(8, "big", signed=True),
            bytes(8),
            self.sys_flag.to_bytes(4, "big", signed=True),
            bytes(8 + hosts[0] + 8 + hosts[1] + 12),
            len(self.body).to_bytes(4, "big"),
            self.body,
            bytes(self.rest),
        )
        record = b"".join(parts)
        return len(record).to_bytes(4, "big") + record[4:]


LAYOUTS = st.builds(
    Layout,
    st.binary(max_size=40),
    st.integers(3, 30),
    st.sampled_from([0, 1, 0x10, 0x20, 0x30, 0x31, -1]),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
)


@pytest.mark.parametrize("find", [find_records, IN_PYTHON])
def test_a_place_says_where_a_body_lies(find: Any) -> None:
    layouts = [Layout(b"one"), Layout(b"", 9, 0x31, -2, -3), Layout(b"three" * 9, 3, 0x10, 1 << 62)]
    records = [each.encode() for each in layouts]
    data = b"".join(records)
    places, end = find(data)
    assert end == len(data)
    starts = [0, *accumulate(map(len, records))]
    found = list(PLACE.iter_unpack(places))
    assert [place[1] for place in found] == starts[:-1]
    for layout, (offset, _start, begin, stop, sys_flag, crc) in zip(layouts, found, strict=True):
        assert (data[begin:stop], offset, sys_flag, crc) == (
            layout.body,
            layout.queue_offset,
            layout.sys_flag,
            layout.body_crc,
        )


@pytest.mark.parametrize("find", [find_records, IN_PYTHON])
def test_what_is_no_record_ends_the_search(find: Any) -> None:
    good = Layout(b"body").encode()
    for bad in (
        b"",
        good[:-1],
        bytes(91),
        (1 << 31).to_bytes(4, "big") + good[4:],
        (88).to_bytes(4, "big") + good[4:],
        good[:84] + (1 << 31).to_bytes(4, "big") + good[88:],
        good[:84] + (len(good) - 88).to_bytes(4, "big") + good[88:],
        good[:36] + b"\0\0\0\x30" + good[40:],
    ):
        places, end = find(good + bad)
        assert (len(places), end) == (PLACE.size, len(good))


@given(
    st.lists(LAYOUTS, max_size=5),
    st.binary(max_size=120),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
)
@example([Layout(b"")], b"", [(39, 0x30)])
def test_compiled_and_in_python_find_the_same(
    layouts: list[Layout], tail: bytes, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(b"".join(each.encode() for each in layouts) + tail)
    for place, value in changes:
        if place < len(data):
            data[place] = value
    assert find_records(bytes(data)) == IN_PYTHON(bytes(data))


def test_only_bytes_are_searched() -> None:
    if find_records is IN_PYTHON:
        pytest.skip("built without a C compiler")
    find: Any = find_records
    for wrong in (bytearray(200), memoryview(bytes(200)), None, "x"):
        with pytest.raises(TypeError):
            find(wrong)
    with pytest.raises(TypeError):
        find()
