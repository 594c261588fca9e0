"""Logs for cores."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.raft.entry_cache import EntryCache
from dledger.raft.view import EntryCacheView
from store.log.entry import Entry, EntryKind, build_entry


def next_entry(log: EntryCacheView, term: int, position: int, body: bytes) -> Entry:
    """The entry that continues a log."""
    return build_entry(EntryKind.DATA, log.last_index + 1, term, position, log.chain_crc, (body,))


def written_log(terms: Sequence[int], bodies: Sequence[str] = ()) -> list[Entry]:
    """A log with one entry for each term given; equal beginnings give equal entries.

    The body of an entry is ``index/term`` unless ``bodies`` has another for it.
    """
    log = EntryCache()
    for index, term in enumerate(terms):
        body = bodies[index] if index < len(bodies) else ""
        text = (body or f"{index}/{term}").encode()
        log.append(next_entry(log, term, log.end_position, text))
    return list(log.entries(0, 1 << 30))
