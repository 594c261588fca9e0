"""Planted bugs: each takes one defence out of the shipped code, for the length of a run.

They test the simulator: a check that never fires proves nothing. The ids name bugs that real
systems had. A small letter at the end marks another way to the same bug, an ``X`` a bug of our own.
Ids L take out defences of ``dledger/``, ids M of ``store/``, ids N of ``broker/``.
``docs/planted-bugs.md`` explains all letters, and ``docs/defences.md`` says which bug takes out
which defence. The shipped code knows nothing of this: a bug replaces a function of it in memory,
and puts it back.
"""

from __future__ import annotations

from simulator.bugs import corruption_and_staleness, mid_run_checks, regressions
from simulator.bugs.broker import (
    access_control,
    client_answers,
    consumer_groups,
    consumption,
    deduplication,
    forwarding,
    index_lookup,
    message_fields,
    name_server,
    pending_batch,
    pop_deliveries,
    request_reply,
    scheduled_messages,
    state_divergence,
    transactions,
)
from simulator.bugs.planted_bug import Bug, Finding, look_for, planted
from simulator.bugs.raft import (
    elections,
    impostors,
    leadership,
    linearizable_reads,
    log_replication,
    lost_disks,
    membership,
    snapshot_install,
)
from simulator.bugs.storage import async_io, damage_at_rest, durability, durable_mark

__all__ = ["BUGS", "Bug", "Finding", "bug_by_id", "look_for", "planted"]

BUGS: tuple[Bug, ...] = (
    *elections.BUGS,
    *log_replication.BUGS,
    *membership.BUGS,
    *durability.BUGS,
    *async_io.BUGS,
    *snapshot_install.BUGS,
    *client_answers.BUGS,
    *regressions.BUGS,
    *request_reply.BUGS,
    *forwarding.BUGS,
    *message_fields.BUGS,
    *consumption.BUGS,
    *index_lookup.BUGS,
    *corruption_and_staleness.BUGS,
    *mid_run_checks.BUGS,
    *leadership.BUGS,
    *lost_disks.BUGS,
    *linearizable_reads.BUGS,
    *durable_mark.BUGS,
    *damage_at_rest.BUGS,
    *deduplication.BUGS,
    *pending_batch.BUGS,
    *scheduled_messages.BUGS,
    *transactions.BUGS,
    *consumer_groups.BUGS,
    *name_server.BUGS,
    *impostors.BUGS,
    *state_divergence.BUGS,
    *pop_deliveries.BUGS,
    *access_control.BUGS,
)
"""All of them, in the order of their ids' letters."""


def bug_by_id(id_: str) -> Bug | None:
    """The bug of that id, or None."""
    return next((bug for bug in BUGS if bug.id == id_), None)
