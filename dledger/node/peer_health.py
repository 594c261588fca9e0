"""What the peers said lately of their health."""

from __future__ import annotations

import asyncio

from dledger.raft.core import Raft
from dledger.raft.quorum import VoteResult, joint_vote_result
from dledger.wire.service_messages import HealthReport

REPORT_VALID_SECONDS = 3.0


class PeerHealth:
    """Of one node. On the event loop."""

    def __init__(self, core: Raft, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._loop = loop
        self._reports: dict[str, tuple[HealthReport, float]] = {}

    def received(self, peer: str, report: HealthReport) -> None:
        """A peer says how it is. One that is no member yet may be one soon."""
        core = self._core
        if not (core.serves(peer) or peer in core.raft_state.up):
            return
        self._reports[peer] = (report, self._loop.time())
        core.health_reported(peer, healthy=report.healthy, intact=report.whole)

    def lost(self, peer: str) -> None:
        """A link broke: what is no member is forgotten."""
        if not self._core.serves(peer):
            self._reports.pop(peer, None)
            self._core.health_unknown(peer)

    def report(self, peer: str) -> HealthReport | None:
        """The last report of a peer; None if it is too old."""
        told = self._reports.get(peer)
        if told is None or self._loop.time() - told[1] > REPORT_VALID_SECONDS:
            return None
        return told[0]

    def voters_without_room(self) -> tuple[str, ...]:
        """On a leader, the voters who said so lately; none if the others are a majority."""
        core = self._core
        if not core.leads:
            return ()
        reports = {peer: self.report(peer) for peer in core.other_voters}
        without = {peer: False for peer, told in reports.items() if told and not told.room}
        lost = joint_vote_result(core.configuration.quorums, without) is VoteResult.LOST
        return tuple(sorted(without)) if lost else ()

    def possible_leaders(self) -> list[str]:
        """The other voters that are healthy and have all committed entries."""
        return [peer for peer in self._core.other_voters if self._could_lead(peer)]

    def _could_lead(self, peer: str) -> bool:
        core, report = self._core, self.report(peer)
        if report is None or not report.healthy:
            return False
        progress = core.progress.get(peer)
        return (
            progress is not None
            and progress.connected
            and progress.match_index >= core.commit_index
        )
