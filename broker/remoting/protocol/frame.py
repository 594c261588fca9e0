"""One frame of RocketMQ's remoting protocol (``RemotingCommand``, ``RocketMQSerializable``).

Layout, big-endian::

    i32  total           bytes after this field = 4 + header + body
    i8   serialization   0 JSON, 1 binary
    u24  header size
         header
         body            may be empty

The JSON header is an object with ``code``, ``language`` (a name), ``version``, ``opaque``,
``flag``, ``remark`` and ``extFields``. The binary header is::

    i16 code, i8 language, i16 version, i32 opaque, i32 flag,
    i32 remark size, remark,
    i32 ext size, pairs of [i16 key size, key, i32 value size, value]

Several clients need ext values that are JSON *strings*: C++ reads the number 5 as 0, and pulls the
same messages for ever. So the encoders take only strings. The type checker enforces that, because a
check of each value would double the cost of an answer. Incoming values may be numbers and booleans
(ali-ons); ``remoting/protocol/ext_fields.py`` reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from struct import Struct
from typing import TypeAlias

import orjson

from broker.remoting.protocol.codes import (
    FLAG_ONE_WAY,
    FLAG_RESPONSE,
    LANGUAGE_BY_NAME,
    LANGUAGE_BY_NUMBER,
    PROTOCOL_VERSION,
    LanguageCode,
    ResponseCode,
    Serialization,
)
from broker.remoting.protocol.errors import FrameError
from store.quoting import quoted

ExtValue: TypeAlias = str | int | float | bool | None

FRAME_SIZE_MAX = 16 * 1024 * 1024
"""Format: the whole frame with its first four bytes; a larger one ends the connection."""

HEADER_SIZE_MAX = 1024 * 1024
"""Format: more than any client needs. 32 KiB of properties, each byte a six-byte JSON escape, make
192 KiB."""

FRAME_BODY_SIZE_MAX = FRAME_SIZE_MAX - (64 << 10)
"""Format: the largest body of a frame; the rest is left for the header. The largest message
fits."""

PREFIX = Struct(">iI")
"""The total, then serialization and header size in one u32."""

_JSON_START = (
    b'{"code":%%d,"flag":%%d,"language":"PYTHON","opaque":%%d,"version":%d' % PROTOCOL_VERSION
)
BINARY_START = Struct(">hbhiii")
_BINARY_CODE_MAX = 32767
"""Format: the code has two bytes."""
I16 = Struct(">h")
I32 = Struct(">i")
BINARY_MARK = Serialization.ROCKETMQ << 24
_FIRST_BYTE_OF_TLS = 0x16
_FIRST_BYTES_OF_HTTP = (b"HTTP", b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE")


class Frame:
    """A decoded request or response. Unknown values of ``code`` and ``language`` are kept."""

    __slots__ = (
        "body",
        "caller",
        "code",
        "ext",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialization",
        "version",
    )

    def __init__(  # noqa: PLR0917 - the fields of the header, filled by position in the hot path
        self,
        code: int,
        opaque: int,
        flag: int = 0,
        version: int = PROTOCOL_VERSION,
        language: LanguageCode = LanguageCode.PYTHON,
        remark: str | None = None,
        ext: dict[str, ExtValue] | None = None,
        body: bytes = b"",
        serialization: int = 0,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.version = version
        self.language = language
        self.remark = remark
        self.ext: dict[str, ExtValue] = {} if ext is None else ext
        self.body = body
        self.serialization = serialization

    caller: object
    """The caller, set if access control is on."""

    def forget_content(self) -> None:
        """Frees the fields and the body of a request that is held. Its answer needs neither."""
        self.ext, self.body = {}, b""

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_one_way(self) -> bool:
        return self.flag & FLAG_ONE_WAY != 0

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "request"
        return (
            f"Frame({kind} code={self.code} opaque={self.opaque} flag={self.flag} "
            f"remark={quoted(self.remark)} ext={quoted(self.ext)} body={len(self.body)} bytes)"
        )


def frame_sizes(prefix: bytes | bytearray, start: int = 0) -> tuple[int, int, int]:
    """The (serialization, header size, body size) in the eight bytes at ``start``.

    Raises :class:`FrameError` if no frame begins so.
    """
    total, mark = PREFIX.unpack_from(prefix, start)
    header_size = mark & 0xFFFFFF
    if 4 + header_size <= total <= FRAME_SIZE_MAX - 4 and header_size <= HEADER_SIZE_MAX:
        return mark >> 24, header_size, total - 4 - header_size
    if prefix[start] == _FIRST_BYTE_OF_TLS:
        raise FrameError("a TLS handshake; this port speaks plain remoting")
    if bytes(prefix[start : start + 4]) in _FIRST_BYTES_OF_HTTP:
        raise FrameError("the peer speaks HTTP, not RocketMQ's remoting protocol")
    if not 4 <= total <= FRAME_SIZE_MAX - 4:
        raise FrameError(f"total {total} is not between 4 and {FRAME_SIZE_MAX - 4}")
    if header_size > HEADER_SIZE_MAX:
        raise FrameError(f"a header of {header_size} bytes exceeds {HEADER_SIZE_MAX}", byte=5)
    raise FrameError(f"a header of {header_size} bytes exceeds the total of {total}", byte=5)


def fits_frame(head: bytes, body_size: int) -> bool:
    """Whether a peer takes a frame that begins with this prefix and header."""
    return len(head) - PREFIX.size <= HEADER_SIZE_MAX and len(head) + body_size <= FRAME_SIZE_MAX


def decode_header(serialization: int, header: bytes, body: bytes) -> Frame:
    """The frame of a header and a body. Raises :class:`FrameError`."""
    if serialization == 1:
        return _decode_binary(header, body)
    if serialization != 0:
        raise FrameError(f"serialization {serialization} is neither 0 (JSON) nor 1", byte=4)
    try:
        fields = orjson.loads(header)
        code = fields["code"]
        opaque = fields["opaque"]
    except orjson.JSONDecodeError as error:
        raise FrameError(f"the header is not JSON: {error}", byte=PREFIX.size) from None
    except KeyError as error:
        raise FrameError(f"the header has no {error}", byte=PREFIX.size) from None
    except (TypeError, IndexError):
        raise FrameError("the header is not a JSON object", byte=PREFIX.size) from None
    get = fields.get
    flag = get("flag", 0)
    version = get("version", 0)
    if not (type(code) is type(opaque) is type(flag) is type(version) is int):
        raise _not_an_integer(code=code, opaque=opaque, flag=flag, version=version)
    remark = get("remark")
    if remark is not None and type(remark) is not str:
        raise FrameError("remark is not a string", byte=PREFIX.size)
    ext = get("extFields")
    if ext is not None and type(ext) is not dict:
        raise FrameError("extFields is not an object", byte=PREFIX.size)
    try:
        language = LANGUAGE_BY_NAME[get("language")]
    except (KeyError, TypeError):
        language = LanguageCode.OTHER
    return Frame(code, opaque, flag, version, language, remark, ext, body, 0)


def _not_an_integer(**fields: object) -> FrameError:
    name, value = next((name, value) for name, value in fields.items() if type(value) is not int)
    return FrameError(f"{name} {quoted(value)} is not an integer", byte=PREFIX.size)


def _decode_binary(header: bytes, body: bytes) -> Frame:
    try:
        code, language, version, opaque, flag, remark_size = BINARY_START.unpack_from(header)
        position = BINARY_START.size
        remark_end = position + remark_size
        (ext_size,) = I32.unpack_from(header, _end_within(header, position, remark_size))
        remark = header[position:remark_end].decode() if remark_size else None
        position = remark_end + 4
        if ext_size != len(header) - position:
            raise FrameError(
                f"ext fields of {ext_size} bytes where {len(header) - position} are left",
                byte=PREFIX.size + remark_end,
            )
        ext: dict[str, ExtValue] = {}
        while position < len(header):
            (key_size,) = I16.unpack_from(header, position)
            key_end = _end_within(header, position + 2, key_size)
            (value_size,) = I32.unpack_from(header, key_end)
            value_end = _end_within(header, key_end + 4, value_size)
            key = header[position + 2 : key_end].decode()
            ext[key] = header[key_end + 4 : value_end].decode()
            position = value_end
    except struct.error as error:
        raise FrameError(f"the binary header is cut short: {error}", byte=PREFIX.size) from None
    except UnicodeDecodeError as error:
        raise FrameError(f"the binary header has text that is not UTF-8: {error}", byte=8) from None
    return Frame(
        code,
        opaque,
        flag,
        version,
        LANGUAGE_BY_NUMBER.get(language, LanguageCode.OTHER),
        remark,
        ext,
        body,
        1,
    )


def _end_within(header: bytes, start: int, size: int) -> int:
    """The end of ``size`` bytes from ``start``. Raises :class:`FrameError` if it is outside the
    header."""
    end = start + size
    if size < 0 or end > len(header):
        raise FrameError(f"a size of {size} bytes leaves the header", byte=PREFIX.size + start)
    return end


def encode_response(
    request: Frame,
    code: int,
    remark: str | None = None,
    ext: Mapping[str, str] | None = None,
    body_size: int = 0,
) -> bytes:
    """Prefix and header of the answer to ``request``; ``body_size`` bytes of body must follow."""
    if request.serialization == 1:
        return _encode_binary(code, request.opaque, FLAG_RESPONSE, remark, ext, body_size)
    return _encode_json(code, request.opaque, FLAG_RESPONSE, remark, ext, body_size)


def encode_request(
    code: int,
    opaque: int,
    ext: Mapping[str, str] | None = None,
    body_size: int = 0,
    *,
    flag: int = 0,
    serialization: int = 0,
) -> bytes:
    """Prefix and header of a request; ``body_size`` bytes of body must follow."""
    if serialization == 1:
        return _encode_binary(code, opaque, flag, None, ext, body_size)
    return _encode_json(code, opaque, flag, None, ext, body_size)


def _encode_json(  # noqa: PLR0917 - hot path
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: Mapping[str, str] | None,
    body_size: int,
) -> bytes:
    # The fixed part is formatted by hand: half the cost of encoding a dict.
    header = _JSON_START % (code, flag, opaque)
    if ext:
        header += b',"extFields":' + orjson.dumps(ext)
    if remark is not None:
        header += b',"remark":' + orjson.dumps(remark)
    header_size = len(header) + 1
    return PREFIX.pack(4 + header_size + body_size, header_size) + header + b"}"


def _encode_binary(  # noqa: PLR0917 - hot path
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: Mapping[str, str] | None,
    body_size: int,
) -> bytes:
    if not -_BINARY_CODE_MAX <= code <= _BINARY_CODE_MAX:  # another program's, which is passed on
        code, remark = ResponseCode.SYSTEM_ERROR, f"code {code}: {remark}"
    remark_bytes = remark.encode() if remark else b""
    pairs: list[bytes] = []
    for key, value in (ext or {}).items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        pairs += (I16.pack(len(key_bytes)), key_bytes, I32.pack(len(value_bytes)), value_bytes)
    ext_bytes = b"".join(pairs)
    header_size = BINARY_START.size + len(remark_bytes) + 4 + len(ext_bytes)
    return b"".join(
        (
            PREFIX.pack(4 + header_size + body_size, BINARY_MARK | header_size),
            BINARY_START.pack(
                code, LanguageCode.PYTHON, PROTOCOL_VERSION, opaque, flag, len(remark_bytes)
            ),
            remark_bytes,
            I32.pack(len(ext_bytes)),
            ext_bytes,
        )
    )
