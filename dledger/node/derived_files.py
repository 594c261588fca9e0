"""What the scrub asks of a state machine that keeps files derived from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from store.log.entry import Entry


class DerivedFiles(Protocol):
    """The derived files. Called on the background executor."""

    def begin_pass(self) -> None:
        """A pass over the log begins."""

    def check(self, entries: Sequence[Entry]) -> list[str]:
        """Compares derived files with these entries and repairs them. Returns what was wrong."""

    def end_pass(self) -> list[str]:
        """Checks what no single entry shows. Returns what was wrong."""


class NothingDerived:
    """A state machine that keeps no files."""

    def begin_pass(self) -> None:
        """See :class:`DerivedFiles`."""

    def check(self, entries: Sequence[Entry]) -> list[str]:  # noqa: ARG002 - a protocol's
        """See :class:`DerivedFiles`."""
        return []

    def end_pass(self) -> list[str]:
        """See :class:`DerivedFiles`."""
        return []
