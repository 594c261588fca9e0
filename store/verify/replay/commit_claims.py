"""Entries that a replica says to be committed, or held by another disk, and that are not there.

Each such claim may be wrong, and so may the logs that do not have the entry: somebody may have put
an old copy in the place of a disk. Nothing proves which it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.verify.findings import UNKNOWN_REPLICA, Finding, FindingKind
from store.verify.state.state_files import StateFiles

ADVICE = (
    "nothing proves which is right, the claim or the log: a disk may be an old copy, see "
    "docs/safety.md; keep all copies, report it"
)


@dataclass(frozen=True, slots=True)
class ClaimingReplica:
    """A replica of a group: what its small files say, and the last entry that is in its log.

    What it is known to lack since a refill, up to its floor, nobody is wrong to claim.
    """

    name: str
    state: StateFiles
    last_index: int

    @property
    def is_live(self) -> bool:
        """Not a snapshot, which may be of any earlier time."""
        return self.state.manifest is None


def check_claims(holders: Sequence[ClaimingReplica]) -> list[Finding]:
    """Tells of claims about disks of the group that their logs do not bear out."""
    findings = []
    live = {
        (one.state.identity.node, one.state.identity.incarnation): one
        for one in holders
        if one.is_live and one.state.identity.incarnation
    }
    for holder in holders:
        for claim in holder.state.held:
            other = live.get((claim.node, claim.incarnation))
            if other is not None and claim.last_index > max(other.last_index, other.state.floor):
                expected = f"entries up to {claim.last_index} in the log of {other.name}"
                said = f"that log ends with entry {other.last_index}, as {holder.name} knows more"
                findings.append(
                    _finding(holder.state.evidence_path, claim.last_index, expected, said)
                )
    last = max((one.last_index for one in holders), default=-1)
    if len(holders) < 2 or not all(one.is_live for one in holders):
        return findings
    for holder in holders:
        named = [(older.path, older.checkpoint) for older in holder.state.older]
        if holder.state.checkpoint is not None:
            named.append((holder.state.checkpoint_path, holder.state.checkpoint))
        for path, checkpoint in named:
            if checkpoint.commit_index > last:
                expected = f"entry {checkpoint.commit_index}, committed, in a log of the group"
                said = f"all end with entry {last} or before, as {holder.name} knows more"
                findings.append(_finding(path, checkpoint.commit_index, expected, said))
    return findings


def _finding(path: str, index: int, expected: str, found: str) -> Finding:
    return Finding(
        FindingKind.DIVERGENCE, UNKNOWN_REPLICA, index, index, path, 16, expected, found, ADVICE
    )
