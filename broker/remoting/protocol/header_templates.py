"""Header templates: a header that resembles an earlier one is not parsed.

The headers of a producer's messages differ only in a few numbers, the properties and the signature;
the other bytes are the same. The headers of answers are alike too. Such a header is cut at the
places where its template was, and the bytes between the values are compared with the template's.
Any other header is parsed.

Values must have no escapes: they are letters and digits, in a signed header also ``+``, ``/`` and
``=``. A JSON number without quotes must be an integer. Properties are parsed apart: in JSON they
are the string from quote to quote.

So the client decides about the order, the spelling and the form of the header. A template is tried
before it is used: with other values filled in, the parser must find exactly these values, and
nothing else changed.
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
"""Pace: a template is replaced after this number of other headers of its size."""

UNUSED_TEMPLATES_MAX = 16
"""Pace: after this number of templates in a row without a match, the connection makes no more. Its
headers differ in more than templates allow, for example in their topics."""


class _Varying(NamedTuple):
    """The names of the varying fields. ``text``: the one with the properties, or empty."""

    words: tuple[str, ...]
    text: str = ""


_VARYING = {
    (0, int(RequestCode.SEND_MESSAGE)): _Varying(("bornTimestamp", "queueId"), "properties"),
    (0, int(RequestCode.SEND_MESSAGE_V2)): _Varying(("g", "e"), "i"),
    (FLAG_RESPONSE, int(ResponseCode.SUCCESS)): _Varying(("msgId", "queueId", "queueOffset")),
}
_SIGNATURE = "Signature"
"""Varies too, if a request has it: base64 of a fixed length."""

_BINARY_OPAQUE = (5, 9)
"""Format: the byte range of the opaque in a binary header."""

_STRING_REST = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BASE64_MARKS = b"+/="
_ZERO, _SEVEN, _EIGHT = b"078"


READ_FIELDS = tuple(field for field in Frame.__slots__ if field != "caller")
"""The fields that are read from a header."""


class TemplatedFrame(Frame):
    """A frame whose header matches a template; its ``ext`` is made on demand."""

    __slots__ = ("template", "text", "values")

    def __init__(
        self,
        template: HeaderTemplate,
        opaque: int,
        values: tuple[bytes, ...],
        text: str,
        body: bytes,
    ) -> None:
        known = template.frame
        self.code = known.code
        self.opaque = opaque
        self.flag = known.flag
        self.version = known.version
        self.language = known.language
        self.remark = known.remark
        self.body = body
        self.serialization = known.serialization
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
    """One header. ``cached`` is for the handler of the frames: the result of parsing the fields."""

    __slots__ = (
        "_between",
        "_binary",
        "_cut",
        "_is_plain",
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
        """``spans`` are the byte ranges of the opaque, the words and the text in ``header``."""
        self.frame = frame
        self.cached: object = None
        self.misses = 0
        self.hits = 0
        """The numbers of headers of its size that matched and that did not."""
        self._names = names
        self._binary = frame.serialization == Serialization.ROCKETMQ
        self._numbers = tuple(
            place for place, name in enumerate(names.words, 1) if type(frame.ext[name]) is int
        )
        """The values without quotes, except the opaque."""
        self._marks = _BASE64_MARKS if _SIGNATURE in names.words else b""
        """The bytes that values may have besides letters and digits."""
        self._is_plain = not (self._binary or self._numbers or self._marks)
        """JSON with all values in quotes, as most clients send."""
        in_order = sorted(spans)
        edges = [0, *(edge for span in in_order for edge in span), len(header)]
        sizes = [end - start for start, end in pairwise(edges)]
        self._cut = Struct("".join(f"{size}s" for size in sizes)).unpack_from
        self._between = self._cut(header)[::2]
        places = [2 * in_order.index(span) + 1 for span in spans]
        self._text = places.pop() if names.text else 0
        """The index of the text among the pieces; 0 if there is no text."""
        self._pick = itemgetter(*places)

    def read(self, data: bytes, start: int, body_start: int, end: int) -> TemplatedFrame | None:
        """The frame whose header begins at ``start``, if it matches; its size is the template's."""
        pieces = self._cut(data, start)
        values: tuple[bytes, ...] = self._pick(pieces)
        if not self._is_plain:
            return self._read_rare(pieces, values, data[body_start:end])
        if pieces[::2] != self._between or not b"".join(values).isalnum() or values[0][0] == _ZERO:
            self.misses += 1
            return None
        try:
            opaque = int(values[0])
            text = orjson.loads(pieces[self._text]) if self._text else ""
        except ValueError:
            text = None
        if type(text) is not str:
            self.misses += 1
            return None
        self.hits += 1
        return TemplatedFrame(self, opaque, values, text, data[body_start:end])

    def _read_rare(
        self, pieces: tuple[bytes, ...], values: tuple[bytes, ...], body: bytes
    ) -> TemplatedFrame | None:
        """The same for a binary header, numbers without quotes, or a signature."""
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
            # Twenty digits may be too large for an integer: no template has so many.
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
        return TemplatedFrame(self, opaque, values, text, body)

    def ext(self, values: tuple[bytes, ...], text: str) -> dict[str, ExtValue]:
        """All fields of a header with these values."""
        ext = dict(self.frame.ext)
        for name, value in zip(self._names.words, values[1:], strict=True):
            ext[name] = int(value) if type(ext[name]) is int else value.decode()
        if self._names.text:
            ext[self._names.text] = text
        return ext


