"""JSON with bare integer keys, as fastjson writes it."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.limits import BODY_LIMITS
from broker.remoting.protocol.java_json import decode_json, encode_json, object_map

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


def test_keys_that_are_objects_come_back_as_their_text() -> None:
    body = rb'{"offsetTable":{{"q":0,"t":"a}\""}:5, {"q":{"n":[1]}} :6,"plain":{1:7}}}'
    assert decode_json(body) == {
        "offsetTable": {'{"q":0,"t":"a}\\""}': 5, '{"q":{"n":[1]}}': 6, "plain": {"1": 7}}
    }


def test_a_value_after_a_comma_in_a_list_is_no_key() -> None:
    assert decode_json(b'{0:[{"a":1},{"b":2},3]}') == {"0": [{"a": 1}, {"b": 2}, 3]}


@pytest.mark.parametrize("opening", [b"{0:", b"{{", b"[", b'{0:{"a":[', b'{{"a":'])
def test_what_is_nested_too_deep_is_refused(opening: bytes) -> None:
    depth = BODY_LIMITS.lenient_json_depth
    with pytest.raises(ValueError, match=r"nested deeper than|depth limit"):
        decode_json(opening * (depth + 1))


@pytest.mark.parametrize(
    "cut_short", [b'{{"a":0', b'{{"a":0}', b'{0:"', b'{0:"\\', b"{{", b"{{}", b"}"]
)
def test_what_has_no_end_is_refused(cut_short: bytes) -> None:
    with pytest.raises(ValueError, match=r"no end|unexpected|expected"):
        decode_json(cut_short)


def test_text_whose_keys_are_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        decode_json(b'{{"\xff":0}:1}')


def test_only_so_much_is_read_in_the_dialect() -> None:
    room = b" " * BODY_LIMITS.lenient_json_size
    assert decode_json(b'{"0":1}' + room) == {"0": 1}
    with pytest.raises(ValueError, match=f"read in up to {BODY_LIMITS.lenient_json_size} bytes"):
        decode_json(b"{0:1}" + room)


@given(st.lists(st.tuples(DOCUMENTS, st.integers(-(2**53), 2**53))))
def test_a_map_of_objects_reads_as_it_was_written(pairs: list[tuple[object, int]]) -> None:
    # A counter makes the keys distinct.
    keys = [({"key": key, "number": n}, value) for n, (key, value) in enumerate(pairs)]
    assert decode_json(object_map(keys)) == {
        encode_json(key).decode(): value for key, value in keys
    }


@given(DOCUMENTS)
def test_both_forms_of_any_document_read_the_same(document: object) -> None:
    quoted = encode_json(document)
    assert decode_json(encode_json(document, bare_keys=True)) == orjson.loads(quoted)


def test_keys_without_quotes_are_read_among_so_many_marks_alone() -> None:
    pairs = BODY_LIMITS.lenient_json_marks // 2 - 1
    right = b"{" + b",".join(b"%d:0" % n for n in range(pairs)) + b"}"
    assert len(decode_json(right)) == pairs
    with pytest.raises(ValueError, match=f"up to {BODY_LIMITS.lenient_json_marks} braces"):
        decode_json(right.replace(b"}", b",0:[[]]}"))
