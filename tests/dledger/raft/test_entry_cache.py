"""EntryCache against a plain list of entries."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dledger.errors import InvariantError
from dledger.raft.entry_cache import EntryCache
from store.log.entry import Entry
from tests.dledger.raft.written_log import next_entry, written_log
from tests.support.search_effort import searching


class LogModel(RuleBasedStateMachine):
    """``entries`` is the whole truth; the log may forget what was evicted or has expired."""

    def __init__(self) -> None:
        super().__init__()
        self.log = EntryCache(cache_bytes_max=300)
        self.entries: list[Entry] = []
        self.first_index = 0
        self.cached_from = 0

    @rule(more=st.integers(0, 2), body=st.binary(max_size=60))
    def append(self, more: int, body: bytes) -> None:
        term = self.log.last_term + more
        entry = next_entry(self.log, max(1, term), self.log.end_position, body)
        self.log.append(entry)
        self.entries.append(entry)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        # Nothing committed is cut, so nothing that expired, nor the entry before the first.
        first = data.draw(st.integers(max(self.cached_from, self.first_index), len(self.entries)))
        self.log.truncate(first)
        del self.entries[first:]

    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        keep_from = data.draw(st.integers(0, len(self.entries)))
        size = sum(entry.size for entry in self.entries[self.cached_from :])
        while size > 300 and self.cached_from < keep_from:
            size -= self.entries[self.cached_from].size
            self.cached_from += 1
        self.log.evict(keep_from)

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.first_index = data.draw(st.integers(self.first_index, len(self.entries)))
        self.log.expire(self.first_index)

    @invariant()
    def it_ends_where_the_list_ends(self) -> None:
        last = self.entries[-1] if self.entries else None
        assert self.log.last_index == len(self.entries) - 1
        assert self.log.last_term == (last.term if last else 0)
        assert self.log.end_position == (last.end if last else 0)
        assert self.log.chain_crc == (last.chain_crc if last else 0)

    @invariant()
    def it_knows_every_term_from_the_one_before_the_first_index_on(self) -> None:
        assert self.log.term_at(-1) == 0
        assert self.log.term_at(len(self.entries)) is None
        for index, entry in enumerate(self.entries):
            known = self.log.term_at(index)
            assert known == entry.term or (known is None and index < self.first_index - 1)

    @invariant()
    def it_holds_the_newest_entries(self) -> None:
        assert self.log.cached_from == self.cached_from
        for index, entry in enumerate(self.entries):
            assert self.log.entry(index) is (entry if index >= self.cached_from else None)
        assert self.log.entries(self.cached_from, 1 << 30) == tuple(
            self.entries[self.cached_from :]
        )

    @invariant()
    def it_takes_entries_while_they_fit(self) -> None:
        for limit in (1, 120):
            taken: list[Entry] = []
            for entry in self.entries[self.cached_from :]:
                if taken and sum(e.size for e in taken) + entry.size > limit:
                    break
                taken.append(entry)
            assert self.log.entries(self.cached_from, limit) == tuple(taken)

    @invariant()
    def it_skips_terms_as_walking_does(self) -> None:
        top = self.entries[-1].term if self.entries else 0
        for index in range(-1, len(self.entries) + 1):
            for term in range(top + 2):
                walked = min(index, len(self.entries) - 1)
                while walked >= 0 and not (self.log.term_at(walked) or term + 1) <= term:
                    walked -= 1
                assert self.log.last_index_not_above(index, term) == walked


LogModel.TestCase.settings = searching(40, 25)
TestLogIsAList = LogModel.TestCase


def test_an_entry_that_does_not_follow_is_refused() -> None:
    entries = written_log([1, 2, 2])
    log = EntryCache()
    log.append(entries[0])
    with pytest.raises(InvariantError, match="entry 2 of term 2 cannot follow entry 0 of term 1"):
        log.append(entries[2])


def test_an_entry_of_an_older_term_is_refused() -> None:
    log = EntryCache()
    log.append(written_log([2])[0])
    with pytest.raises(InvariantError, match="entry 1 of term 1 cannot follow entry 0 of term 2"):
        log.append(next_entry(log, 1, log.end_position, b""))


def test_what_memory_no_longer_holds_cannot_be_cut() -> None:
    log = EntryCache(cache_bytes_max=1)
    for entry in written_log([1, 1, 1]):
        log.append(entry)
    log.evict(2)
    with pytest.raises(InvariantError, match=r"drop entries from 1: memory holds .* from 2"):
        log.truncate(1)


def test_cutting_all_that_memory_holds_leaves_the_end_of_what_is_on_disk() -> None:
    entries = written_log([1, 1, 2])
    log = EntryCache(
        last_index=2,
        term_starts=[(1, 0), (2, 2)],
        end_position=entries[2].end,
        chain_crc=entries[2].chain_crc,
        tail=entries[2:],
        tail_base=(entries[1].end, entries[1].chain_crc),
    )
    log.truncate(2)
    assert (log.last_index, log.last_term) == (1, 1)
    assert (log.end_position, log.chain_crc) == (entries[1].end, entries[1].chain_crc)