class NoTemplate:
    """Stands for a header that cannot be a template: trying it again costs more than parsing many
    headers."""

    __slots__ = ("hits", "misses")

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0

    def read(self, _data: bytes, _start: int, _body_start: int, _end: int) -> None:
        """See :meth:`HeaderTemplate.read`."""
        self.misses += 1


class HeaderTemplateCache:
    """The templates of one connection."""

    __slots__ = ("_unused", "by_size", "codes")

    def __init__(self) -> None:
        self.by_size: dict[int, HeaderTemplate | NoTemplate] = {}
        """By the word before a header: serialization and size."""
        self.codes = frozenset(code for _, code in _VARYING)
        """The codes whose headers may be templates."""
        self._unused = 0

    def learn(self, header: bytes, frame: Frame) -> None:
        """Makes a template of a header, if it may be one and there is none of its size."""
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

    def _drop(self, templates: Collection[HeaderTemplate | NoTemplate]) -> None:
        hits = sum(each.hits for each in templates)
        self._unused = 0 if hits >= len(templates) else self._unused + len(templates)


def _names(header: bytes, frame: Frame) -> _Varying | None:
    """The varying fields; None if such a header is never a template."""
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
    # Without the body, which would stay in memory with the template.
    without_body = decode_header(frame.serialization, header, b"")
    found = HeaderTemplate(header, without_body, names, spans)
    other = bytearray(header)
    for start, end in spans:
        seven = header[start : start + 1] == b"7"
        quoted = header[start : start + 1] == b'"'
        fill = bytes([_EIGHT if seven else _SEVEN]) * (end - start)
        other[start:end] = b'"%b"' % fill[2:] if quoted else fill
    return found if _reads(found, header) and _reads(found, bytes(other)) else None


def _json_spans(header: bytes, frame: Frame, names: _Varying) -> list[tuple[int, int]] | None:
    """The byte ranges of the opaque and of the fields, if each is found exactly once and no two
    overlap.

    JSON has several ways to write a name, a value or a quote. The search may then find a wrong
    place. The trial of the template shows that.
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
    """The end of the JSON string whose content begins at ``start``, behind the quote; 0 if it has
    no end."""
    inside = _STRING_REST.match(header, start)
    return 0 if inside is None else inside.end()


def _binary_spans(header: bytes, names: _Varying) -> list[tuple[int, int]] | None:
    """The same for a binary header, which is complete."""
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
    """Whether the template and the parser read the same from ``header``."""
    read = template.read(header, 0, len(header), len(header))
    try:
        parsed = decode_header(template.frame.serialization, header, b"")
    except FrameError:
        return False
    return read is not None and all(
        getattr(read, field) == getattr(parsed, field) for field in READ_FIELDS
    )
