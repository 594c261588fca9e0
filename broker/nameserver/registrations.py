"""The registrations of a NameServer: of each process, and of its group."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.limits import NAMESERVER
from broker.remoting.protocol.register_broker_body import DataVersion, TopicTable
from dledger.wire.endpoint import address_host

LEADER_ID = 0
EXPIRY_MS = 120_000


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of one broker process (request 103)."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    table: TopicTable
    ha_address: str = ""
    http_address: str = ""
    grpc_address: str = ""
    term: int | None = None
    members: tuple[str, ...] = ()
    """The addresses of all members of the group; empty if the process does not report them."""
    expiry_ms: int = EXPIRY_MS


@dataclass(slots=True)
class BrokerName:
    """One broker name: all processes of one broker group."""

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    """All seen addresses, each with its broker id as a follower; 0 if it never followed."""
    reported_members: tuple[str, ...] = ()
    """The members that the leader reported last."""
    term: int = 0
    table_version: DataVersion | None = None
    topics: dict[str, None] = field(default_factory=dict)
    """The topics with queues on this name."""

    def may_be_member(self, address: str) -> bool:
        """Whether the address may be a member; false only if the leader's report leaves it out."""
        return (
            not self.reported_members or address in self.reported_members or address in self.members
        )

    def note_member(self, address: str, broker_id: int) -> None:
        if broker_id == LEADER_ID:
            self.members.setdefault(address, broker_id)
            return
        for moved in [known for known, its_id in self.members.items() if its_id == broker_id]:
            del self.members[moved]
        self.members[address] = broker_id
        while len(self.members) > NAMESERVER.members_max:
            del self.members[next(iter(self.members))]

    @property
    def remaining_members(self) -> dict[str, int]:
        """The seen addresses, without removed members if a leader has reported the members."""
        told = self.reported_members or self.members
        return {address: its_id for address, its_id in self.members.items() if address in told}


@dataclass(slots=True)
class LiveProcess:
    """One registered process. Its address is among those of its name."""

    registration: Registration
    """The registration without topics."""
    channel: int
    host: str
    """The host from which it was registered, empty if unknown."""
    last_update: int

    @property
    def is_native(self) -> bool:
        return is_native(self.registration.address, self.host)


def is_native(address: str, host: str) -> bool:
    """Whether an address is registered from its own host."""
    return bool(host) and address_host(address) == host
