"""Situations that runs must reach: a defence that no run ever needed has not been tested.

Any code may count marks (``Trace.mark``). Without these a long run of seeds proves too little, and
fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

EXPECTED = (
    "candidate gave up",
    "damaged frame refused",
    "disk error stopped a node",
    "entries dropped",
    "entries dropped over a segment's start",
    "leader stepped down",
    "leader stepped down with proposals open",
    "logs did not meet",
    "paused process resumed",
    "power fails within a file call",
    "process dies within a file call",
    "refused: BusyError",
    "refused: NoRoomError",
    "refused: NotLeaderError",
    "segment rolled",
    "started from a checkpoint",
    "started with entries that may be dropped",
    "stopped in order",
    "torn tail cut",
    "write that nobody waited for had to wait",
    "write that the disk did not begin",
)

EXPECTED_IN_BROKER_RUNS = (
    "ConsumeQueue damaged at rest",
    "checkpoint damaged at rest",
    "consumer died with messages just given to it",
    "damage repaired before the node started",
    "damage repaired while the node served",
    "derived files compared in mid-run",
    "disk damaged at rest",
    "entry of many messages",
    "follower read by index",
    "index damaged at rest",
    "keyindex damaged at rest",
    "handed over to the preferred leader",
    "leader died with messages just given out",
    "leader stepped down while it refilled a follower",
    "log expired",
    "member of an earlier program",
    "message given up by the retention of its topic",
    "message passed over by an expression",
    "message recalled",
    "message removed before it was delivered",
    "NameServer asked in a calm phase",
    "refilled by a peer",
    "registration came late",
    "request answered",
    "sector cannot be read",
    "several files below consumequeue",
    "several files below keyindex",
    "successor asked before it serves",
    "state proved",
)
"""Further situations for long runs of brokers."""


EXPECTED_IN_MEMBERSHIP_RUNS = (
    "addition",
    "change of the voters called off",
    "change of the voters ended by the next leader",
    "disk replaced by an empty one",
    "disk recognised that lacks what it held",
    "handing over",
    "leader removed itself",
    "old copy of a disk put back",
    "promotion",
    "removal",
    "sent again what was given up",
    "several voters changed in one step",
    "unhealthy leader gave way",
    "voter counts again on another disk",
)
"""Further situations for runs in which members and disks are exchanged."""


def missing_coverage(reached: Collection[str], expected: Iterable[str] = EXPECTED) -> list[str]:
    """The expected situations that are not among the marks."""
    return [mark for mark in expected if mark not in reached]
