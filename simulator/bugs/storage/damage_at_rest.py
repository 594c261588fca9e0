"""Planted bugs M of damage at rest: how it is found and repaired."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import store.log.entry_reader
import store.log.entry_repair
import store.log.log_reader
import store.recovery.recovery
from dledger.node.scrubber import Scrubber
from simulator.bugs.planted_bug import BugsOf, Patch
from simulator.worlds.registry import BROKERS, LOOKUPS
from store.errors import CorruptEntryError
from store.io.filesystem import Bytes
from store.log.entry import HEADER, KINDS, Entry, decode_entry
from store.log.entry_reader import EntryRange
from store.replica_reads import ReplicaReads

BIT = ("bit flip", "crash", "power loss", "partition")
bug = BugsOf(BROKERS, seconds=8.0)


def _unchecked(buffer: Bytes, offset: int = 0, previous_chain_crc: int | None = None) -> Entry:
    """As ``decode_entry`` if the header makes sense, without a comparison of CRCs."""
    try:
        return decode_entry(buffer, offset, previous_chain_crc)
    except CorruptEntryError as error:
        if "CRC" not in str(error):
            raise
    magic, size, index, term, position, _, chain, *_ = HEADER.unpack_from(buffer, offset)
    if index < 0 or term < 0 or position < 0:
        raise CorruptEntryError("a number below 0")
    return Entry(KINDS[magic], index, term, position, chain, memoryview(buffer)[offset:][:size])


def _unchecked_within(patch: Patch, module: ModuleType, name: str) -> None:
    """A function that runs another one with a log that is read without comparing CRCs."""
    checked = getattr(module, name)
    within: list[str] = []

    @patch.instead(store.log.log_reader, "decode_entry")
    def decode(buffer: Bytes, offset: int = 0, previous_chain_crc: int | None = None) -> Entry:
        return (_unchecked if within else decode_entry)(buffer, offset, previous_chain_crc)

    def unchecked(*arguments: Any) -> Any:
        within.append(name)
        try:
            return checked(*arguments)
        finally:
            within.pop()

    patch.set(module, name, unchecked)


@bug("M5x", "cannot be applied | are not the log's | commits another entry | is given", 10, *BIT)
def crcs_not_compared_at_the_start(patch: Patch) -> None:
    """A log is opened without comparing the CRCs of its entries."""
    _unchecked_within(patch, store.recovery.recovery, "scan")


@bug("M6x", "are not the log's | is not as its log says | is given | cannot be applied", 20, *BIT)
def crcs_not_compared_by_reads(patch: Patch) -> None:
    """Entries are read without comparing their CRCs."""
    _unchecked_within(patch, store.log.entry_reader, "_read_run")
    patch.set(store.log.entry_repair, "check_chain", lambda _entry, _chain_crc: None)


# Consumers read what is new; queries read all of the log.
@bug(
    "M7x",
    "is given | another message is found at position",
    100,
    "bit flip",
    "crash",
    world=LOOKUPS,
)
def records_read_as_they_lie(patch: Patch) -> None:
    """Messages for clients are read without comparing the CRC of their entry."""

    @patch.instead(ReplicaReads, "read_range")
    def read_range(
        reads: ReplicaReads, first_index: int, _last_index: int, _max_bytes: int
    ) -> EntryRange:
        row = reads._index.row(first_index)
        data = memoryview(reads._log.read(row.position, row.size))
        return EntryRange(row.position, data, row.size)


@bug("M8x", "damage is repaired: not within", 10, *BIT)
def damage_at_rest_not_repaired(patch: Patch) -> None:
    """The scrub does not repair the damage that it finds."""
    patch.set(Scrubber, "wanted", lambda _scrubber, _rounds: None)


@bug("M9x", "damage is repaired: not within", 10, *BIT)
def data_at_rest_never_read(patch: Patch) -> None:
    """The scrub reads nothing."""
    patch.set(Scrubber, "_step", lambda _scrubber: None)
