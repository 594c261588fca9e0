"""The client of a simulated cluster: it proposes numbered payloads to the serving leader.

It keeps answers apart from unknown outcomes: a payload whose node died or lost its leadership may
be in the log, once, or never be.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from dledger.errors import OutcomeUnknownError, ProposeError
from simulator.engine.violation import Violation
from simulator.workload.stoppable_client import StoppableClient
from store.log.entry import Entry, EntryKind

if TYPE_CHECKING:
    from simulator.engine.event_loop import VirtualLoop
    from simulator.hosts.host import Host

NUMBER_BYTES = 8
PAYLOAD_BYTES_MAX = 400


def payload_number(entry: Entry) -> int | None:
    """The number of the payload in an entry; ``None`` for a no-op or a configuration."""
    if entry.kind is not EntryKind.DATA:
        return None
    return int.from_bytes(entry.body[:NUMBER_BYTES], "big")


class RaftClient(StoppableClient):
    """Proposes now and then, in bursts; ``burst_max`` payloads every ``pause_max`` seconds."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: Random,
        hosts: Sequence[Host],
        *,
        payload_max: int,
        burst_max: int,
        pause_max: float,
    ) -> None:
        self.pending: dict[int, Host] = {}
        self.acknowledged: dict[int, None] = {}
        self.unknown: dict[int, None] = {}
        self._loop = loop
        self._rng = rng
        self._hosts = hosts
        self._payload_max = payload_max
        self._burst_max = burst_max
        self._pause_max = pause_max
        self._proposed = 0
        self._working = False

    def start(self) -> None:
        """Starts to propose."""
        self._working = True
        self._work()

    def _work(self) -> None:
        if not self._working:
            return
        for _ in range(self._rng.randint(0, self._burst_max)):
            self.propose()
        self._loop.call_later(self._rng.uniform(0.005, self._pause_max), self._work)

    def propose(self) -> int | None:
        """Proposes one payload to a node that takes itself for a serving leader.

        Returns its number, or None if nobody serves.
        """
        serving = [host for host in self._hosts if host.node is not None and host.node.serving]
        if not serving:
            return None
        host = self._rng.choice(serving)
        self._proposed += 1
        number = self._proposed
        size = self._rng.randint(NUMBER_BYTES, min(PAYLOAD_BYTES_MAX, self._payload_max))
        self.pending[number] = host
        assert host.process is not None  # noqa: S101 - its node serves
        host.process.run(self._propose, host, number, size)
        return number

    def _propose(self, host: Host, number: int, size: int) -> None:
        assert host.node is not None  # noqa: S101 - an event of its process
        body = number.to_bytes(NUMBER_BYTES, "big") + bytes(size - NUMBER_BYTES)

        def done(error: ProposeError | None) -> None:
            self._done(host, number, error)

        try:
            host.node.propose(size, lambda _position: [body], done)
        except ProposeError as error:
            del self.pending[number]
            host.note(f"payload {number} refused: {error}")
            host.coverage_mark(f"refused: {type(error).__name__}")

    def _done(self, host: Host, number: int, error: ProposeError | None) -> None:
        if self.pending.pop(number, None) is None:
            raise Violation(f"payload {number} has two outcomes, now: {error}")
        host.note(f"payload {number}: {error or 'acknowledged'}")
        if error is None:
            self.acknowledged[number] = None
            for observer in host.observers:
                observer.acknowledged(host, number)
        elif isinstance(error, OutcomeUnknownError):
            host.coverage_mark("leader stepped down with proposals open")
            self.unknown[number] = None
        else:
            raise Violation(f"payload {number} was accepted and then refused: {error}")

    def process_ended(self, host: Host) -> None:
        """A process is gone. The outcomes of its unanswered requests are unknown."""
        for number in [number for number, asked in self.pending.items() if asked is host]:
            del self.pending[number]
            self.unknown[number] = None
