"""The JSON of a request: as a JSON reader takes it, unless it is made of lists and objects."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.http.errors import HttpRefusedError
from broker.http.json_body import decode_json
from broker.limits import HTTP

SMALL = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)


@given(SMALL)
def test_json_is_read_as_it_was_written(document: object) -> None:
    assert decode_json(orjson.dumps(document)) == document


@given(st.text(st.sampled_from('[]{}"\\ a')))
def test_what_stands_in_a_string_is_no_list(text: str) -> None:
    many = text + "[{" * HTTP.containers_max
    assert decode_json(orjson.dumps({"body": many, many: text})) == {"body": many, many: text}


@pytest.mark.parametrize("unit", ["[],", "{},", '{"a": 1},', '[""],', '"[",[],', '"\\\\",[],'])
def test_a_request_that_is_made_of_lists_is_refused(unit: str) -> None:
    with pytest.raises(HttpRefusedError, match="more than 1000 objects and lists"):
        decode_json(f'{{"keys": [{unit * 1001}0]}}'.encode())


@pytest.mark.parametrize("body", ["[", "[" * 999, '"', '"\\', '{"a', ""])
def test_what_is_no_json_is_refused(body: str) -> None:
    with pytest.raises(HttpRefusedError, match="the request is not JSON"):
        decode_json(body.encode())


@given(st.text(st.sampled_from('"\\[a'), max_size=40))
def test_no_text_is_refused_by_anything_else(text: str) -> None:
    body = (text + "[" * 1001).encode()
    with pytest.raises(HttpRefusedError):
        decode_json(body)


@pytest.mark.parametrize("unit", ['"",', '"a": 1,', '"\\\\",'])
def test_a_request_that_is_made_of_strings_is_refused(unit: str) -> None:
    with pytest.raises(HttpRefusedError, match="more than 50000 strings"):
        decode_json(f"[{unit * (HTTP.strings_max + 1)}0]".encode())


@pytest.mark.parametrize("unit", ['"', "\\", '\\"', '"\\"', '"a\\"[', '"" ', "[],"])
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    """A reader that looks for the end of each string anew would not come to an end here."""
    with pytest.raises(HttpRefusedError):
        decode_json(("[" * 1001 + unit * 2_000_000).encode())
