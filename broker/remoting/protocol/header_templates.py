"""Header templates: headers that differ from an earlier one in a few values only.

A sender of messages repeats the same header: another number here, other properties there, another
signature, else byte for byte the same. So do answers. Such a header is not parsed. It is cut where
its model was, and the bytes between the values are compared with those of the model. Any other
header goes through the parser.

Values must be what the parser reads as they stand: letters and digits, in a signed header also
``+``, ``/`` and ``=``; a number of JSON without quotes must be an integer. Properties are parsed by
themselves: in JSON they are the string from quote to quote.

So the order of the fields, their spelling and the form of the header are the client's. A model is
tried before it is used: with other values in it, the parser must find just these, in their places,
and nothing else changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

import orjson

from broker.limits import REMOTING
from broker.remoting.protocol.codes import (
    FLAG_RESPONSE,
    RequestCode,
    ResponseCode,
    Serialization,
)
from broker.remoting.protocol.errors import FrameError
from broker.remoting.protocol.frame import (
    BINARY_START,
    I16,
    I32,
    ExtValue,
    Frame,
    decode_header,
)

MISSES_MAX = 32
"""Pace: after this number of other headers of its size, a model is replaced."""

UNUSED_TEMPLATES_MAX = 16
"""Pace: after this number of models without a match in a row there are no more. The headers of that
peer differ in more than models allow for, for example in their topics."""


class _Varying(NamedTuple):
    """The fields that vary. ``text``: the properties, or empty."""

    words: tuple[str, ...]
    text: str = ""


_VARYING = {
    (0, int(RequestCode.SEND_MESSAGE)): _Varying(("bornTimestamp", "queueId"), "properties"),
    (0, int(RequestCode.SEND_MESSAGE_V2)): _Varying(("g", "e"), "i"),
    (FLAG_RESPONSE, int(ResponseCode.SUCCESS)): _Varying(("msgId", "queueId", "queueOffset")),
}
_SIGNATURE = "Signature"
"""Varies too, where a request has it: base64, of always the same length."""

_BINARY_OPAQUE = (5, 9)
"""Format: where the opaque begins and ends in a binary header."""

_STRING_REST = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BASE64_MARKS = b"+/="
_ZERO, _SEVEN, _EIGHT = b"078"


READ_FIELDS = tuple(field for field in Frame.__slots__ if field != "caller")
"""Those that a header or its connection tells."""


class TemplatedFrame(Frame):
    """A frame with a header like a model; its ``ext`` is made on demand."""

    __slots__ = ("template", "text", "values")

    def __init__(
        self,
        template: HeaderTemplate,
        opaque: int,
        values: tuple[bytes, ...],
        text: str,
        body: bytes,
    ) -> None:
        model = template.frame
        self.code = model.code
        self.opaque = opaque
        self.flag = model.flag
        self.version = model.version
        self.language = model.language
        self.remark = model.remark
        self.body = body
        self.serialization = model.serialization
        self.template = template
        self.values = values
        """The opaque, and the varying words: born timestamp and queue of a sent message, ``msgId``,
        ``queueId`` and ``queueOffset`` of an answer; then the signature of a signed request."""
        self.text = text
        """The properties of a sent message."""

    def __getattr__(self, name: str) -> dict[str, ExtValue]:
        if name != "ext":
            raise AttributeError(name)
        self.ext = self.template.ext(self.values, self.text)
        return self.ext


class HeaderTemplate:
    """One header. ``cached`` is for the handler of the frames, to keep what it has made of it."""

    __slots__ = (
        "_between",
        "_binary",
        "_cut",
        "_marks",
        "_names",
        "_numbers",
        "_pick",
        "_text",
        "cached",
        "frame",
        "hits",
        "misses",
    )

    def __init__(
        self, header: bytes, frame: Frame, names: _Varying, spans: list[tuple[int, int]]
    ) -> None:
        """``spans`` are where the opaque, the words and the text stand in ``header``."""
        self.frame = frame
        self.cached: object = None
        self.misses = 0
        self.hits = 0
        """How many other headers were like it, and how many of its size were not."""
        self._names = names
        self._binary = frame.serialization == Serialization.ROCKETMQ
        self._numbers = tuple(
            place for place, name in enumerate(names.words, 1) if type(frame.ext[name]) is int
        )
        """The values without quotes, beside the opaque."""
        self._marks = _BASE64_MARKS if _SIGNATURE in names.words else b""
        """What values may have besides letters and digits."""
        in_order = sorted(spans)
        edges = [0, *(edge for span in in_order for edge in span), len(header)]
        sizes = [end - start for start, end in pairwise(edges)]
        self._cut = Struct("".join(f"{size}s" for size in sizes)).unpack_from
        self._between = self._cut(header)[::2]
        places = [2 * in_order.index(span) + 1 for span in spans]
        self._text = places.pop() if names.text else 0
        """The place of the text among the pieces; 0 if there is none."""
        self._pick = itemgetter(*places)

    def read(self, data: bytes, start: int, body_start: int, end: int) -> TemplatedFrame | None:
        """The frame whose header begins at ``start``, if it is like this; it has the size."""
        pieces = self._cut(data, start)
        values: tuple[bytes, ...] = self._pick(pieces)
        told = values[0]
        if self._binary:
            letters = b"".join(values[1:])
            opaque = int.from_bytes(told, "big", signed=True)
        else:
            letters = b"".join(values)
            opaque = int(told) if told.isdigit() and told[0] != _ZERO else -1
        if self._marks:
            letters = letters.translate(None, self._marks)
        if (
            pieces[::2] != self._between
            or not letters.isalnum()
            or (opaque < 0 and not self._binary)
        ):
            self.misses += 1
            return None
        for each in self._numbers:
            number = values[each]
            # Of twenty digits it may be too large for an integer: no model has so many.
            if not number.isdigit() or (number[0] == _ZERO and len(number) > 1):
                self.misses += 1
                return None
        text = ""
        if self._text:
            piece = pieces[self._text]
            try:
                read = piece.decode() if self._binary else orjson.loads(piece)
            except ValueError:
                read = None
            if not isinstance(read, str):
                self.misses += 1
                return None
            text = read
        self.hits += 1
        return TemplatedFrame(self, opaque, values, text, data[body_start:end])

    def ext(self, values: tuple[bytes, ...], text: str) -> dict[str, ExtValue]:
        """All fields of a header that has these values."""
        ext = dict(self.frame.ext)
        for name, value in zip(self._names.words, values[1:], strict=True):
            ext[name] = int(value) if type(ext[name]) is int else value.decode()
        if self._names.text:
            ext[self._names.text] = text
        return ext


class NoTemplate:
    """In the place of a model where a header turned out to be none: to try costs more than to
    parse many."""

    __slots__ = ("hits", "misses")

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0

    def read(self, _data: bytes, _start: int, _body_start: int, _end: int) -> None:
        """See :meth:`HeaderTemplate.read`."""
        self.misses += 1


class HeaderTemplateCache:
    """The models of one connection."""

    __slots__ = ("_unused", "by_size", "codes")

    def __init__(self) -> None:
        self.by_size: dict[int, HeaderTemplate | NoTemplate] = {}
        """By the word before a header: its serialization and its size."""
        self.codes = frozenset(code for _, code in _VARYING)
        """Of the requests and answers whose headers may be models."""
        self._unused = 0

    def learn(self, header: bytes, frame: Frame) -> None:
        """Takes a header for a model, if it may be one and there is none of its size."""
        names = _names(header, frame)
        if names is None:
            return
        mark = frame.serialization << 24 | len(header)
        known = self.by_size.get(mark)
        if known is not None and known.misses < MISSES_MAX:
            return
        if known is not None:
            self._drop([known])
            del self.by_size[mark]
        elif len(self.by_size) >= REMOTING.header_templates_max:
            self._drop(self.by_size.values())
            self.by_size.clear()
        if self._unused >= UNUSED_TEMPLATES_MAX:
            self.by_size.clear()
            self.codes = frozenset()
            return
        found = _template(header, frame, names) or NoTemplate()
        found.hits = 0  # it was tried
        self.by_size[mark] = found

    def _drop(self, models: Collection[HeaderTemplate | NoTemplate]) -> None:
        hits = sum(model.hits for model in models)
        self._unused = 0 if hits >= len(models) else self._unused + len(models)


def template_of(header: bytes, frame: Frame) -> HeaderTemplate | None:
    """The model that ``header``, with the content of ``frame``, is; None if it can be none."""
    names = _names(header, frame)
    return None if names is None else _template(header, frame, names)


def _names(header: bytes, frame: Frame) -> _Varying | None:
    """The fields that vary; None where such a header is never a model."""
    names = _VARYING.get((frame.flag, frame.code))
    if names is not None and not frame.flag and _SIGNATURE in frame.ext:
        names = names._replace(words=(*names.words, _SIGNATURE))
    if (
        names is None
        or len(header) > REMOTING.header_template_size_max
        or not frame.ext.keys() >= {*names.words, *filter(None, [names.text])}
    ):
        return None
    return names


def _template(header: bytes, frame: Frame, names: _Varying) -> HeaderTemplate | None:
    binary = frame.serialization == Serialization.ROCKETMQ
    spans = _binary_spans(header, names) if binary else _json_spans(header, frame, names)
    if spans is None:
        return None
    # Without the body, which would stay in memory with it.
    model = decode_header(frame.serialization, header, b"")
    found = HeaderTemplate(header, model, names, spans)
    other = bytearray(header)
    for start, end in spans:
        seven = header[start : start + 1] == b"7"
        quoted = header[start : start + 1] == b'"'
        fill = bytes([_EIGHT if seven else _SEVEN]) * (end - start)
        other[start:end] = b'"%b"' % fill[2:] if quoted else fill
    return found if _reads(found, header) and _reads(found, bytes(other)) else None


def _json_spans(header: bytes, frame: Frame, names: _Varying) -> list[tuple[int, int]] | None:
    """The places of the opaque and of the fields, if each is found in one place, and apart.

    JSON can write a name, a value or a quote in another way. Then the search finds something else,
    which the trial of the model shows.
    """
    spans: list[tuple[int, int]] = []
    for name in ("opaque", *names.words, names.text):
        if not name:
            continue
        value = frame.opaque if name == "opaque" else frame.ext.get(name)
        bare = type(value) is int
        begin = b'"%b":' % name.encode() + (b"" if bare else b'"')
        if not (bare or type(value) is str) or header.count(begin) != 1:
            return None
        start = header.index(begin) + len(begin)
        end = start + len(str(value))
        if name == names.text:
            start, end = start - 1, _string_end(header, start)
        elif start == end:
            return None
        spans.append((start, end))
    edges = [edge for span in sorted(spans) for edge in span]
    return spans if edges == sorted(edges) and edges[-1] <= len(header) else None


def _string_end(header: bytes, start: int) -> int:
    """Behind the quote that ends the string of JSON whose inside begins at ``start``."""
    inside = _STRING_REST.match(header, start)
    return 0 if inside is None else inside.end()


def _binary_spans(header: bytes, names: _Varying) -> list[tuple[int, int]] | None:
    """The same for a binary header, which is whole."""
    (remark_size,) = I32.unpack_from(header, BINARY_START.size - I32.size)
    position = BINARY_START.size + remark_size + I32.size
    places: dict[bytes, tuple[int, int]] = {}
    while position < len(header):
        key = position + I16.size
        key_end = key + I16.unpack_from(header, position)[0]
        value = key_end + I32.size
        position = value + I32.unpack_from(header, key_end)[0]
        places[header[key:key_end]] = (value, position)
    spans = [_BINARY_OPAQUE, *(places[name.encode()] for name in names.words)]
    if any(start == end for start, end in spans):
        return None
    return [*spans, places[names.text.encode()]] if names.text else spans


def _reads(template: HeaderTemplate, header: bytes) -> bool:
    """Whether it reads there what the parser does."""
    read = template.read(header, 0, len(header), len(header))
    try:
        parsed = decode_header(template.frame.serialization, header, b"")
    except FrameError:
        return False
    return read is not None and all(
        getattr(read, field) == getattr(parsed, field) for field in READ_FIELDS
    )
