"""A part of a world beside its group: clients, and the checks of what they do."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import ClassVar, Protocol

from simulator.hosts.client_host import ClientHost
from simulator.hosts.host import Host
from simulator.invariants import Invariant


class Client(Protocol):
    """What runs on a client's machine and can be told to ask for nothing new."""

    def stop(self) -> None:
        """Asks for nothing new."""


class Calls(Protocol):
    """The calls of some clients and their outcomes."""

    @property
    def open(self) -> Sized:
        """Those that have not ended."""

    def client_ended(self, client: str) -> None:
        """Its process died: it hears no outcome any more."""


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
        self.clients: Sequence[Client] = ()
        self.histories: Sequence[Calls] = ()
        self.invariants: list[Invariant] = []

    # --- while it runs

    def start(self) -> None:
        """Its clients begin."""
        for client_host in self.client_hosts:
            client_host.start()

    def is_prepared(self) -> bool:
        """Whether others may start. A workload that says no tells the cluster later
        (``Cluster.prepared``)."""
        return True

    def stop(self) -> None:
        """Its clients ask for nothing new."""
        for client in self.clients:
            client.stop()

    def process_ended(self, host: Host) -> None:
        """A process of the group has ended. Processes with a connection to it hear of it by
        that."""

    def ask_at_once(self, host: Host, *, is_write: bool) -> None:
        """Clients that ask for offsets and topics ask there, now."""

    def crash_given(self, client: str, victim: str) -> None:
        """Somebody dies as soon as a consumer is given something."""

    def client_ended(self, client_host: ClientHost) -> None:
        """The process of a client, of this workload or another one, died."""
        for history in self.histories:
            history.client_ended(client_host.name)

    # --- the outcome

    def open_calls(self) -> int:
        """How many calls have not ended."""
        return sum(len(history.open) for history in self.histories)

    def counts(self) -> tuple[int, int]:
        """How much was acknowledged, and how much has an unknown outcome."""
        return 0, 0

    def delivered(self) -> bool:
        """Whether its consumers have all that is stored for them."""
        return True

    async def heal(self) -> None:
        """Faults are over: ends its clients, and checks what must hold then.

        Raises :class:`~simulator.engine.violation.Violation`.
        """
