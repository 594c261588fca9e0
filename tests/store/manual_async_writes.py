"""Asynchronous writes of a simulated disk, which a test ends."""

from __future__ import annotations

from collections.abc import Callable

from simulator.engine.disk_file import SimulatedFile


class HandWrites:
    """Ends the write that was begun when the test says it, with the result that it says."""

    def __init__(self) -> None:
        self.under_way: list[tuple[SimulatedFile, bytes, int, Callable[[OSError | None], None]]]
        self.under_way = []

    def begin(
        self,
        file: SimulatedFile,
        data: bytes,
        position: int,
        then: Callable[[OSError | None], None],
    ) -> bool:
        self.under_way.append((file, data, position, then))
        return True

    def end(self, error: OSError | None = None) -> None:
        file, data, position, then = self.under_way.pop(0)
        if error is None:
            file.append_direct(data, position)
            file.datasync()
        then(error)
