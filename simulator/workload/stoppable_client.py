"""What all clients of a run have in common."""

from __future__ import annotations


class StoppableClient:
    """A client that begins nothing new once it is told to stop.

    Its class says what it still ends, and what it begins all the same.
    """

    _working = True

    def stop(self) -> None:
        """Ends its work."""
        self._working = False
