"""JSON with bare integer keys, as fastjson writes it."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.remoting.javajson import decode_json, encode_json

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6), inner, max_size=3)
        | st.dictionaries(st.integers(-100, 100), inner, max_size=3)
    ),
    max_leaves=12,
)


def test_integer_keys_are_written_bare_or_quoted() -> None:
    document = {"brokerAddrs": {0: "a", 1: "b"}}
    assert encode_json(document, bare_keys=True) == b'{"brokerAddrs":{0:"a",1:"b"}}'
    assert encode_json(document) == b'{"brokerAddrs":{"0":"a","1":"b"}}'


def test_bare_and_quoted_keys_read_the_same() -> None:
    assert decode_json(b'{"t":{0:1, -2 :3}}') == decode_json(b'{"t":{"0":1,"-2":3}}')


def test_text_that_looks_like_a_bare_key_is_left_alone() -> None:
    assert decode_json(rb'{0:"{1:2,\"3:4"}') == {"0": '{1:2,"3:4'}


def test_what_is_not_json_either_way_is_refused() -> None:
    with pytest.raises(ValueError, match="unexpected"):
        decode_json(b"{0:}")


@given(DOCUMENTS)
def test_both_forms_of_any_document_read_the_same(document: object) -> None:
    quoted = encode_json(document)
    assert decode_json(encode_json(document, bare_keys=True)) == orjson.loads(quoted)
