"""A ConsumeQueue against a list in memory: through flushes, restarts, crashes and expiry."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from store.index.consume_queue import ConsumeQueue
from tests.store.index.small_queues import flush, queues_on, read_all, rows
from tests.store.small_logs import simulated
from tests.support.search_effort import searching


class QueueLife(RuleBasedStateMachine):
    """One queue beside the numbers it should hold; a checkpoint is what a restart goes back to."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.fs = simulated(seed)
        self.rng = random.Random(seed)
        self.queues = queues_on(self.fs)
        self.queues.restore(())
        self.first, self.end = 0, 0
        self.saved: list[tuple[str, int, int, int]] = []
        self.released = 0

    def queue(self) -> ConsumeQueue:
        return self.queues.get_or_create("orders", 0)

    @rule(count=st.integers(1, 9))
    def append(self, count: int) -> None:
        self.queue().append(self.end, rows(self.end, count))
        self.end += count

    @rule()
    def checkpoint(self) -> None:
        self.saved = self.queues.lengths()
        flush(self.queues)
        self.released = self.first

    @rule()
    def flush_without_a_checkpoint(self) -> None:
        flush(self.queues)

    @rule(share=st.floats(0, 1))
    def forget(self, share: float) -> None:
        """As a command to expire does; files go when the checkpoint is behind it."""
        position = 1000 + round(10 * (self.first + share * (self.end - self.first)))
        queue = self.queue()
        queue.first_offset = queue.offset_at(position)
        self.first = max(self.first, -(-(position - 1000) // 10))
        queue.release(self.released)

    @rule()
    def lose_power(self) -> None:
        self.fs.power_loss()
        self.restart()

    @rule()
    def die(self) -> None:
        self.fs.crash()
        self.restart()

    def restart(self) -> None:
        self.queues = queues_on(self.fs)
        self.queues.restore(self.saved)
        self.first, self.end = self.saved[0][2:] if self.saved else (0, 0)

    @invariant()
    def holds_what_was_appended(self) -> None:
        queue = self.queue()
        assert (queue.first_offset, queue.end_offset) == (self.first, self.end)
        assert read_all(queue) == rows(self.first, self.end - self.first)


TestQueueLife = QueueLife.TestCase


TestQueueLife.settings = searching(60, 25)
