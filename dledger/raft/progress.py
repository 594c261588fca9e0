"""What the leader knows of one follower, and how much it may send it."""

from __future__ import annotations

from collections import deque
from enum import Enum


class ProgressState(Enum):
    """PROBE: one message at a time until the logs meet. REPLICATE: a pipeline of messages."""

    PROBE = "probe"
    REPLICATE = "replicate"


# For each message: Python 3.11 takes 50 ns to find a member of an Enum.
PROBE = ProgressState.PROBE
REPLICATE = ProgressState.REPLICATE


class Progress:
    """Replication to one follower: what it confirmed, what was sent, what may be sent next."""

    __slots__ = (
        "_window_bytes",
        "_window_messages",
        "confirmed_index",
        "confirmed_round",
        "connected",
        "heard_at",
        "incarnation",
        "inflight",
        "inflight_bytes",
        "loading",
        "lost",
        "match_index",
        "needed_index",
        "next_index",
        "round",
        "sent_at",
        "sent_commit",
        "state",
    )

    def __init__(
        self, next_index: int, now: float, *, window_messages: int, window_bytes: int
    ) -> None:
        self.match_index = -1
        self.next_index = next_index
        self.state = PROBE
        self.inflight: deque[tuple[int, int]] = deque()  # (last index, bytes) of each message
        self.inflight_bytes = 0
        self.sent_at: float | None = None  # when the oldest unanswered message was sent
        self.sent_commit = -1
        self.heard_at = now
        self.connected = True
        self.loading = False  # entries for it are being read from the disk
        self.incarnation: int | None = None  # what it said of its disk; None: nothing yet
        self.confirmed_index = -1  # what it ever confirmed to this leader
        self.confirmed_round = 0  # the newest heartbeat round when it did so last
        self.lost = False  # it holds less than that
        self.needed_index = -1  # what a disk that is new here must hold before it counts
        self.round = 0  # the last heartbeat round that it echoed
        self._window_messages = window_messages
        self._window_bytes = window_bytes

    def may_send(self) -> bool:
        """Whether another message may go out now."""
        if not self.connected or self.loading:
            return False
        if self.state is PROBE:
            return self.sent_at is None
        return (
            len(self.inflight) < self._window_messages and self.inflight_bytes < self._window_bytes
        )

    def sent(self, last_index: int, size: int, now: float) -> None:
        """A message with entries up to ``last_index`` left (``size`` 0: a bare probe)."""
        if self.sent_at is None:
            self.sent_at = now
        if self.state is REPLICATE:
            self.next_index = last_index + 1
            self.inflight.append((last_index, size))
            self.inflight_bytes += size

    def confirmed(self, match_index: int) -> bool:
        """The follower holds all up to ``match_index``; true if that is news."""
        moved = match_index > self.match_index
        if moved:
            self.match_index = match_index
            self.confirmed_index = max(self.confirmed_index, match_index)
            self.next_index = max(self.next_index, match_index + 1)
        while self.inflight and self.inflight[0][0] <= self.match_index:
            self.inflight_bytes -= self.inflight.popleft()[1]
        return moved

    def accepted(self, match_index: int, now: float) -> bool:
        """The follower answers an append so; true if that is news.

        While probing, a lower match is no answer to the probe: what it asked is still open.
        """
        moved = self.confirmed(match_index)
        if self.state is PROBE and self.match_index < self.next_index - 1:
            return moved
        self.state = REPLICATE
        self.sent_at = now if self.inflight else None
        return moved

    def alive(self, match_index: int, last_index: int, now: float) -> bool:
        """The follower answers a heartbeat so; true if the match is news.

        It leaves an open probe open, whose entries would be sent twice else. If the follower
        received all that was sent, what is unanswered waits for its disk and is not sent again.
        """
        moved = self.confirmed(match_index)
        if self.state is REPLICATE:
            if not self.inflight:
                self.sent_at = None
            elif moved or last_index >= self.next_index - 1:
                self.sent_at = now
        return moved

    def probe_from(self, next_index: int) -> None:
        """Goes back to one message at a time, but never below what is confirmed."""
        self.state = PROBE
        self.next_index = max(next_index, self.match_index + 1)
        self.inflight.clear()
        self.inflight_bytes = 0
        self.sent_at = None
