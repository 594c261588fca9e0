"""Arrays that are packed in pieces have the bytes that they have otherwise."""

from __future__ import annotations

import msgpack
import pytest

from store.io.packed_array import pack_array


@pytest.mark.parametrize("count", [0, 1, 15, 16, 1023, 1024, 1025, 70_000])
def test_it_has_the_bytes_of_an_array_packed_at_once(count: int) -> None:
    elements = [("orders", number, -number, b"x") for number in range(count)]
    assert pack_array(elements) == msgpack.packb(elements)
