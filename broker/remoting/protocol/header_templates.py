"""Header templates: headers that differ from an earlier one in a few values only.

A sender of messages repeats the same header: another number here, another unique key there, another
signature, else byte for byte the same. So do answers. Such a header is not parsed. It is cut where
its model was, and the text between the values is compared with that of the model. The values must
be letters and digits alone, in a signed header also ``+``, ``/`` and ``=``: JSON reads them as they
are. Any other header goes through the parser.

A model is tried before it is used: with other values in it, the parser must find just these, in
their places, and nothing else changed.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from operator import itemgetter
from struct import Struct

from broker.limits import REMOTING
from broker.remoting.protocol.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from broker.remoting.protocol.errors import FrameError
from broker.remoting.protocol.frame import ExtValue, Frame, decode_header, json_text

UNIQUE_KEY_START = "UNIQ_KEY\x01"
"""In a field with this, the unique key varies and the rest does not."""

MISSES_MAX = 32
"""Pace: after this number of other headers of its size, a model is replaced."""

UNUSED_TEMPLATES_MAX = 16
"""Pace: after this number of models without a match in a row there are no more. The headers of that
peer differ in more than models allow for, for example in words of keys."""

_VARYING = {
    (0, int(RequestCode.SEND_MESSAGE_V2)): ("g", "i", "e"),
    (FLAG_RESPONSE, int(ResponseCode.SUCCESS)): ("msgId", "queueId", "queueOffset"),
}
_SIGNATURE = "Signature"
"""Varies too, where a request has it: base64, of always the same length."""

_BASE64_MARKS = b"+/="
_UNIQUE_KEY_TEXT = json_text(UNIQUE_KEY_START)
_ZERO, _SEVEN, _EIGHT = b"078"


READ_FIELDS = tuple(field for field in Frame.__slots__ if field != "caller")
"""Those that a header or its connection tells."""


class TemplatedFrame(Frame):
    """A frame with a header like a model; its ``ext`` is made on demand."""

    __slots__ = ("template", "values")

    def __init__(
        self, template: HeaderTemplate, opaque: int, values: tuple[bytes, ...], body: bytes
    ) -> None:
        model = template.frame
        self.code = model.code
        self.opaque = opaque
        self.flag = model.flag
        self.version = model.version
        self.language = model.language
        self.remark = None
        self.body = body
        self.serialization = 0
        self.template = template
        self.values = values
        """The opaque, and the varying fields: ``g``, the unique key in ``i``, and ``e`` of a sent
        message, ``msgId``, ``queueId`` and ``queueOffset`` of an answer; then the signature of a
        signed request."""

    def __getattr__(self, name: str) -> dict[str, ExtValue]:
        if name != "ext":
            raise AttributeError(name)
        self.ext = self.template.ext(self.values)
        return self.ext


class HeaderTemplate:
    """One header. ``cached`` is for the handler of the frames, to keep what it has made of it."""

    __slots__ = (
        "_between",
        "_cut",
        "_marks",
        "_names",
        "_pick",
        "cached",
        "frame",
        "hits",
        "misses",
    )

    def __init__(
        self, header: bytes, frame: Frame, names: tuple[str, ...], spans: list[tuple[int, int]]
    ) -> None:
        """``spans`` are where the opaque and the fields of these ``names`` stand in ``header``."""
        self.frame = frame
        self.cached: object = None
        self.misses = 0
        self.hits = 0
        """How many other headers were like it, and how many of its size were not."""
        self._names = names
        self._marks = _BASE64_MARKS if _SIGNATURE in names else b""
        """What values may have besides letters and digits."""
        in_order = sorted(spans)
        edges = [0, *(edge for span in in_order for edge in span), len(header)]
        sizes = [end - start for start, end in pairwise(edges)]
        self._cut = Struct("".join(f"{size}s" for size in sizes)).unpack_from
        self._between = self._cut(header)[::2]
        self._pick = itemgetter(*(2 * in_order.index(span) + 1 for span in spans))

    def read(self, data: bytes, start: int, body_start: int, end: int) -> TemplatedFrame | None:
        """The frame whose header begins at ``start``, if it is like this; it has the size."""
        pieces = self._cut(data, start)
        values: tuple[bytes, ...] = self._pick(pieces)
        opaque = values[0]
        letters = b"".join(values)
        if self._marks:
            letters = letters.translate(None, self._marks)
        if (
            pieces[::2] != self._between
            or not letters.isalnum()
            or not opaque.isdigit()
            or opaque[0] == _ZERO
        ):
            self.misses += 1
            return None
        self.hits += 1
        return TemplatedFrame(self, int(opaque), values, data[body_start:end])

    def ext(self, values: tuple[bytes, ...]) -> dict[str, ExtValue]:
        """All fields of a header that has these values."""
        ext = dict(self.frame.ext)
        for name, value in zip(self._names, values[1:], strict=True):
            text = value.decode()
            before, mark, rest = str(ext[name]).partition(UNIQUE_KEY_START)
            ext[name] = before + mark + text + rest[len(text) :] if mark else text
        return ext


class HeaderTemplateCache:
    """The models of one connection."""

    __slots__ = ("_unused", "by_size", "codes")

    def __init__(self) -> None:
        self.by_size: dict[int, HeaderTemplate] = {}
        self.codes = frozenset(code for _, code in _VARYING)
        """Of the requests and answers whose headers may be models."""
        self._unused = 0

    def learn(self, header: bytes, frame: Frame) -> None:
        """Takes a header for a model, if it may be one and there is none of its size."""
        known = self.by_size.get(len(header))
        if known is not None and known.misses < MISSES_MAX:
            return
        if known is not None:
            self._drop([known])
            del self.by_size[len(header)]
        elif len(self.by_size) >= REMOTING.header_templates_max:
            self._drop(self.by_size.values())
            self.by_size.clear()
        if self._unused >= UNUSED_TEMPLATES_MAX:
            self.by_size.clear()
            self.codes = frozenset()
            return
        found = template_of(header, frame)
        if found is not None:
            found.hits = 0  # it was tried
            self.by_size[len(header)] = found

    def _drop(self, models: Collection[HeaderTemplate]) -> None:
        hits = sum(model.hits for model in models)
        self._unused = 0 if hits >= len(models) else self._unused + len(models)


def template_of(header: bytes, frame: Frame) -> HeaderTemplate | None:
    """The values for which ``header``, with the content of ``frame``, is a model; None if it can
    be none."""
    names: tuple[str, ...] | None = _VARYING.get((frame.flag, frame.code))
    if names is not None and not frame.flag and _SIGNATURE in frame.ext:
        names = (*names, _SIGNATURE)
    if (
        names is None
        or len(header) > REMOTING.header_template_size_max
        or not frame.ext.keys() >= set(names)
    ):
        return None
    spans = _spans(header, frame, names)
    if spans is None:
        return None
    # Without the body, which would stay in memory with it.
    found = HeaderTemplate(header, decode_header(0, header, b""), names, spans)
    other = bytearray(header)
    for start, end in spans:
        other[start:end] = bytes([_EIGHT if header[start] == _SEVEN else _SEVEN]) * (end - start)
    return found if _reads(found, header) and _reads(found, bytes(other)) else None


def _spans(header: bytes, frame: Frame, names: tuple[str, ...]) -> list[tuple[int, int]] | None:
    """The places of the opaque and of the fields, if each is found in one place, and apart."""
    spans: list[tuple[int, int]] = []
    for name in ("opaque", *names):
        value = str(frame.opaque) if name == "opaque" else frame.ext.get(name)
        begin = b'"%b":' % name.encode() + (b"" if name == "opaque" else b'"')
        if type(value) is not str or header.count(begin) != 1:
            return None
        start = header.index(begin) + len(begin)
        _, mark, rest = value.partition(UNIQUE_KEY_START)
        if mark:
            value = rest.partition("\x02")[0]
            start = header.find(_UNIQUE_KEY_TEXT, start) + len(_UNIQUE_KEY_TEXT)
        if not value:
            return None
        spans.append((start, start + len(value)))
    # JSON can write a name or a mark in another way: then the search finds something else.
    edges = [edge for span in sorted(spans) for edge in span]
    return spans if edges == sorted(edges) and edges[-1] <= len(header) else None


def _reads(template: HeaderTemplate, header: bytes) -> bool:
    """Whether it reads there what the parser does."""
    read = template.read(header, 0, len(header), len(header))
    try:
        parsed = decode_header(0, header, b"")
    except FrameError:
        return False
    return read is not None and all(
        getattr(read, field) == getattr(parsed, field) for field in READ_FIELDS
    )
