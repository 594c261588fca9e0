"""Send requests in the form of each client.

Those of C++ and Node.js were recorded from the clients that ``make clients`` installs. Those of
Java and Go are written from their sources.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

from broker.remoting.protocol.frame import PREFIX

LONG = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
}


def fields(queue: int, born_ms: int, properties: str) -> dict[str, str]:
    """The fields that all clients send, by their short names."""
    return {
        "a": "producers",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": str(born_ms),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }


def framed(header: bytes, body: bytes = b"", serialization: int = 0) -> bytes:
    """The whole frame."""
    size = len(header)
    return PREFIX.pack(4 + size + len(body), serialization << 24 | size) + header + body


def _dumped(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def java(opaque: int, ext: Mapping[str, str]) -> bytes:
    """4.9.8: fastjson, names in order."""
    return framed(
        _dumped(
            {
                "code": 310,
                "extFields": dict(sorted({**ext, "n": "broker-a"}.items())),
                "flag": 0,
                "language": "JAVA",
                "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": 409,
            }
        )
    )


def java_binary(opaque: int, ext: Mapping[str, str]) -> bytes:
    """4.9.8 with ``-Drocketmq.serialize.type=ROCKETMQ``."""
    pairs = b"".join(
        struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value
        for name, value in ((name, text.encode()) for name, text in ext.items())
    )
    start = struct.pack(">hbhiii", 310, 0, 409, opaque, 0, 0)
    return framed(start + struct.pack(">i", len(pairs)) + pairs, serialization=1)


def cpp(opaque: int, ext: Mapping[str, str]) -> bytes:
    """The core 1.0 as it sends: long names in order, some numbers bare, always signed."""
    long: dict[str, object] = {LONG[name]: value for name, value in ext.items()}
    long |= {LONG[name]: int(ext[name]) for name in ("d", "e", "f", "h")}
    signature = base64.b64encode(hashlib.sha1(str(ext).encode()).digest()).decode()
    long |= {"AccessKey": "", "OnsChannel": "ALIYUN", "Signature": signature}
    long |= {"batch": "0", "unitMode": "0"}
    document = {
        "code": 10,
        "extFields": dict(sorted(long.items())),
        "flag": 0,
        "language": "CPP",
        "opaque": opaque,
        "remark": "",
        "version": 63,
    }
    return framed(_dumped(document))


def node(opaque: int, ext: Mapping[str, str]) -> bytes:
    """ali-ons as it sends: numbers and booleans of JSON, and no word of a batch."""
    told: dict[str, object] = {name: value for name, value in ext.items() if name != "m"}
    for name in ("d", "e", "f", "g", "h", "j"):
        told[name] = int(ext[name])
    told["k"] = ext["k"] == "true"
    return framed(
        _dumped(
            {
                "code": 310,
                "language": "JAVA",
                "opaque": opaque,
                "flag": 0,
                "version": 121,
                "extFields": told,
            }
        )
    )


def go(opaque: int, ext: Mapping[str, str]) -> bytes:
    """rocketmq-client-go 2: the order of its structure, and a remark that is empty."""
    return framed(
        _dumped(
            {
                "code": 310,
                "language": "GO",
                "version": 317,
                "opaque": opaque,
                "flag": 0,
                "remark": "",
                "extFields": dict(sorted({**ext, "l": "0"}.items())),
            }
        )
    )


CLIENTS: Mapping[str, Callable[[int, Mapping[str, str]], bytes]] = {
    "Java": java,
    "Java, binary": java_binary,
    "C++": cpp,
    "Node.js": node,
    "Go": go,
}
