"""State proofs: the brokers of a group compare their states continuously.

The leader proposes a command ``proof`` every ``proof_ms``, if anything changed. Each member takes
the digests of its state after the entry with that command, the *point*, and reports them to the
leader. The next ``proof`` lists the voters' digests of the previous point. So every member judges
itself by the log, not by the leader. For each table the digest of more than half of the voters is
right. A member that differs, even the leader, drops its state
(:mod:`dledger.node.state_divergence`). A member that applies the entry later, or again after a
start, judges itself in the same way. Without a majority for a digest, all members report it and
continue.
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
"""The number of own digests that a member keeps; the next proof has those of the last point."""

REPORT_WAITS_MAX = 4
"""Pace: the number of rounds in which the leader waits for missing reports of members that have the
point."""

log = logging.getLogger(__name__)


class Changing(Protocol):
    """The part of :class:`~broker.state.state_machine.BrokerStateMachine` that is used here."""

    changed_index: int


class StateProofs:
    """The state proofs of one broker."""

    def __init__(
        self,
        *,
        node: Node,
        machine: Changing,
        batcher: Batcher,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
    ) -> None:
        """A leader checks every ``seconds`` whether a proof is due; 0: never."""
        self.differing: dict[str, tuple[str, ...]] = {}
        """The tables in which members differ from the majority, by the last proof."""
        self.contested: tuple[str, ...] = ()
        """The tables without a majority for one digest."""
        self.judged = -1
        """The point of that proof."""
        self._node = node
        self._machine = machine
        self._batcher = batcher
        self._seconds = seconds
        self._rounds = Periodic(loop, seconds, self._look)
        self._own: dict[int, bytes] = {}
        self.point = -1
        """The last point; -1 for none since the start."""
        self._written = -1  # the newest point that the log has decided, or left without a majority
        self._reports: dict[str, bytes] = {}  # for the last point, to this leader
        self._looks = 0
        self._staged = False
        node.state_divergence.on_report = self.received

    def stop(self) -> None:
        """Stops the proofs."""
        self._rounds.stop()

    def restored(self, digests: bytes) -> None:
        """The state of a checkpoint was restored."""
        checkpoint = self._node.store.recovered.checkpoint
        if checkpoint is not None:
            self._keep(checkpoint.index, digests)

    @property
    def problems(self) -> list[str]:
        """The present divergences as text."""
        wrong = self._node.state_divergence.wrong
        own = f"its state differs from the group's, in: {wrong}; it is being rebuilt from the log"
        lines = [own] if wrong else []
        if self.contested:
            lines.append(
                f"after entry {self.judged} the states of members differ, without a majority, "
                f"in: {', '.join(self.contested)}"
            )
        return lines

    def applied(self, index: int, proof: Proof, digests: bytes) -> None:
        """The entry of that index has the proof; ``digests`` are those of the state after it.

        Raises :class:`~dledger.errors.InvariantError` for a proof that cannot be decoded.
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
        """Takes a member's report of its digests."""
        if report.index == self.point and len(report.digests) == DIGESTS_BYTES:
            self._reports[peer] = report.digests

    def leadership_changed(self, leadership: Leadership) -> None:
        """A new leader has no reports yet."""
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
                "%s: after entry %d the states of members differ, without a majority of the "
                "voters: %s; the right state is unknown, and all members continue",
                name,
                point,
                ", ".join(verdict.contested),
            )
        for member, tables in wrong.items():
            if member != name and self.differing.get(member) != tables:
                log.error(
                    "%s: the state of %s after entry %d differs from a majority of the voters, "
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

    # --- reporting

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
        if len(self._node.core.configuration.members) < 2:  # no other member to compare with
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
        self._report()  # this node's own digests, if it applied the point before it led
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
