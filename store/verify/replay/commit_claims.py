"""Finds claims that an entry is committed, or held by another disk, if no log has that entry.

The claim may be wrong. The logs may be wrong, too: a disk may have been replaced by an old copy.
Nothing proves which it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.verify.findings import UNKNOWN_REPLICA, Finding, FindingKind, FindingLog
from store.verify.state.state_files import StateFiles

ADVICE = (
    "nothing proves which is right, the claim or the log: a disk may be an old copy, see "
    "docs/safety.md; keep all copies, report it"
)


@dataclass(frozen=True, slots=True)
class ClaimingReplica:
    """A replica: its small files, and the last entry in its log."""

    name: str
    state: StateFiles
    last_index: int

    @property
    def is_live(self) -> bool:
        """Whether this is no snapshot, which may be of any earlier time."""
        return self.state.manifest is None


def check_claims(holders: Sequence[ClaimingReplica]) -> list[Finding]:
    """Compares claims about disks of the group with the logs on these disks."""
    log = FindingLog(UNKNOWN_REPLICA)

    def report(path: str, index: int, expected: str, found: str) -> None:
        log.add(FindingKind.DIVERGENCE, path, 16, expected, found, ADVICE, first=index)

    live = {
        (one.state.identity.node, one.state.identity.incarnation): one
        for one in holders
        if one.is_live and one.state.identity.incarnation
    }
    for holder in holders:
        for claim in holder.state.held:
            other = live.get((claim.node, claim.incarnation))
            # Claims up to the vote floor of a refilled replica are right: it held these entries.
            if other is not None and claim.last_index > max(
                other.last_index, other.state.vote_floor
            ):
                expected = f"entries up to {claim.last_index} in the log of {other.name}"
                said = f"that log ends with entry {other.last_index}, as {holder.name} knows more"
                report(holder.state.evidence_path, claim.last_index, expected, said)
    if len(holders) < 2 or not all(one.is_live for one in holders):
        return log.findings
    last = max(one.last_index for one in holders)
    for holder in holders:
        for saved in holder.state.checkpoints:
            index = saved.checkpoint.commit_index
            if index > last:
                expected = f"entry {index}, committed, in a log of the group"
                said = f"all end with entry {last} or before, as {holder.name} knows more"
                report(saved.path, index, expected, said)
    return log.findings
