"""What the small files of a replica say about entries, compared with the entries."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from store.log.entry import Entry
from store.state.checkpoint import Checkpoint
from store.verify.findings import INCOMPLETE, RESTORE, FindingKind, FindingLog
from store.verify.state.state_files import StateFiles


class NamedEntriesCheck:
    """Mark, checkpoints and manifest name entries; ``indexes`` are theirs, in order."""

    def __init__(self, state: StateFiles, log: FindingLog) -> None:
        self._state = state
        self._log = log
        named = {state.mark.index, -1 if state.checkpoint is None else state.checkpoint.index}
        named |= {older.checkpoint.index for older in state.older}
        if state.manifest is not None:
            named.add(state.manifest.commit_index)
        self.indexes = sorted(named)

    def check(self, entry: Entry) -> None:
        """Mark, checkpoint and manifest name an entry each: it must be the one in the log."""
        state = self._state
        found = (entry.end, entry.chain_crc)
        mark, checkpoint, manifest = state.mark, state.checkpoint, state.manifest
        if entry.index == mark.index:
            self._check_name(
                FindingKind.MARK, state.mark_path, entry, (mark.position, mark.chain_crc), found
            )
        if checkpoint is not None and entry.index == checkpoint.index:
            named = (checkpoint.end_position, checkpoint.chain_crc)
            path, kept = state.checkpoint_path, checkpoint
            self._check_name(FindingKind.CHECKPOINT, path, entry, named, found)
            if kept.term != entry.term:
                self._tell_terms(f"term {entry.term}", f"term {kept.term}", path, kept)
        for older in state.older:
            path, kept = older.path, older.checkpoint
            if entry.index == kept.index:
                named = (kept.end_position, kept.chain_crc)
                self._check_name(FindingKind.CHECKPOINT, path, entry, named, found)
                self._check_term(FindingKind.CHECKPOINT, path, entry, kept.term)
        if manifest is not None and entry.index == manifest.commit_index:
            named = (manifest.end_position, manifest.chain_crc)
            path, kind = state.manifest_path, FindingKind.FORMAT
            self._check_name(kind, path, entry, named, found, advice=INCOMPLETE)
            self._check_term(kind, path, entry, manifest.term, INCOMPLETE)

    def _check_term(
        self, kind: FindingKind, path: str, entry: Entry, term: int, advice: str = RESTORE
    ) -> None:
        if term != entry.term:
            expected, found = f"entry {entry.index} to be of term {entry.term}", f"term {term}"
            self._log.add(kind, path, 0, expected, found, advice, first=entry.index)

    def _check_name(
        self,
        kind: FindingKind,
        path: str,
        entry: Entry,
        named: tuple[int, int],
        found: tuple[int, int],
        *,
        advice: str = RESTORE,
    ) -> None:
        if named != found:
            self._log.add(
                kind,
                path,
                0,
                f"entry {entry.index} to end at {found[0]} with chain {found[1]:08x}",
                f"{named[0]} and {named[1]:08x}",
                advice,
                first=entry.index,
            )

    def check_terms(
        self, starts: Sequence[tuple[int, int]], first: int, last: int, *, before_is_known: bool
    ) -> None:
        """The checkpoints' term starts must be those of the log, ``starts`` of these entries."""
        state = self._state
        if state.checkpoint is None:
            return
        # Whether a term starts with the first entry is known only where its forerunner is.
        first += not before_is_known and first > 0
        found = [start for start in starts if first <= start[1] <= last]
        for path, checkpoint in (
            (state.checkpoint_path, state.checkpoint),
            *((older.path, older.checkpoint) for older in state.older),
        ):
            named = [start for start in checkpoint.term_starts if first <= start[1] <= last]
            if last <= checkpoint.index and named != found:
                # The first one that differs, as the ranges behind may have others.
                differing = {*named} ^ {*found}  # empty where one is named twice
                odd = min(differing, key=itemgetter(1)) if differing else found[0]
                right, wrong = (
                    next((f"term {term}" for term, index in starts if index == odd[1]), "no term")
                    for starts in (found, named)
                )
                self._tell_terms(f"{right} to start with entry {odd[1]}", wrong, path, checkpoint)

    def _tell_terms(self, expected: str, found: str, path: str, checkpoint: Checkpoint) -> None:
        self._log.add(FindingKind.CHECKPOINT, path, 16, expected, found, first=checkpoint.index)
