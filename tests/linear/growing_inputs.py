"""Inputs that grow: a beginning, a unit many times, an end."""

from __future__ import annotations

JSON_SHAPES = [
    (b'"', rb"\"", b""),
    (b'{"a":"', rb"\"", b""),
    (b"", b'"', b""),
    (b"", rb'"\"', b""),
    (b"{", b"1 ", b""),
    (b"{", b"1", b""),
    (b"{", b" ", b""),
    (b"{1", b" ", b"x"),
    (b"", b"{", b""),
    (b"", b"{1:", b""),
    (b"", b"{{", b""),
    (b"{", b"{},", b"}"),
    (b"{", b'{"a":1}:2,', b"0:0}"),
    (b"{{", b'"a":1,', b'"b":2}:3}'),
    (b"{", b"1:2,", b"3:4}"),
    (b"{0:[", b"1,", b"2]}"),
    (b"", b"[],", b""),
    (b"", b"]", b""),
    (b"", b"\\", b""),
    (b"", b"\xff", b""),
    (b'{0:"', b"\\u0061", b'"}'),
    (b'{"a":[', b"0,", b"0]}"),
    (b"{", b'"a":1,', b'"b":2}'),
    (b"[", b" " * 7, b"]"),
    (b'{"a":', b"9", b"}"),
]
"""Text that is JSON, fastjson's JSON, or nearly."""

SQL_SHAPES = [
    (b"a = ", b"0", b""),
    (b"a = ", b"-", b""),
    (b"a = 1 ", b"--", b""),
    (b"a = 1 ", b"--\n", b""),
    (b"a = 1 ", b"/*", b""),
    (b"a = 1 ", b"/* */", b""),
    (b"a = ", b"'", b""),
    (b"a = '", b"''", b"'"),
    (b"a = '", b"x", b""),
    (b"a = ", b"9", b""),
    (b"a = ", b"1.", b""),
    (b"a = ", b"1e", b""),
    (b"a = 0.", b"1", b"e"),
    (b"a IN (", b"'b',", b"'c')"),
    (b"", b"(", b""),
    (b"", b"NOT ", b"a"),
    (b"a", b" = a", b""),
    (b"a = 1", b" AND a = 1", b""),
    (b"", b"a ", b""),
    (b"", b" ", b"a"),
    (b"", b"\x00", b""),
    (b"", b"$", b""),
]

PROPERTY_SHAPES = [
    (b"", b"\x01", b""),
    (b"", b"\x02", b""),
    (b"", b"a\x01b\x02", b""),
    (b"KEYS\x01", b"a ", b"\x02"),
    (b"", b"WAIT\x01", b""),
    (b"", b"WAIT\x01\x02", b""),
    (b"DELAY\x01", b"0", b"1"),
    (b"", b"DELAY\x010", b""),
    (b"", b"DELAY\x010\x02", b""),
    (b"", b"TIMER_DE", b"DELAY\x01"),
    (b"", b"TRAN_MSG\x01t", b""),
    (b"", b"UNIQ_KEY\x01", b""),
    (b"UNIQ_KEY\x01", b"a", b"\x02"),
    (b"TAGS\x01", b"a", b"\x02"),
    (b"TAGS\x01", b"\xff", b"\x02"),
]

TAG_SHAPES = [
    (b"", b"|", b""),
    (b"", b"a||", b"b"),
    (b"", b"||", b""),
    (b"", b" ", b""),
    (b"", b"a", b""),
    (b"", "ä||".encode(), b""),
]

LINE_SHAPES = [
    (b"", b"\n", b""),
    (b"", b"=", b""),
    (b"", b"a=b\n", b""),
    (b"fileReservedTime=", b"1", b""),
    (b"fileReservedTime=1\n", b"fileReservedTime=1\n", b""),
    (b"", b" ", b""),
    (b"", b"#\n", b""),
    (b"", b"127.0.0.1:1;", b""),
    (b"", b"1.", b":1"),
    (b"", b":", b""),
    (b"1.1.1.1:", b"1", b""),
]

# Not of keys with very many dots, nor of a text with very many escapes, for which tomllib takes
# quadratic time: therefore ``CONFIG_SIZE_MAX``.
TOML_SHAPES = [
    (b"a = ", b"[", b""),
    (b"a = ", b"[[],", b""),
    (b"a = '''", b"'", b""),
    (b'a = "', b"x", b""),
    (b"", b"[a]\n", b""),
    (b"a = [", b"1,", b"]"),
    (b"a = {", b"b = 1,", b"}"),
    (b"a = ", b"1", b"x"),
    (b"a = ", b"1_", b"x"),
    (b"", b"#\n", b""),
    (b"", b" ", b"a"),
    (b"namesrv = [", b'"127.0.0.1:9876",', b"]"),
]

MSGPACK_SHAPES = [
    (b"", b"\x91", b""),
    (b"", b"\x81", b""),
    (b"\xdc\xff\xff", b"\xc0", b""),
    (b"\xdd\xff\xff\xff\xff", b"\x01", b""),
    (b"\xdf\x00\x00\xff\xff", b"\xa1a\x00", b""),
    (b"\xdb\x00\x00\xff\xff", b"a", b""),
    (b"", b"\xc1", b""),
    (b"", b"\xff", b""),
]

JUNK_SHAPES = [
    (b"", b"\x00", b""),
    (b"", b"\xff", b""),
    (b"", b"a", b""),
    (b"", b"\n", b""),
    (b"", b"\x00\x00\x00\x01", b""),
    (b"", b"\x00\x00\x00\x08\x00\x00\x00\x00", b""),
    (b"", b"1 ", b""),
]
"""Shapes for what is read from files, where a made-up beginning is refused at once."""
