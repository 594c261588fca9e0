"""The damaged machines of a run."""

from __future__ import annotations


class FaultAtlas:
    """Keeps which machines are damaged: at most a minority."""

    def __init__(self, machines: int) -> None:
        self._most = (machines - 1) // 2
        self.damaged: dict[str, None] = {}

    def alone(self, name: str) -> bool:
        """Whether no other machine is damaged. If so, no other will be."""
        if any(each != name for each in self.damaged):
            return False
        self.damaged[name] = None
        self._most = 0
        return True

    def allows(self, name: str) -> bool:
        """Whether this machine may be damaged, perhaps again."""
        return name in self.damaged or len(self.damaged) < self._most
