"""The tables of a NameServer: who lives, under which name and id, with which queues.

Rules are those of ``RouteInfoManager`` in RocketMQ 4.9, with additions for brokers that start again
at once and whose leader changes (they send their Raft ``term`` with the registration):

- A registration as id 0 whose term is lower than the known one of that broker name is refused: a
  deposed leader that has not noticed yet must not take the name back.
- A topic table with a term is complete, so a topic that it lacks is gone. (Apache's brokers also
  register single topics that way; for them a missing topic stays.)
- What comes over a connection opened before the one by which the same address registered last is
  passed over: an earlier process of that broker sent it, and a slow link kept it until now.
- The version of the topic table belongs to the broker *name*. Apache compares with the version last
  sent from the same address, and so would ignore the table of a follower that became leader.

Everything is in memory: NameServers do not talk to each other, and brokers register for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.nameserver.gone import GoneNames
from broker.nameserver.topictable import DataVersion, QueueData, TopicTable

LEADER_ID = 0
EXPIRY_MS = 120_000
PERM_READ = 4
PERM_WRITE = 2


class StaleTermError(Exception):
    """A registration as leader whose term has been superseded."""

    def __init__(self, broker_name: str, term: int, known_term: int) -> None:
        self.known_term = known_term
        super().__init__(f"{broker_name}: a leader of term {known_term} is known, not {term}")


class EarlierConnectionError(Exception):
    """A registration over a connection that was opened before the one known of its address."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address}: has registered over a later connection")


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
    term: int | None = None
    members: tuple[str, ...] = ()
    """The addresses of all members of the group; none where the process does not tell."""
    expiry_ms: int = EXPIRY_MS


class RegisterResult(NamedTuple):
    """What a follower learns in return; empty for the leader, or where there is none."""

    ha_address: str
    master_address: str


@dataclass(slots=True)
class _BrokerName:
    """All processes of one name: the replicas of one group."""

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    """All addresses that were seen, each with the id under which it followed, 0 if it never did."""
    told_members: tuple[str, ...] = ()
    """Those that the leader told last."""
    term: int = 0
    table_version: DataVersion | None = None

    def note_member(self, address: str, broker_id: int) -> None:
        if broker_id == LEADER_ID:
            self.members.setdefault(address, broker_id)
            return
        for moved in [known for known, its_id in self.members.items() if its_id == broker_id]:
            del self.members[moved]
        self.members[address] = broker_id

    @property
    def remaining_members(self) -> dict[str, int]:
        """Without those that were removed from the group, as far as a leader told who is in it."""
        told = self.told_members or self.members
        return {address: its_id for address, its_id in self.members.items() if address in told}


@dataclass(slots=True)
class _Live:
    """One living process, by its address. Every one is among its name's addresses."""

    registration: Registration
    channel: int
    last_update: int


