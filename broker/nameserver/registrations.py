"""The registrations of a NameServer: what each process says, and what is known of its group."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.limits import NAMESERVER
from broker.remoting.protocol.register_broker_body import DataVersion, TopicTable
from dledger.wire.endpoint import address_host

LEADER_ID = 0
EXPIRY_MS = 120_000


@dataclass(frozen=True, slots=True)
class Registration:
    """One broker process: what request 103 says."""

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
    """The addresses of all members of the group; none if the process does not report them."""
    expiry_ms: int = EXPIRY_MS


@dataclass(slots=True)
class BrokerName:
    """All processes of one name: the replicas of one group."""

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    """All addresses that were seen, each with the id under which it followed, 0 if it never did."""
    reported_members: tuple[str, ...] = ()
    """Those that the leader told last."""
    term: int = 0
    table_version: DataVersion | None = None
    topics: dict[str, None] = field(default_factory=dict)
    """The topics in which it has queues."""

    def may_be_member(self, address: str) -> bool:
        """Whether nobody has said otherwise."""
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
        """Without removed members, as far as a leader has reported the members."""
        told = self.reported_members or self.members
        return {address: its_id for address, its_id in self.members.items() if address in told}


@dataclass(slots=True)
class LiveProcess:
    """One living process, by its address. Every one is among its name's addresses."""

    registration: Registration
    """Without its topics."""
    channel: int
    host: str
    """The address from which it was registered, empty if unknown."""
    last_update: int

    @property
    def is_native(self) -> bool:
        return is_native(self.registration.address, self.host)


def is_native(address: str, host: str) -> bool:
    """Whether what registers an address comes from its very host."""
    return bool(host) and address_host(address) == host
