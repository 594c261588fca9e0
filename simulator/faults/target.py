"""The target of faults: a group of hosts, its network, and the clients of its world."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from simulator.engine.event_loop import VirtualLoop
    from simulator.engine.peer_network import Network
    from simulator.faults.fault_atlas import FaultAtlas
    from simulator.hosts.client_host import ClientHost
    from simulator.hosts.host import Host

Argument = str | int | float
"""An argument of an action."""


class Proposals(Protocol):
    """Takes the actions that chance has chosen."""

    def propose(self, name: str, *arguments: Argument) -> None:
        """Does an action, now."""


class KnownMembers(Protocol):
    """The members that one entry names."""

    @property
    def voters(self) -> Sequence[str]: ...
    @property
    def old_voters(self) -> Sequence[str]:
        """The old voters in a joint configuration; else none."""

    @property
    def incarnations(self) -> Mapping[str, int]:
        """The disk of each member."""


class FaultTarget(Protocol):
    """What faults need of a cluster."""

    @property
    def loop(self) -> VirtualLoop: ...
    @property
    def network(self) -> Network: ...
    @property
    def schedule(self) -> Proposals: ...
    @property
    def atlas(self) -> FaultAtlas: ...
    @property
    def hosts(self) -> Sequence[Host]: ...
    @property
    def target_clients(self) -> Sequence[str]:
        """The names of the clients that may crash, be paused, and be cut off."""

    @property
    def members_away_max(self) -> int:
        """The number of hosts that may be no members of the group at a time."""

    @property
    def known_members(self) -> Mapping[str, KnownMembers]:
        """By host, the newest configuration in its log, committed or not, as far as the log went at
        last."""

    def host(self, name: str) -> Host:
        """The host of that name. Raises :class:`KeyError`."""

    def leader(self) -> Host | None:
        """The serving leader; ``None`` if no host or more than one believes to be it."""

    def hosts_that_must_run(self) -> Collection[Host]:
        """All hosts except those that cannot run because of damage."""

    def cut(self, sender: Host, receiver: Host, *, noticed: bool) -> None:
        """Cuts one direction."""

    def heal_network(self) -> None:
        """Ends all cuts."""

    def client_hosts_named(self, name: str) -> Sequence[ClientHost]:
        """The machine of a client or a NameServer."""

    def ask_at_once(self, host: Host, is_write: bool) -> None:
        """Clients of offsets and topics write or read there, now."""

    def crash_given(self, client: str, victim: str) -> None:
        """A process dies when a consumer next gets messages."""