class RouteTable:
    """The tables and the rules that change them. ``clock`` gives milliseconds that only advance.

    A *channel* is the number of a connection: the later it was opened, the greater.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.gone = GoneNames(clock)
        self.version = 0
        """What routes say depends on it alone: it grows with every change that they may show."""
        self._names: dict[str, _BrokerName] = {}
        self._live: dict[str, _Live] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}

    # Brokers come and go.

    def register(self, registration: Registration, channel: int) -> RegisterResult:
        """Takes in a broker, or that it still lives.

        Raises :class:`StaleTermError` and :class:`EarlierConnectionError`; nothing has changed.
        """
        name, address, broker_id = (
            registration.broker_name,
            registration.address,
            registration.broker_id,
        )
        known = self._live.get(address)
        if known is not None and channel < known.channel:
            raise EarlierConnectionError(address)
        group = self._names.get(name)
        if broker_id == LEADER_ID:
            term = registration.term or 0
            if group is not None and term < group.term:
                raise StaleTermError(name, term, group.term)
        self.version += 1
        if known is not None and (
            known.registration.broker_name != name or known.registration.broker_id != broker_id
        ):
            # Removed alone, not with its name: the leader that becomes a follower keeps the topics.
            self._unlink(
                known.registration, forget_empty_name=known.registration.broker_name != name
            )
        group = self._names.setdefault(name, _BrokerName(registration.cluster))
        group.cluster = registration.cluster
        replaced = group.addresses.get(broker_id)
        if replaced is not None and replaced != address:
            del self._live[replaced]
        group.addresses[broker_id] = address
        group.note_member(address, broker_id)
        self.gone.returned(name)
        self._live[address] = _Live(registration, channel, self._clock())
        if broker_id == LEADER_ID:
            group.term = registration.term or 0
            group.told_members = registration.members
            # A leader seen anew also brings back what was deleted here but not there.
            if replaced != address or group.table_version != registration.table.data_version:
                self._take_table(registration, group)
            return RegisterResult("", "")
        return self._leader_of(group)

    def unregister(self, broker_name: str, address: str, channel: int) -> None:
        """A broker says goodbye.

        Ignored is one that is not known by that name and address, or has registered over a later
        connection.
        """
        live = self._live.get(address)
        if (
            live is not None
            and live.registration.broker_name == broker_name
            and channel >= live.channel
        ):
            self._drop(address)

    def channel_closed(self, channel: int) -> list[str]:
        """Drops the brokers whose latest registration came over ``channel``; their addresses."""
        gone = [address for address, live in self._live.items() if live.channel == channel]
        for address in gone:
            self._drop(address)
        return gone

    def expire(self) -> list[tuple[str, int]]:
        """Drops brokers that were silent for too long; their addresses and channels."""
        now = self._clock()
        silent = [
            (address, live.channel)
            for address, live in self._live.items()
            if now - live.last_update > live.registration.expiry_ms
        ]
        for address, _ in silent:
            self._drop(address)
        self.gone.expire()
        return silent

    def query_data_version(self, address: str, version: DataVersion) -> tuple[bool, DataVersion]:
        """Whether a broker must register again in full, and the version known of it.

        Where it need not, asking counts as a sign of life.
        """
        live = self._live.get(address)
        if live is None:
            return True, DataVersion()
        known = live.registration.table.data_version
        if known != version:
            return True, known
        live.last_update = self._clock()
        return False, known

    def delete_topic(self, topic: str) -> None:
        self.version += 1
        self._queues.pop(topic, None)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Takes the broker out of all write routes until its table changes; how many topics."""
        return self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """The opposite of :meth:`wipe_write_perm`."""
        return self._set_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    # What is asked for. Documents are ready for JSON but for their integer keys.

    def route(self, topic: str) -> dict[str, Any] | None:
        """``TopicRouteData``; None where no living broker has the topic."""
        queues = self._queues.get(topic)
        if not queues:
            return None
        filter_servers = {
            address: self._live[address].registration.table.filter_servers
            for name in queues
            for address in self._names[name].addresses.values()
        }
        return {
            "brokerDatas": [self._broker_data(name) for name in queues],
            "filterServerTable": {
                address: servers for address, servers in filter_servers.items() if servers
            },
            "queueDatas": [
                {
                    "brokerName": name,
                    "perm": data.perm,
                    "readQueueNums": data.read_queues,
                    "topicSysFlag": data.sys_flag,
                    "writeQueueNums": data.write_queues,
                }
                for name, data in queues.items()
            ],
        }

    def cluster_info(self) -> dict[str, Any]:
        """``ClusterInfo``, and beside it the HTTP address of each broker that has told it."""
        return {
            "brokerAddrTable": {name: self._broker_data(name) for name in self._names},
            "clusterAddrTable": self.clusters(),
            "httpAddrTable": {
                address: live.registration.http_address
                for address, live in self._live.items()
                if live.registration.http_address
            },
        }

    def clusters(self) -> dict[str, list[str]]:
        """Broker names by cluster."""
        clusters: dict[str, list[str]] = {}
        for name, group in self._names.items():
            clusters.setdefault(group.cluster, []).append(name)
        return clusters

    def topics(self) -> list[str]:
        return list(self._queues)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        return [
            topic
            for topic, queues in self._queues.items()
            if any(self._names[name].cluster == cluster for name in queues)
        ]

    def any_address(self) -> str | None:
        """Some living broker's address, where a client may ask on."""
        return next(iter(self._live), None)

    def _broker_data(self, name: str) -> dict[str, Any]:
        group = self._names[name]
        return {
            "brokerAddrs": dict(sorted(group.addresses.items())),
            "brokerName": name,
            "cluster": group.cluster,
        }

    def _leader_of(self, group: _BrokerName) -> RegisterResult:
        address = group.addresses.get(LEADER_ID)
        if address is None:
            return RegisterResult("", "")
        return RegisterResult(self._live[address].registration.ha_address, address)

    def _take_table(self, registration: Registration, group: _BrokerName) -> None:
        name = registration.broker_name
        table = registration.table
        if registration.term is not None:
            for topic in [topic for topic, queues in self._queues.items() if name in queues]:
                if topic not in table.queues:
                    self._remove_queues(topic, name)
        for topic, data in table.queues.items():
            self._queues.setdefault(topic, {})[name] = data
        group.table_version = table.data_version

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        self.version += 1
        changed = 0
        for queues in self._queues.values():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = data._replace(perm=change(data.perm))
                changed += 1
        return changed

    def _drop(self, address: str) -> None:
        self._unlink(self._live[address].registration, forget_empty_name=True)

    def _unlink(self, registration: Registration, *, forget_empty_name: bool) -> None:
        self.version += 1
        del self._live[registration.address]
        group = self._names[registration.broker_name]
        del group.addresses[registration.broker_id]
        if not group.addresses and forget_empty_name:
            # With the name goes its term: a group that was set up anew may begin at 1 again.
            del self._names[registration.broker_name]
            self.gone.left(registration.broker_name, group.cluster, group.remaining_members)
            for topic in list(self._queues):
                self._remove_queues(topic, registration.broker_name)

    def _remove_queues(self, topic: str, name: str) -> None:
        queues = self._queues[topic]
        queues.pop(name, None)
        if not queues:
            del self._queues[topic]
