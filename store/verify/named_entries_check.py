"""Compares the entries that mark, checkpoints and manifest name with those of the log."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from store.log.entry import Entry
from store.verify.findings import FindingKind, FindingLog
from store.verify.state.state_files import StateFiles


class NamedEntriesCheck:
    """``indexes``: the indexes of the named entries, in order."""

    def __init__(self, state: StateFiles, log: FindingLog) -> None:
        self._state = state
        self._log = log
        self._named = state.named_entries()
        self.indexes = sorted({named.index for named in self._named})

    def check(self, entry: Entry) -> None:
        """Compares an entry with the small files that name it."""
        for named in self._named:
            if named.index != entry.index:
                continue
            kind, path, advice, index = named.kind, named.path, named.advice, entry.index
            if (named.end, named.chain) != (entry.end, entry.chain_crc):
                expected = f"entry {index} to end at {entry.end} with chain {entry.chain_crc:08x}"
                found = f"{named.end} and {named.chain:08x}"
                self._log.add(kind, path, 0, expected, found, advice, first=index)
            if named.term not in (None, entry.term):
                if path == self._state.checkpoint_path:
                    self._report_term(path, index, f"term {entry.term}", f"term {named.term}")
                else:
                    expected = f"entry {index} to be of term {entry.term}"
                    found = f"term {named.term}"
                    self._log.add(kind, path, 0, expected, found, advice, first=index)

    def check_terms(
        self, starts: Sequence[tuple[int, int]], first: int, last: int, *, before_is_known: bool
    ) -> None:
        """Compares the term starts in checkpoints with those of the log.

        ``starts`` are (term, first index) of the entries ``first`` to ``last``.
        """
        # A term may start with the first entry. That is known only if the entry before is known.
        first += not before_is_known and first > 0
        found = [start for start in starts if first <= start[1] <= last]
        for saved in reversed(self._state.checkpoints):
            named = [start for start in saved.checkpoint.term_starts if first <= start[1] <= last]
            if last <= saved.index and named != found:
                # Only the first difference is reported: later ones may follow from it.
                differing = {*named} ^ {*found}  # empty if one start is named twice
                odd = min(differing, key=itemgetter(1)) if differing else found[0]
                right, wrong = (
                    next((f"term {term}" for term, index in starts if index == odd[1]), "no term")
                    for starts in (found, named)
                )
                expected = f"{right} to start with entry {odd[1]}"
                self._report_term(saved.path, saved.index, expected, wrong)

    def _report_term(self, path: str, index: int, expected: str, found: str) -> None:
        self._log.add(FindingKind.CHECKPOINT, path, 16, expected, found, first=index)
