"""Cuts a byte stream into frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.remoting.protocol.frame import (
    FRAME_SIZE_MAX,
    HEADER_SIZE_MAX,
    PREFIX,
    Frame,
    decode_header,
    frame_sizes,
)
from broker.remoting.protocol.header_templates import HeaderTemplateCache

_PREFIX_SIZE = PREFIX.size

_SMALL_CHUNK = 2048
"""Pace: smaller pieces of a body are collected in one buffer, because a list of them would take
more memory than the body."""


class FrameReader:
    """The frames of one stream.

    Whole frames are cut straight out of a chunk. A body of many chunks is kept as these chunks, and
    joined once when its last byte arrives. So the work is linear in the bytes. At most one frame is
    kept (``FRAME_SIZE_MAX``).
    """

    __slots__ = (
        "_body",
        "_body_missing",
        "_head",
        "_head_size",
        "_kept",
        "_serialization",
        "_size",
        "_templates",
    )

    def __init__(self, kept: Callable[[int], None] = lambda _size: None) -> None:
        """``kept`` is called with the number of kept bytes of an incomplete frame at each change,
        and with 0 once the frame is complete. It is not called for frames that arrive whole in one
        chunk."""
        self._kept = kept
        self._size = 0
        self._head = bytearray()
        """Prefix and header of the incomplete frame; empty if there is none."""
        self._head_size = 0
        """The final size of ``_head``; 0 while the prefix is incomplete."""
        self._serialization = 0
        self._body: list[bytes | bytearray | memoryview] = []
        self._body_missing = 0
        self._templates = HeaderTemplateCache()

    def clear(self) -> None:
        """Drops the incomplete frame."""
        self._head = bytearray()
        self._body = []
        if self._size:
            self._size = 0
            self._kept(0)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that become complete with ``data``, the next bytes of the stream.

        Raises :class:`FrameError` after the frames before the mistake. The iterator must be used
        up, unless the stream ends here.
        """
        start = 0
        if self._head:
            start = self._continue(data)
            if self._head_size != len(self._head) or self._body_missing:
                self._keeps(start)
                return
            yield self._finish()
        data_size = len(data)
        unpack_prefix = PREFIX.unpack_from
        templates = self._templates
        by_size = templates.by_size
        while data_size - start >= _PREFIX_SIZE:
            total, mark = unpack_prefix(data, start)
            body_start = start + _PREFIX_SIZE + (mark & 0xFFFFFF)
            end = start + 4 + total
            if not (
                body_start <= end
                and total <= FRAME_SIZE_MAX - 4
                and mark & 0xFFFFFF <= HEADER_SIZE_MAX
            ):
                frame_sizes(data, start)  # raises with the exceeded limit
            if end > data_size:
                break
            # The serialization of JSON is 0, so the second word is the size of the header.
            template = by_size.get(mark)
            frame: Frame | None = None
            if template is not None:
                frame = template.read(data, start + _PREFIX_SIZE, body_start, end)
            if frame is None:
                header = data[start + _PREFIX_SIZE : body_start]
                frame = decode_header(mark >> 24, header, data[body_start:end])
                if frame.code in templates.codes:
                    templates.learn(header, frame)
            yield frame
            start = end
        if start < data_size:
            self._keeps(self._continue(data, start) - start)

    def _keeps(self, size: int) -> None:
        self._size += size
        self._kept(self._size)

    def _continue(self, data: bytes, start: int = 0) -> int:
        """Takes the missing bytes of the incomplete frame from ``data``; returns the end of the
        taken bytes."""
        head = self._head
        if len(head) < _PREFIX_SIZE:
            start = self._extend_head(data, start, _PREFIX_SIZE)
            if len(head) < _PREFIX_SIZE:
                return start
            self._serialization, header_size, self._body_missing = frame_sizes(head)
            self._head_size = _PREFIX_SIZE + header_size
        start = self._extend_head(data, start, self._head_size)
        taken = min(self._body_missing, len(data) - start)
        if taken:
            self._body_missing -= taken
            # A view keeps the whole chunk in memory, too much for a small part.
            piece = memoryview(data)[start : start + taken]
            self._keep(piece if 2 * taken > len(data) else bytes(piece))
        return start + taken

    def _extend_head(self, data: bytes, start: int, head_size: int) -> int:
        end = start + head_size - len(self._head)
        piece = data[start:end]
        self._head += piece
        return start + len(piece)

    def _keep(self, piece: bytes | memoryview) -> None:
        if len(piece) >= _SMALL_CHUNK:
            self._body.append(piece)
        elif self._body and isinstance(self._body[-1], bytearray):
            self._body[-1] += piece
        else:
            self._body.append(bytearray(piece))

    def _finish(self) -> Frame:
        header = bytes(self._head[_PREFIX_SIZE:])
        body = b"".join(self._body)
        self._head_size = 0
        self.clear()
        return decode_header(self._serialization, header, body)
