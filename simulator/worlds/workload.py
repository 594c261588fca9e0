"""A workload: clients of a cluster, and their checks."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import ClassVar, Protocol

from simulator.hosts.client_host import ClientHost
from simulator.hosts.host import Host
from simulator.invariants import Invariant
from simulator.workload.stoppable_client import StoppableClient


class Calls(Protocol):
    """The calls of some clients and their outcomes."""

    @property
    def open(self) -> Sized:
        """The calls that have not ended."""

    def client_ended(self, client: str) -> None:
        """The client's process died, so it gets no more outcomes."""


class Workload:
    """Some clients of a cluster. Each overrides what concerns it.

    ``client_hosts`` are the machines of its clients, in the order of their start. ``clients`` are
    told to stop, and ``histories`` have their calls. Faults strike the machines in ``targets``.
    ``invariants`` observe the hosts of the cluster's first group. With ``prepares`` it starts and
    ends before the others.
    """

    prepares: ClassVar[bool] = False

    targets: Sequence[str] = ()

    def __init__(self) -> None:
        self.client_hosts: list[ClientHost] = []
        self.clients: Sequence[StoppableClient] = ()
        self.histories: Sequence[Calls] = ()
        self.invariants: list[Invariant] = []

    # --- while it runs

    def start(self) -> None:
        """Starts its clients."""
        for client_host in self.client_hosts:
            client_host.start()

    def is_prepared(self) -> bool:
        """Whether others may start. A workload that says no tells the cluster later
        (``Cluster.prepared``)."""
        return True

    def stop(self) -> None:
        """Stops its clients: they begin no new requests."""
        for client in self.clients:
            client.stop()

    def process_ended(self, host: Host) -> None:
        """A process of the group has ended. Processes with a connection to it hear of it by
        that."""

    def ask_at_once(self, host: Host, *, is_write: bool) -> None:
        """Clients of offsets and topics ask there, now."""

    def crash_given(self, client: str, victim: str) -> None:
        """A process dies when a consumer next gets messages."""

    def client_ended(self, client_host: ClientHost) -> None:
        """The process of a client, of this workload or another one, died."""
        for history in self.histories:
            history.client_ended(client_host.name)

    # --- the outcome

    def open_calls(self) -> int:
        """The number of calls that have not ended."""
        return sum(len(history.open) for history in self.histories)

    def counts(self) -> tuple[int, int]:
        """The number of acknowledged calls, and of calls with an unknown outcome."""
        return 0, 0

    def delivered(self) -> bool:
        """Whether its consumers have all messages that are stored for them."""
        return True

    async def heal(self) -> None:
        """Faults are over: ends its clients, and checks what must hold then.

        Raises :class:`~simulator.engine.violation.Violation`.
        """
