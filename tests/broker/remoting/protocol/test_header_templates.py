"""Headers that are like one before are read as the parser reads them, all others by the parser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.errors import IllegalMessageError
from broker.limits import REMOTING
from broker.remoting.processors.send_message_header import (
    LONG_NAMES,
    SHORT_NAMES,
    HeaderNames,
    read_header,
    read_templated_header,
)
from broker.remoting.protocol import header_templates
from broker.remoting.protocol.errors import FrameError, RequestError
from broker.remoting.protocol.frame import PREFIX, Frame, encode_request
from broker.remoting.protocol.frame_reader import FrameReader
from broker.remoting.protocol.header_templates import (
    MISSES_MAX,
    READ_FIELDS,
    UNUSED_TEMPLATES_MAX,
    HeaderTemplateCache,
    TemplatedFrame,
)
from tests.broker.remoting.protocol.client_headers import CLIENTS, fields
from tests.support.frames import decode_frame

Ext: TypeAlias = "dict[str, str]"

KEY = "7F0000012345000000AB000000010000"


def sent(opaque: int = 5, /, **fields: str) -> bytes:
    ext = {"a": "G", "b": "T", "c": "TBW102", "d": "4", "f": "0", "g": "1700000000000", "h": "0"}
    ext |= {"i": f"UNIQ_KEY\x01{KEY}\x02TAGS\x01A\x02", "e": "3"}
    return encode_request(310, opaque, {**ext, **fields})


def framed(header: bytes) -> bytes:
    return PREFIX.pack(4 + len(header), len(header)) + header


def read_all(*frames: bytes) -> list[Frame]:
    return list(FrameReader().feed(b"".join(frames)))


def fields_of(frame: Frame) -> list[object]:
    return [getattr(frame, name) for name in READ_FIELDS]


def test_the_second_of_a_kind_is_not_parsed_and_says_what_it_says() -> None:
    other = sent(7, g="1700000000999", i=f"UNIQ_KEY\x01{KEY[::-1]}\x02TAGS\x01A\x02", e="1")
    first, second = read_all(sent(), other)
    assert (type(first), type(second)) == (Frame, TemplatedFrame)
    assert fields_of(second) == fields_of(decode_frame(other))
    assert isinstance(second, TemplatedFrame)
    assert read_templated_header(second, SHORT_NAMES) == read_header(
        decode_frame(other), SHORT_NAMES
    )


def test_a_signed_header_is_not_parsed_and_its_signature_is_its_own() -> None:
    first, other = (
        sent(AccessKey="app", Signature="a+b/1=="),
        sent(AccessKey="app", Signature="/Zz+9+="),
    )
    _, second = read_all(first, other)
    assert type(second) is TemplatedFrame
    assert fields_of(second) == fields_of(decode_frame(other))
    assert second.ext["Signature"] == "/Zz+9+="
    assert read_templated_header(second, SHORT_NAMES) == read_header(
        decode_frame(other), SHORT_NAMES
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_whatever_client_writes_it_the_second_is_not_parsed(client: str) -> None:
    """Its properties are others, in another order."""
    write = CLIENTS[client]
    first = write(1001, fields(2, 1700000000000, f"UNIQ_KEY\x01{KEY}\x02KEYS\x01k17\x02TAGS\x01A"))
    other = write(
        1002, fields(0, 1700000000999, f"TAGS\x01B\x02KEYS\x01k-8\x02UNIQ_KEY\x01{KEY[::-1]}")
    )
    _, second = read_all(first, other)
    assert isinstance(second, TemplatedFrame)
    assert fields_of(second) == fields_of(decode_frame(other))
    names = LONG_NAMES if client == "C++" else SHORT_NAMES
    assert read_templated_header(second, names) == read_header(decode_frame(other), names)
    again = sent_by(write, 1003, queue=1)
    assert fields_of(read_all(first, again)[1]) == fields_of(decode_frame(again))


def sent_by(write: Callable[[int, Ext], bytes], opaque: int, queue: int) -> bytes:
    return write(
        opaque, fields(queue, 1700000000001, f"UNIQ_KEY\x01{KEY}\x02KEYS\x01k17\x02TAGS\x01A")
    )


@pytest.mark.parametrize("value", [b"05", b"-5", b"1e", b"tr", b".5"])
def test_a_bare_number_that_json_reads_otherwise_is_parsed(value: bytes) -> None:
    first = CLIENTS["Node.js"](17, fields(12, 1700000000000, ""))
    other = first.replace(b'"e":12', b'"e":' + value)
    reader = FrameReader()
    list(reader.feed(first))
    try:
        expected = decode_frame(other)
    except FrameError as error:
        with pytest.raises(FrameError, match=str(error)[:20]):
            list(reader.feed(other))
    else:
        (frame,) = reader.feed(other)
        assert type(frame) is Frame
        assert fields_of(frame) == fields_of(expected)


def test_a_message_of_a_transaction_must_be_one_whatever_came_before() -> None:
    half, plain = (sent(f="4", i=f"TRAN_MSG\x01{mark}\x02") for mark in ("true", "fals"))
    _, again, other = read_all(half, half, plain)
    assert isinstance(again, TemplatedFrame)
    assert isinstance(other, TemplatedFrame)
    assert read_templated_header(again, SHORT_NAMES) == read_header(decode_frame(half), SHORT_NAMES)
    with pytest.raises(IllegalMessageError):
        read_templated_header(other, SHORT_NAMES)


@pytest.mark.parametrize("other", ["/Zz+9\\u", '/Zz+9","', "/Zz+9é", "/Zz+9-="])
def test_a_signature_that_is_no_base64_is_parsed(other: str) -> None:
    frames = sent(AccessKey="app", Signature="a+b/1=="), sent(AccessKey="app", Signature=other)
    assert [type(frame) for frame in read_all(*frames)] == [Frame, Frame]


def test_an_answer_with_a_signature_has_the_values_of_an_answer() -> None:
    ext = {"msgId": "7F0A", "queueId": "3", "queueOffset": "100", "Signature": "abc"}
    answers = [encode_request(0, opaque, ext, flag=1) for opaque in (8, 9)]
    _, second = read_all(*answers)
    assert isinstance(second, TemplatedFrame)
    assert second.values == (b"9", b"7F0A", b"3", b"100")


def test_an_answer_that_is_like_another_is_not_parsed() -> None:
    ext = {"msgId": "7F0A", "queueId": "3", "queueOffset": "100"}
    answers = [encode_request(0, opaque, ext, flag=1) for opaque in (8, 9)]
    assert [type(frame) for frame in read_all(*answers)] == [Frame, TemplatedFrame]
    assert fields_of(read_all(*answers)[1]) == fields_of(decode_frame(answers[1]))


@pytest.mark.parametrize(
    "text", ["", "K\x01\u00e9", 'K\x01"', "K\x01\\\\", 'K\x01\\"', "\x02\x7f\n"]
)
def test_properties_may_be_any_text(text: str) -> None:
    first, other = (
        sent(opaque, i=f"{key}\x02{text}\x02") for opaque, key in ((7, "ab"), (8, "c,"))
    )
    _, second = read_all(first, other)
    assert type(second) is TemplatedFrame
    assert fields_of(second) == fields_of(decode_frame(other))
    assert read_templated_header(second, SHORT_NAMES) == read_header(second, SHORT_NAMES)


@pytest.mark.parametrize(
    "other",
    [
        sent().replace(b"TAGS", b'A","'),
        sent().replace(b"TAGS", b"TA\\S"),
        sent().replace(b"TAGS", b"TA\xc3S"),
        sent(b="U"),
        sent(g='170000000000"'[:12]),
        sent(e="-"),
        sent().replace(b'"opaque":5', b'"opaque":-'),
        sent().replace(b'"opaque":5', b'"opaque":a'),
        sent(15).replace(b'"opaque":15', b'"opaque":05'),
    ],
)
def test_a_header_that_differs_elsewhere_or_by_more_than_letters_and_digits_is_parsed(
    other: bytes,
) -> None:
    reader = FrameReader()
    for opaque in (1, 5, 15):
        list(reader.feed(sent(opaque)))
    try:
        expected = decode_frame(other)
    except FrameError as error:
        with pytest.raises(FrameError, match=str(error)[:20]):
            list(reader.feed(other))
    else:
        (frame,) = reader.feed(other)
        assert type(frame) is Frame
        assert fields_of(frame) == fields_of(expected)


header_text = st.text('01aZ"\\{}:,_\x01\x02 é', max_size=6)
pieces = st.fixed_dictionaries(
    {
        "b": st.sampled_from(["T", "U", '"g":"', "\\"]),
        "g": header_text,
        "e": header_text,
        "i": st.builds("{}UNIQ_KEY\x01{}\x02{}".format, header_text, header_text, header_text),
    },
    optional={
        "opaque": header_text,
        "Signature": st.text('+/=a"', max_size=3),
        "m": st.sampled_from(["true", "false"]),
        "j": header_text,
    },
)


def escaped(data: bytes, text: str) -> bytes:
    """The same frame, in which JSON writes ``text`` by the numbers of its characters."""
    other = "".join(f"\\u{ord(each):04x}" for each in text)
    return framed(data[8:].replace(text.encode(), other.encode()))


def is_read(data: bytes) -> bool:
    """Whether the parser reads it: what was escaped may stand outside of strings, too."""
    try:
        decode_frame(data)
    except FrameError:
        return False
    return True


@given(
    st.lists(st.tuples(st.integers(0, 2**31 - 1), pieces), max_size=8),
    st.sampled_from(["", "_KEY", "e", "i", "g", "0", KEY]),
)
@example([(1, {"g": "5", "i": "ab", "e": "1"}), (2, {"g": "5", "i": "cd", "e": "1"})], "")
@example([(1, {"e": "1"})], "_KEY")
def test_whatever_came_before_a_frame_is_read_as_alone(
    requests: list[tuple[int, dict[str, str]]], text: str
) -> None:
    frames = [sent(opaque, **fields) for opaque, fields in requests]
    if text:
        frames += filter(is_read, [escaped(frame, text) for frame in frames])
    for frame, data in zip(read_all(*frames, *frames), frames + frames, strict=True):
        alone = decode_frame(data)
        like = _header_or_error(frame)
        assert fields_of(frame) == fields_of(alone)
        assert like == _header_or_error(alone)


@given(
    st.sampled_from(sorted(CLIENTS)),
    st.lists(
        st.tuples(
            st.integers(1, 2**31 - 1),
            st.integers(-1, 12),
            st.integers(0, 10**13),
            st.builds("{}UNIQ_KEY\x01{}\x02{}".format, header_text, header_text, header_text),
            st.sampled_from(["0", "4"]),
        ),
        max_size=8,
    ),
    st.tuples(st.integers(8, 400), st.binary(min_size=1, max_size=3)),
)
def test_whatever_client_wrote_it_a_frame_is_read_as_alone(
    client: str, requests: list[tuple[int, int, int, str, str]], damage: tuple[int, bytes]
) -> None:
    frames = [
        CLIENTS[client](opaque, fields(queue, born_ms, properties) | {"f": sys_flag})
        for opaque, queue, born_ms, properties, sys_flag in requests
    ]
    place, instead = damage
    damaged = [each[:place] + instead + each[place + len(instead) :] for each in frames]
    frames += [each for each, was in zip(damaged, frames, strict=True) if len(each) == len(was)]
    frames = [*filter(is_read, frames)]
    names = LONG_NAMES if client == "C++" else SHORT_NAMES
    for frame, data in zip(read_all(*frames, *frames), frames + frames, strict=True):
        alone = decode_frame(data)
        like = _header_or_error(frame, names)
        assert fields_of(frame) == fields_of(alone)
        assert like == _header_or_error(alone, names)


def _header_or_error(frame: Frame, names: HeaderNames = SHORT_NAMES) -> object:
    try:
        like = read_templated_header(frame, names) if isinstance(frame, TemplatedFrame) else None
        return like or read_header(frame, names)
    except (IllegalMessageError, RequestError) as error:
        return (type(error), str(error))


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("UNIQ_KEY", "UNIQ\\u005fKEY"),
        ('"h":"0"', '"x\\"e\\":\\"1":"0"'),
        ('"opaque":5,', '"opaque":5,"x\\"e\\":\\"1":"0",'),
        ('"opaque":5,', '"\\u006fpaque":5,"x\\"opaque\\":5":"0",'),
    ],
)
def test_a_header_that_json_writes_in_another_way_harms_nobody(written: str, instead: str) -> None:
    fields = orjson.loads(sent()[8:])
    for first in (("code", "opaque"), ("opaque",), ("extFields",)):
        header = orjson.dumps({name: fields[name] for name in first} | fields)
        assert written.encode() in header
        frame = framed(header.replace(written.encode(), instead.encode()))
        for read in read_all(frame, frame):
            assert fields_of(read) == fields_of(decode_frame(frame))


@pytest.mark.parametrize(("batch", "reads"), [("false", True), ("true", False), ("", True)])
def test_a_message_that_is_said_to_be_no_batch_is_not_parsed(batch: str, reads: bool) -> None:
    _, frame = read_all(sent(m=batch), sent(6, m=batch))
    assert isinstance(frame, TemplatedFrame)
    assert (read_templated_header(frame, SHORT_NAMES) is not None) is reads


def test_a_header_with_its_fields_twice_or_spaced_is_no_model() -> None:
    fields = orjson.loads(sent()[8:])
    spaced = orjson.dumps(fields, option=orjson.OPT_INDENT_2)
    twice = sent()[8:].replace(b'"flag":0', b'"g":"1700000000000","flag":0')
    for header in (spaced, twice):
        assert not isinstance(read_all(framed(header), framed(header))[1], TemplatedFrame)


def test_a_long_header_is_no_model() -> None:
    short = sent(b="T")
    for size, is_one in (
        (REMOTING.header_template_size_max, True),
        (REMOTING.header_template_size_max + 1, False),
    ):
        data = sent(b="T" * (size - len(short) + 8 + 1))
        assert len(data) - 8 == size
        assert isinstance(read_all(data, data)[1], TemplatedFrame) is is_one


def test_a_model_that_nothing_is_like_any_more_is_replaced_and_there_are_never_many() -> None:
    reader = FrameReader()
    others = [sent(b="U")] * MISSES_MAX
    kinds = [type(frame) for frame in reader.feed(b"".join([sent(), *others, sent(b="U")]))]
    assert kinds[-1] is TemplatedFrame
    assert TemplatedFrame not in kinds[:-1]
    models = HeaderTemplateCache()
    for size in range(REMOTING.header_templates_max + 3):
        data = sent(b="T" * (size + 1))
        models.learn(data[8:], decode_frame(data))
        models.by_size[len(data) - 8].hits = 1
    assert 0 < len(models.by_size) <= REMOTING.header_templates_max


def test_a_peer_whose_headers_are_of_too_many_sizes_costs_no_models_for_long() -> None:
    sizes = [sent(b="T" * (size + 1)) for size in range(REMOTING.header_templates_max + 5)]
    assert {type(frame) for frame in read_all(*sizes, *sizes, *sizes)} == {Frame}
    assert type(read_all(*sizes, sizes[0], sizes[0])[-1]) is Frame


def test_a_peer_whose_headers_are_never_alike_costs_no_models_for_long() -> None:
    reader = FrameReader()
    count = MISSES_MAX * UNUSED_TEMPLATES_MAX + 1
    each = [sent(b=f"T{i:08}") for i in range(count)]
    assert {type(frame) for frame in reader.feed(b"".join(each))} == {Frame}
    assert {type(frame) for frame in reader.feed(sent() * (MISSES_MAX + 2))} == {Frame}


def test_a_header_that_can_be_no_model_is_not_tried_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def reads(*arguments: object) -> bool:
        tried.append(arguments)
        return False

    monkeypatch.setattr(header_templates, "_reads", reads)
    reader = FrameReader()
    count = MISSES_MAX * (UNUSED_TEMPLATES_MAX + 1)
    assert {type(frame) for frame in reader.feed(sent() * count)} == {Frame}
    assert 0 < len(tried) <= UNUSED_TEMPLATES_MAX


def test_models_that_serve_are_never_given_up() -> None:
    reader = FrameReader()
    for _ in range(UNUSED_TEMPLATES_MAX + 1):
        for topic in "TU":
            frames = list(reader.feed(sent(b=topic) * (MISSES_MAX + 2)))
            assert type(frames[-1]) is TemplatedFrame
