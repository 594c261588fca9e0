"""How long JSON is once it is decoded: counted before it is, in a request that still comes."""

from __future__ import annotations


class DecodedSize:
    """Counts a text that grows, in bytes: each escape is one.

    No string that a JSON reader makes of it has more characters.
    """

    def __init__(self) -> None:
        self._size = 0
        self._end = 0

    def of(self, text: bytearray) -> int:
        """The size of ``text``, which begins with what was given before."""
        new = text[self._end :]
        self._end = len(text)
        if (len(new) - len(new.rstrip(b"\\"))) % 2:
            # The last escape is not all there.
            self._end -= 1
            del new[-1:]
        backslashes = new.count(b"\\\\")
        others = new.replace(b"\\\\", b"")
        self._size += backslashes + len(others) - others.count(b"\\") - 4 * others.count(b"\\u")
        return self._size
