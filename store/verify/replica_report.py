"""The result of the check of one replica."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from store.verify.findings import Finding


@dataclass(slots=True)
class ReplicaReport:
    """The extent of the check, and its findings: of a range, or of the whole log."""

    directory: str
    group: str
    node: str
    segment_size: int = 0
    first_index: int = 0
    last_index: int = -1
    commit_index: int = -1
    end_position: int = 0
    last_term: int = 0
    messages: int = 0
    state: str = "unknown"
    """Whether another replica has the same state (:mod:`store.verify.replay.state_check`)."""
    findings: list[Finding] = field(default_factory=list)
    chains: array[int] = field(default_factory=lambda: array("q"), repr=False)
    """The chain CRC of each entry from ``first_index`` on; -1 for an unreadable one. If all entries
    up to the end are lost, they are left out."""
    positions: array[int] = field(default_factory=lambda: array("q"), repr=False)
    ends: array[int] = field(default_factory=lambda: array("q"), repr=False)
    """Position and end position of the entries of ``chains``."""

    @property
    def name(self) -> str:
        """``group/node``, or the directory if the format file cannot be read."""
        return f"{self.group}/{self.node}" if self.group else self.directory

    @property
    def known_index(self) -> int:
        """The last entry that the replica has and knows to be committed."""
        return min(self.commit_index, self.last_index)

    def chain(self, index: int) -> int | None:
        """The chain CRC of a committed entry; ``None`` if the replica lacks the entry."""
        if not self.first_index <= index <= self.known_index:
            return None
        if index - self.first_index >= len(self.chains):
            return None
        crc = self.chains[index - self.first_index]
        return None if crc < 0 else crc

    def to_json(self) -> dict[str, object]:
        """The fields for JSON, without findings and chains."""
        return {
            "replica": self.name,
            "directory": self.directory,
            "first_index": self.first_index,
            "last_index": self.last_index,
            "commit_index": self.commit_index,
            "end_position": self.end_position,
            "messages": self.messages,
            "state": self.state,
            "findings": len(self.findings),
        }
