"""Continuous proof: the brokers of a group show each other that their states agree.

Every ``proof_ms`` in which something changed, the leader writes a command ``proof``. Each member
takes the digests of its state after the entry with that command, the *point*, and reports them to
the leader. The next ``proof`` lists the voters' digests of the point before. So every member judges
itself by the log, not by the leader. For each table more than half of the voters are right. A
member that differs, the leader too, drops its state (:mod:`dledger.node.state_divergence`). A
member that comes to the entry later, or reads it again at a start, judges itself in the same way.
Without a majority all members report it and go on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from broker.group_commit.batcher import Batcher
from broker.state.commands import Proof
from dledger.errors import InvariantError, ProposeError, SafetyProperty
from dledger.node.node import Node
from dledger.node.state_machine import Leadership
from dledger.periodic import Periodic
from dledger.wire.features import STATE_PROOF
from dledger.wire.service_messages import StateReport
from store.errors import DataFormatError
from store.state.state_digests import (
    DIGESTS_BYTES,
    StateVerdict,
    judge,
    pack_reports,
    unpack_reports,
)

POINTS_KEPT = 8
"""A member keeps this number of its own digests; the next proof has the last point's."""

REPORT_WAITS_MAX = 4
"""Pace: the leader waits for missing reports of members that have the point in this number of
rounds."""

log = logging.getLogger(__name__)


class Changing(Protocol):
    """The part of :class:`~broker.state.state_machine.BrokerStateMachine` that is used here."""

    changed_index: int


class StateProofs:
    """Of one broker."""

    def __init__(
        self,
        *,
        node: Node,
        machine: Changing,
        batcher: Batcher,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
    ) -> None:
        """A leader looks every ``seconds`` whether there is something to prove; 0: never."""
        self.differing: dict[str, tuple[str, ...]] = {}
        """The tables in which members differ from the majority, as the last proof said."""
        self.contested: tuple[str, ...] = ()
        """Those of which no majority said one thing then."""
        self.judged = -1
        """The point of that proof."""
        self._node = node
        self._machine = machine
        self._batcher = batcher
        self._seconds = seconds
        self._rounds = Periodic(loop, seconds, self._look)
        self._own: dict[int, bytes] = {}
        self.point = -1
        """The last one; -1 for none since the start."""
        self._written = (
            -1
        )  # the newest point of which the log says who is right, or that nobody knows
        self._reports: dict[str, bytes] = {}  # of the last point, to this leader
        self._looks = 0
        self._staged = False
        node.state_divergence.on_report = self.received

    def stop(self) -> None:
        """Nothing is proved any more."""
        self._rounds.stop()

    def restored(self, digests: bytes) -> None:
        """The state begins with that of the checkpoint."""
        checkpoint = self._node.store.recovered.checkpoint
        if checkpoint is not None:
            self._keep(checkpoint.index, digests)

    @property
    def problems(self) -> list[str]:
        """The present mistakes, for people."""
        wrong = self._node.state_divergence.wrong
        own = f"its state differs from the group's, in: {wrong}; it is taken again from the log"
        lines = [own] if wrong else []
        if self.contested:
            lines.append(
                f"after entry {self.judged} the members have different states, and no majority "
                f"the same, in: {', '.join(self.contested)}"
            )
        return lines

    def applied(self, index: int, proof: Proof, digests: bytes) -> None:
        """The entry of that index holds the proof; ``digests`` are of the state after it.

        Raises :class:`~dledger.errors.InvariantError` for a proof that cannot be read.
        """
        self._keep(index, digests)
        if proof.point >= 0:
            try:
                verdict = judge(unpack_reports(proof.reports))
            except DataFormatError as error:
                raise InvariantError(
                    SafetyProperty.SAME_STATE, f"the proof in entry {index}: {error}"
                ) from error
            self._judge(proof.point, verdict)
            if verdict.decided or verdict.contested:
                self._written = proof.point
        self.point = index
        self._reports, self._looks = {}, 0
        self._report()

    def received(self, peer: str, report: StateReport) -> None:
        """A member says what its state was."""
        if report.index == self.point and len(report.digests) == DIGESTS_BYTES:
            self._reports[peer] = report.digests

    def leadership_changed(self, leadership: Leadership) -> None:
        """A new leader has not heard the reports to the one before."""
        self.stop()
        if leadership.serving:
            if self._seconds:
                self._rounds.start()
        elif leadership.leader is not None:
            self._report()

    # --- judging

    def _keep(self, index: int, digests: bytes) -> None:
        self._own[index] = digests
        while len(self._own) > POINTS_KEPT:
            del self._own[next(iter(self._own))]

    def _judge(self, point: int, verdict: StateVerdict) -> None:
        name, own = self._node.core.node, self._own.get(point)
        wrong = verdict.wrong
        self.judged = point
        if verdict.contested and verdict.contested != self.contested:
            log.error(
                "%s: after entry %d the members have different states, and no majority of the "
                "voters the same: %s; nobody knows who is right, and all go on",
                name,
                point,
                ", ".join(verdict.contested),
            )
        for member, tables in wrong.items():
            if member != name and self.differing.get(member) != tables:
                log.error(
                    "%s: the state of %s after entry %d is not that of a majority of the voters, "
                    "in: %s",
                    name,
                    member,
                    point,
                    ", ".join(tables),
                )
        self.differing, self.contested = dict(wrong), verdict.contested
        if own is None:
            return
        tables = verdict.differences(own)
        if tables:
            self._node.state_divergence.differs(point, ", ".join(tables))
        elif verdict.decided:
            self._node.state_divergence.agreed(point)

    # --- telling

    def _report(self) -> None:
        digests, leader = self._own.get(self.point), self._node.core.leader
        if digests is None or leader is None:
            return
        if leader == self._node.core.node:
            self._reports[leader] = digests
        elif self._node.features.has(leader, STATE_PROOF):
            self._node.send(leader, StateReport(self.point, digests))

    # --- a leader

    def _look(self) -> None:
        if self._staged or self._machine.changed_index <= self._written:
            return
        if len(self._node.core.configuration.members) < 2:  # nobody to agree with
            return
        if not self._node.features.known_by_all(STATE_PROOF) or self._waits():
            return
        reports = {voter: self._reports.get(voter, b"") for voter in self._voters()}
        proof = Proof(self.point, pack_reports(reports if self.point >= 0 else {}))
        self._staged = True
        try:
            self._batcher.add_command(proof, self._ended)
        except ProposeError as error:
            self._staged = False
            log.debug("no proof now: %s", error)

    def _ended(self, _error: ProposeError | None) -> None:
        self._staged = False

    def _voters(self) -> set[str]:
        found = self._node.core.configuration
        return {*found.voters, *found.old_voters}

    def _waits(self) -> bool:
        """Whether a report of the last point may still come."""
        core = self._node.core
        self._report()  # the own state, where the point was applied before this node led
        if self.point <= self._written or not core.leads:
            return False
        peers = core.progress
        missing = [
            voter
            for voter in self._voters() - self._reports.keys()
            if voter in peers and peers[voter].match_index >= self.point
        ]
        self._looks += 1
        return bool(missing) and self._looks < REPORT_WAITS_MAX
