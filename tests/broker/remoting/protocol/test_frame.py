"""One frame: vectors, round trips, and bytes that are none."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.remoting.protocol.codes import FLAG_ONE_WAY, LanguageCode, RequestCode, ResponseCode
from broker.remoting.protocol.errors import FrameError
from broker.remoting.protocol.frame import (
    FRAME_SIZE_MAX,
    HEADER_SIZE_MAX,
    PREFIX,
    Frame,
    encode_request,
    encode_response,
)
from tests.support.frames import decode_frame

JSON_HEADER_VECTOR = (
    b'{"code":30,"extFields":{"queueId":"3","topic":"TopicTest"},"flag":0,"language":"JAVA",'
    b'"opaque":7,"serializeTypeCurrentRPC":"JSON","version":401}'
)
JSON_PREFIX_VECTOR = bytes.fromhex("0000009400000090")
BINARY_VECTOR = bytes.fromhex(
    "0000003b01000037001e0001910000000700000000000000000000002200077175657565496400000001"
    "330005746f70696300000009546f70696354657374"
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
EXT = st.dictionaries(TEXT, TEXT, max_size=6)
OPAQUE = st.integers(-(2**31), 2**31 - 1)
SERIALIZATION = st.sampled_from([0, 1])


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


def json_header(**fields: object) -> bytes:
    return json_frame(orjson.dumps({"code": 11, "opaque": 1, **fields}))


def answer_fields(data: bytes) -> dict[str, object]:
    fields: dict[str, object] = orjson.loads(data[PREFIX.size :])
    return fields


def test_a_json_request_of_the_java_client_decodes() -> None:
    frame = decode_frame(JSON_PREFIX_VECTOR + JSON_HEADER_VECTOR)
    assert (frame.code, frame.opaque, frame.flag, frame.version) == (30, 7, 0, 401)
    assert frame.language is LanguageCode.JAVA
    assert frame.ext == {"queueId": "3", "topic": "TopicTest"}
    assert (frame.remark, frame.body, frame.serialization) == (None, b"", 0)


def test_a_binary_request_of_the_java_client_decodes() -> None:
    frame = decode_frame(BINARY_VECTOR)
    assert (frame.code, frame.opaque, frame.flag, frame.version) == (30, 7, 0, 401)
    assert frame.language is LanguageCode.JAVA
    assert frame.ext == {"queueId": "3", "topic": "TopicTest"}
    assert (frame.remark, frame.body, frame.serialization) == (None, b"", 1)


def test_a_binary_request_is_written_as_the_java_client_writes_it() -> None:
    ours = encode_request(30, 7, {"queueId": "3", "topic": "TopicTest"}, serialization=1)
    java = bytearray(BINARY_VECTOR)
    java[8 + 2] = LanguageCode.PYTHON
    java[8 + 3 : 8 + 5] = (409).to_bytes(2, "big")
    assert ours == bytes(java)


def test_a_header_may_end_in_a_newline() -> None:
    assert decode_frame(json_frame(JSON_HEADER_VECTOR + b"\n", b"body")).body == b"body"


def test_an_unknown_language_is_taken_as_other() -> None:
    assert decode_frame(json_header(language="COBOL")).language is LanguageCode.OTHER


def test_a_language_that_is_no_string_is_taken_as_other() -> None:
    assert decode_frame(json_header(language=["JAVA"])).language is LanguageCode.OTHER


def test_an_unknown_language_number_is_taken_as_other() -> None:
    data = bytearray(BINARY_VECTOR)
    data[8 + 2] = 99
    assert decode_frame(bytes(data)).language is LanguageCode.OTHER


def test_a_header_needs_only_code_and_opaque() -> None:
    frame = decode_frame(json_header())
    assert (frame.flag, frame.version, frame.remark, frame.ext) == (0, 0, None, {})


def test_null_remark_and_null_ext_fields_are_as_if_absent() -> None:
    frame = decode_frame(json_header(remark=None, extFields=None))
    assert (frame.remark, frame.ext) == (None, {})


def test_ext_values_may_be_numbers_booleans_and_null() -> None:
    ext = {"queueId": 3, "batch": False, "ratio": 0.5, "nothing": None, "topic": "T"}
    assert decode_frame(json_header(extFields=ext)).ext == ext


@given(OPAQUE, TEXT | st.none(), EXT, st.binary(max_size=50), SERIALIZATION)
def test_a_response_round_trips(
    opaque: int, remark: str | None, ext: dict[str, str], body: bytes, serialization: int
) -> None:
    request = Frame(310, opaque, serialization=serialization)
    head = encode_response(request, ResponseCode.TOPIC_NOT_EXIST, remark, ext, len(body))
    frame = decode_frame(head + body)
    assert frame.is_response
    assert not frame.is_one_way
    assert (frame.code, frame.opaque, frame.ext, frame.body) == (17, opaque, ext, body)
    assert (frame.remark or None) == (remark or None)
    assert frame.serialization == serialization
    assert frame.language is LanguageCode.PYTHON


@given(OPAQUE, EXT, st.binary(max_size=50), SERIALIZATION)
def test_a_one_way_request_round_trips(
    opaque: int, ext: dict[str, str], body: bytes, serialization: int
) -> None:
    head = encode_request(
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        opaque,
        ext,
        len(body),
        flag=FLAG_ONE_WAY,
        serialization=serialization,
    )
    frame = decode_frame(head + body)
    assert frame.is_one_way
    assert not frame.is_response
    assert (frame.code, frame.opaque, frame.ext, frame.body) == (40, opaque, ext, body)


def test_an_answer_says_what_clients_read_and_no_more() -> None:
    head = encode_response(Frame(310, 7), 0, None, {"queueId": "3"})
    assert answer_fields(head) == {
        "code": 0,
        "extFields": {"queueId": "3"},
        "flag": 1,
        "language": "PYTHON",
        "opaque": 7,
        "version": 409,
    }


def test_a_remark_is_escaped() -> None:
    head = encode_response(Frame(310, 7), 1, 'a "quoted"\nremark')
    assert answer_fields(head)["remark"] == 'a "quoted"\nremark'


@given(st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_raise_frame_error(data: bytes) -> None:
    try:
        frame = decode_frame(data)
    except FrameError as error:
        assert str(error).startswith("frame, byte ")  # noqa: PT017 - either outcome is right
    else:
        assert type(frame.code) is int


@given(st.binary(max_size=120), SERIALIZATION)
def test_arbitrary_headers_decode_or_raise_frame_error(header: bytes, serialization: int) -> None:
    data = PREFIX.pack(4 + len(header), serialization << 24 | len(header)) + header
    try:
        frame = decode_frame(data)
    except FrameError as error:
        assert error.byte >= 4  # noqa: PT017 - any bytes, not all raise
    else:
        assert frame.serialization == serialization


@given(st.integers(0, len(BINARY_VECTOR) - 1), st.integers(0, 255))
def test_a_binary_frame_with_any_byte_changed_decodes_or_raises_frame_error(
    byte: int, value: int
) -> None:
    data = bytearray(BINARY_VECTOR)
    data[byte] = value
    try:
        frame = decode_frame(bytes(data))
    except FrameError as error:
        assert error.reason  # noqa: PT017 - any bytes, not all raise
    else:
        assert frame.serialization in (0, 1)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
HEADER_NAMES = st.sampled_from(
    ["code", "opaque", "flag", "version", "language", "remark", "extFields"]
)


@given(st.dictionaries(HEADER_NAMES, JSON_VALUES) | JSON_VALUES)
def test_any_json_header_decodes_or_raises_frame_error(header: object) -> None:
    try:
        frame = decode_frame(json_frame(orjson.dumps(header)))
    except FrameError as error:
        assert error.byte == 8  # noqa: PT017 - any bytes, not all raise
    else:
        assert type(frame.opaque) is int
        assert type(frame.ext) is dict


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (b"[1]", "the header is not a JSON object"),
        (b"null", "the header is not a JSON object"),
        (b'"code"', "the header is not a JSON object"),
        (b"", "the header is not JSON"),
        (b"{", "the header is not JSON"),
        (b"[" * 5000, "the header is not JSON"),
        (b'{"opaque":1}', "the header has no 'code'"),
        (b'{"code":1}', "the header has no 'opaque'"),
        (b'{"code":"1","opaque":1}', "code '1' is not an integer"),
        (b'{"code":1,"opaque":1,"flag":true}', "flag True is not an integer"),
        (b'{"code":1,"opaque":1,"remark":7}', "remark is not a string"),
        (b'{"code":1,"opaque":1,"extFields":[]}', "extFields is not an object"),
    ],
)
def test_a_json_header_that_is_none_is_named(header: bytes, what: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode_frame(json_frame(header))
    assert caught.value.reason.startswith(what)


def test_a_header_as_large_as_allowed_is_decoded() -> None:
    header = b'{"code":1,"opaque":1' + b" " * (HEADER_SIZE_MAX - 21) + b"}"
    assert len(header) == HEADER_SIZE_MAX
    assert decode_frame(json_frame(header)).code == 1


@pytest.mark.parametrize(
    ("prefix", "what"),
    [
        (PREFIX.pack(-1, 0), "total -1 is not between"),
        (PREFIX.pack(3, 0), "total 3 is not between"),
        (PREFIX.pack(FRAME_SIZE_MAX - 3, 0), "total 16777213 is not between"),
        (PREFIX.pack(20, 17), "a header of 17 bytes exceeds the total of 20"),
        (
            PREFIX.pack(HEADER_SIZE_MAX + 5, HEADER_SIZE_MAX + 1),
            "a header of 1048577 bytes exceeds 1048576",
        ),
        (bytes.fromhex("1603010200010001"), "a TLS handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n", "the peer speaks HTTP"),
        (b"GET / HTTP/1.1\r\n", "the peer speaks HTTP"),
        (PREFIX.pack(6, 2 << 24 | 2) + b"{}", "serialization 2 is neither"),
        (b"\0\0\0", "3 bytes are fewer than the 8"),
        (PREFIX.pack(8, 2) + b"{}", "total says 12 bytes, there are 10"),
    ],
)
def test_a_prefix_that_begins_no_frame_is_named(prefix: bytes, what: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode_frame(prefix)
    assert caught.value.reason.startswith(what)


def test_a_frame_shows_itself_without_its_body() -> None:
    frame = Frame(310, 7, ext={"b": "T"}, body=b"secret")
    assert repr(frame) == (
        "Frame(request code=310 opaque=7 flag=0 remark=None ext={'b': 'T'} body=6 bytes)"
    )
