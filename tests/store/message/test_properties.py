"""Property strings round trip, and one property is found without decoding the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.message.properties import decode_properties, encode_properties, find_property

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))
LOOSE = st.lists(st.sampled_from(["\x01", "\x02", "A", "B", "AB", "TAGS", "x"])).map("".join)


@given(st.dictionaries(TEXT, TEXT))
def test_a_mapping_survives_encoding(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


def test_pairs_are_separated_as_rocketmq_does() -> None:
    assert encode_properties({"TAGS": "TagA", "K": ""}) == b"TAGS\x01TagA\x02K\x01\x02"


def test_a_missing_last_separator_is_accepted() -> None:
    assert decode_properties(b"A\x01b\x02C\x01d") == {"A": "b", "C": "d"}
    assert find_property(b"A\x01b\x02C\x01d", b"C") == b"d"


def test_a_pair_without_a_separator_is_skipped() -> None:
    assert decode_properties(b"junk\x02A\x01b\x02") == {"A": "b"}
    assert find_property(b"junk\x02A\x01b\x02", b"junk") is None


def test_a_name_is_not_found_at_the_end_of_another() -> None:
    assert find_property(b"MYTAGS\x01no\x02TAGS\x01yes\x02", b"TAGS") == b"yes"


def test_a_name_is_not_found_in_a_value() -> None:
    assert find_property(b"A\x01TAGS\x02", b"TAGS") is None


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
def test_separators_in_names_and_values_are_refused(separator: str) -> None:
    with pytest.raises(ValueError, match="contains a separator"):
        encode_properties({f"a{separator}": "b"})
    with pytest.raises(ValueError, match="contains a separator"):
        encode_properties({"a": f"b{separator}"})


@given(LOOSE, st.sampled_from(["A", "B", "AB", "TAGS"]))
def test_finding_agrees_with_splitting(encoded: str, name: str) -> None:
    pairs = [pair.partition("\x01") for pair in encoded.split("\x02")]
    values = [value for found, separator, value in pairs if separator and found == name]
    expected = values[0].encode() if values else None
    assert find_property(encoded.encode(), name.encode()) == expected


@given(st.binary())
def test_any_bytes_decode_to_some_mapping(encoded: bytes) -> None:
    properties = decode_properties(encoded)
    assert len(properties) <= encoded.count(b"\x01")
