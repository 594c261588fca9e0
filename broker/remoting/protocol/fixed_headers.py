"""Headers with always the same fields, encoded by one format instead of a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import orjson

from broker.remoting.protocol.codes import FLAG_RESPONSE, PROTOCOL_VERSION, LanguageCode
from broker.remoting.protocol.frame import BINARY_MARK, BINARY_START, I16, I32, PREFIX, Frame

TemplateValues: TypeAlias = tuple[int | bytes, ...]
"""The values for a :class:`RequestTemplate`."""

_pack_prefix = PREFIX.pack


class SuccessAnswer:
    """Answers with code 0 and always the same fields, encoded by one format instead of a mapping.

    ``fields`` maps each field to its value. A value ``%d`` or ``%b`` is filled in for each answer,
    in order, with a number or with ASCII without JSON escapes.
    """

    __slots__ = ("_binary", "_binary_end", "_json")

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._binary: list[bytes] = []
        """The parts of a binary header before the size of each varying value."""
        fixed = b""
        for name, value in fields.items():
            fixed += I16.pack(len(name)) + name.encode()
            if value in {"%d", "%b"}:
                self._binary.append(fixed)
                fixed = b""
            else:
                fixed += I32.pack(len(value)) + value.encode()
        self._binary_end = fixed
        self._json = (
            b'{"code":0,"flag":%d,"language":"PYTHON","opaque":%%d,"version":%d,"extFields":%b}'
            % (FLAG_RESPONSE, PROTOCOL_VERSION, orjson.dumps(fields))
        )

    def encode(self, request: Frame, *values: int | bytes) -> bytes:
        """Prefix and header of the answer to ``request``, which has no body."""
        if request.serialization == 1:
            return self._encode_binary(request.opaque, values)
        header = self._json % (request.opaque, *values)
        size = len(header)
        return _pack_prefix(4 + size, size) + header

    def _encode_binary(self, opaque: int, values: tuple[int | bytes, ...]) -> bytes:
        parts: list[bytes] = []
        for fixed, value in zip(self._binary, values, strict=True):
            text = b"%d" % value if isinstance(value, int) else value
            parts += (fixed, I32.pack(len(text)), text)
        ext = b"".join(parts) + self._binary_end
        size = BINARY_START.size + I32.size + len(ext)
        return b"".join(
            (
                _pack_prefix(4 + size, BINARY_MARK | size),
                BINARY_START.pack(
                    0, LanguageCode.PYTHON, PROTOCOL_VERSION, opaque, FLAG_RESPONSE, 0
                ),
                I32.pack(len(ext)),
                ext,
            )
        )


class RequestTemplate:
    """Requests of one code with always the same fields, encoded by one format instead of a mapping.

    ``fields`` maps each field to its value. ``%d`` and ``%b`` in a value are filled in for each
    request, in order, with numbers and with ASCII without JSON escapes (:func:`json_text`). Any
    other per cent sign is written twice. The header is JSON.
    """

    __slots__ = ("_fields", "_json", "code")

    def __init__(self, code: int, fields: Mapping[str, str]) -> None:
        self.code = code
        self._fields = orjson.dumps(fields)
        self._json = (
            b'{"code":%d,"flag":%%d,"language":"PYTHON","opaque":%%d,"version":%d,"extFields":%b}'
            % (code, PROTOCOL_VERSION, self._fields)
        )

    def ext(self, values: TemplateValues) -> dict[str, str]:
        """The fields of a request as a mapping."""
        ext: dict[str, str] = orjson.loads(self._fields % values)
        return ext

    def encode(self, flag: int, opaque: int, body_size: int, values: TemplateValues) -> bytes:
        """Prefix and header of a request; ``body_size`` bytes of body must follow."""
        header = self._json % (flag, opaque, *values)
        size = len(header)
        return _pack_prefix(4 + size + body_size, size) + header


def json_text(text: str) -> bytes:
    """``text`` as a JSON string without the quotes."""
    return orjson.dumps(text)[1:-1]
