"""Long MessagePack arrays, packed while other threads go on.

``msgpack.packb`` holds the interpreter's lock until it ends. The event loop would stand still.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

_PIECE = 1024
"""So many elements are packed in one piece: in less than a millisecond."""


def pack_array(elements: Sequence[object]) -> bytes:
    """The same bytes as ``msgpack.packb(elements)``."""
    packer = msgpack.Packer()
    pieces = (elements[at : at + _PIECE] for at in range(0, len(elements), _PIECE))
    packed = [b"".join(map(packer.pack, piece)) for piece in pieces]
    return b"".join((packer.pack_array_header(len(elements)), *packed))
