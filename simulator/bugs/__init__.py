"""Planted bugs: each takes one defence out of the shipped code, for the length of a run.

The simulator is tested by them: a check that never fires proves nothing. The ids name bugs that
real systems had; an id that ends in a small letter is one more way to the same bug, and an ``X``
is a bug of our own. Ids E are bugs that were found in this project, ids F concern requests, ids G
the fields of messages, ids H how far groups are, ids I what is derived from the log and looked up
in it, ids J what befalls links, disks at rest, and those who have just answered, ids K what is
compared with what was seen. Ids L take out defences of ``dledger/``, ids M of ``store/``, ids N of
``broker/``; what defences there are, and which bug takes out which, says ``docs/defences.md``. The
shipped code knows nothing of this: a bug replaces a function of it in memory, and puts it back.
"""

from __future__ import annotations

from simulator.bugs import (
    asked,
    ballots,
    checked,
    consumed,
    derived,
    disk,
    disks,
    ended,
    fields,
    found,
    kept,
    log,
    members,
    named,
    reads,
    refill,
    resent,
    rotten,
    shared,
    staged,
    state,
    struck,
    told,
    votes,
    waited,
    writes,
)
from simulator.bugs.plant import Bug, Finding, look_for, planted

__all__ = ["BUGS", "Bug", "Finding", "bug_by_id", "look_for", "planted"]

BUGS: tuple[Bug, ...] = (
    *votes.BUGS,
    *log.BUGS,
    *members.BUGS,
    *disk.BUGS,
    *writes.BUGS,
    *refill.BUGS,
    *told.BUGS,
    *found.BUGS,
    *asked.BUGS,
    *fields.BUGS,
    *consumed.BUGS,
    *derived.BUGS,
    *struck.BUGS,
    *checked.BUGS,
    *ballots.BUGS,
    *disks.BUGS,
    *reads.BUGS,
    *kept.BUGS,
    *rotten.BUGS,
    *resent.BUGS,
    *staged.BUGS,
    *waited.BUGS,
    *ended.BUGS,
    *shared.BUGS,
    *named.BUGS,
    *state.BUGS,
)
"""All of them, in the order of their ids' letters."""


def bug_by_id(id_: str) -> Bug | None:
    """The bug of that id, or None."""
    return next((bug for bug in BUGS if bug.id == id_), None)
