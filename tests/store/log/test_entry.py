"""Entries: round trips, and that no wrong bytes pass for one."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from store.errors import CorruptEntryError
from store.log.entry import (
    ENTRY_SIZE_MAX,
    HEADER_SIZE,
    Entry,
    EntryKind,
    build_entry,
    check_chain,
    decode_entries,
    decode_entry,
)
from tests.store.small_logs import Writer

i64 = st.integers(0, 2**63 - 1)
u32 = st.integers(0, 2**32 - 1)


def test_crc32c_is_the_castagnoli_crc() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@given(
    kind=st.sampled_from(EntryKind),
    index=i64,
    term=i64,
    position=i64,
    chain=u32,
    parts=st.lists(st.binary(max_size=60), max_size=4),
)
def test_an_entry_decodes_to_what_it_was_built_from(  # noqa: PLR0917 - the fields
    kind: EntryKind, index: int, term: int, position: int, chain: int, parts: list[bytes]
) -> None:
    built = build_entry(kind, index, term, position, chain, parts)
    found = decode_entry(b"before" + bytes(built.data) + b"after", 6, chain)
    assert (found.kind, found.index, found.term, found.position) == (kind, index, term, position)
    assert bytes(found.body) == b"".join(parts)
    assert found.chain_crc == built.chain_crc
    assert found.end == position + HEADER_SIZE + len(b"".join(parts))


def test_the_body_may_be_given_in_views_and_byte_arrays() -> None:
    mixed = build_entry(EntryKind.DATA, 0, 1, 0, 0, [memoryview(b"ab"), bytearray(b"c")])
    assert mixed == build_entry(EntryKind.DATA, 0, 1, 0, 0, [b"abc"])


def test_an_entry_too_large_for_the_i32_of_its_size_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return ENTRY_SIZE_MAX

    with pytest.raises(ValueError, match="exceeds"):
        build_entry(EntryKind.DATA, 0, 1, 0, 0, [Huge()])


@given(bit=st.integers(0, (HEADER_SIZE + 20) * 8 - 1))
def test_no_flipped_bit_in_an_entry_goes_unnoticed(bit: int) -> None:
    data = bytearray(build_entry(EntryKind.DATA, 7, 3, 900, 12345, [b"x" * 20]).data)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptEntryError):
        decode_entry(data, 0, 12345)


@given(size=st.integers(0, HEADER_SIZE + 19))
def test_an_entry_cut_short_is_refused(size: int) -> None:
    data = build_entry(EntryKind.DATA, 0, 1, 0, 0, [b"x" * 20]).data
    with pytest.raises(CorruptEntryError, match="cut short"):
        decode_entry(data[:size])


@given(st.binary(max_size=200))
def test_garbage_is_no_entry(garbage: bytes) -> None:
    with pytest.raises(CorruptEntryError):
        decode_entry(garbage)


def test_a_chain_that_does_not_continue_is_refused() -> None:
    entry = build_entry(EntryKind.DATA, 1, 1, 53, 77, [b"x"])
    check_chain(entry, 77)
    with pytest.raises(CorruptEntryError, match="chain CRC"):
        check_chain(entry, 78)


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_entries_back_to_back_decode_in_order(bodies: list[bytes]) -> None:
    writer = Writer()
    for body in bodies:
        writer.make(body)
    data = b"".join(entry.data for entry in writer.entries)
    assert decode_entries(data) == writer.entries


def three() -> list[Entry]:
    writer = Writer()
    return writer.make_many(3)


def test_entries_with_a_gap_are_refused() -> None:
    first, _, third = three()
    with pytest.raises(CorruptEntryError):
        decode_entries(bytes(first.data) + bytes(third.data))


def test_entries_of_another_history_are_refused() -> None:
    first = three()[0]
    other = Writer()
    other.make(b"another first")
    second = other.make(b"second")
    with pytest.raises(CorruptEntryError, match="chain CRC"):
        decode_entries(bytes(first.data) + bytes(second.data))


def test_an_index_that_does_not_follow_is_refused_even_with_the_right_chain() -> None:
    first = build_entry(EntryKind.DATA, 0, 1, 0, 0, [])
    jump = build_entry(EntryKind.DATA, 2, 1, first.end, first.chain_crc, [])
    with pytest.raises(CorruptEntryError, match="index"):
        decode_entries(bytes(first.data) + bytes(jump.data))
