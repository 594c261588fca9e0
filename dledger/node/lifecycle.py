"""Whether a node takes part, and why it stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Lifecycle:
    """Of one node. Its parts look here before they go on, and report here that they cannot."""

    def __init__(
        self,
        *,
        node: str,
        on_silent: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """``on_silent`` is called when the node falls silent. ``on_fatal`` is called once with the
        reason if the node stops by itself; the process must then end.
        """
        self.running = False
        """Whether it was started, and not stopped in order."""
        self.failure: BaseException | None = None
        """Why it fell silent."""
        self.alive = False
        """Whether it takes part: started, and neither stopped nor silent."""
        self._node = node
        self._on_silent = on_silent
        self._on_fatal = on_fatal

    def begin(self) -> None:
        """The node is started."""
        self.running = True
        self.alive = self.failure is None

    def end(self) -> None:
        """The node is stopped in order."""
        self.running = self.alive = False

    def fail(self, error: BaseException) -> None:
        """Stops at once because what the disk or the group holds can no longer be trusted."""
        if self.failure is None:
            self.fall_silent(error)
            log.critical("%(node)s stops: %(error)s", {"node": self._node, "error": error})
            self._on_fatal(error)

    def fall_silent(self, reason: BaseException) -> None:
        """From now on nothing is confirmed any more; :meth:`ended` is to follow."""
        self.failure = reason
        self.alive = False
        self._on_silent()

    def ended(self, reason: BaseException) -> None:
        """A silent node has finished: tells ``on_fatal``."""
        self._on_fatal(reason)
