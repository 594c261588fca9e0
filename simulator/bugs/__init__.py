"""Planted bugs: each takes one defence out of the shipped code, for the length of a run.

The simulator is tested by them: a check that never fires proves nothing. The ids name bugs that
real systems had; an id that ends in a small letter is one more way to the same bug, and an ``X``
is a bug of our own. Ids E are bugs that were found in this project, ids F concern requests, ids G
the fields of messages, ids H how far groups are, ids I what is derived from the log and
looked up in it, ids P the state of one replica. The shipped code knows nothing of this: a bug
replaces a function of it in memory, and puts it back.
"""

from __future__ import annotations

from simulator.bugs import (
    asked,
    consumed,
    derived,
    disk,
    fields,
    found,
    log,
    members,
    refill,
    state,
    told,
    votes,
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
    *state.BUGS,
)
"""All of them, in the order of their ids' letters."""


def bug_by_id(id_: str) -> Bug | None:
    """The bug of that id, or None."""
    return next((bug for bug in BUGS if bug.id == id_), None)
