"""Decodes whole frames of the remoting protocol."""

from __future__ import annotations

from broker.remoting.protocol.errors import FrameError
from broker.remoting.protocol.frame import (
    PREFIX,
    Frame,
    decode_header,
    frame_sizes,
)


def decode_frame(data: bytes) -> Frame:
    """The frame that ``data`` holds exactly. Raises :class:`FrameError`."""
    if len(data) < PREFIX.size:
        raise FrameError(f"{len(data)} bytes are fewer than the {PREFIX.size} of the prefix")
    serialization, header_size, body_size = frame_sizes(data)
    body_start = PREFIX.size + header_size
    if body_start + body_size != len(data):
        raise FrameError(f"total says {body_start + body_size} bytes, there are {len(data)}")
    return decode_header(serialization, data[PREFIX.size : body_start], data[body_start:])
