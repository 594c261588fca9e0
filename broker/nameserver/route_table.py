"""The tables of a NameServer: registered brokers, their names and ids, and their queues.

The rules are those of ``RouteInfoManager`` in RocketMQ 4.9, with additions for quick restarts and
changes of the leader (brokers send their Raft ``term`` with the registration):

- A registration as id 0 is refused if its term is lower than the known term of that broker name. So
  a deposed leader cannot take the name back.
- A topic table with a term is complete, so missing topics are removed. (Apache's brokers also
  register single topics in this way; there missing topics stay.)
- Only the latest connection of an address counts. Requests over an older one are from an earlier
  process of that broker, and were delayed by a slow link.
- If two processes claim the same place, :mod:`broker.nameserver.registration_checks` decides.
- The version of the topic table belongs to the broker *name*. Apache's NameServer compares it with
  the version last sent from the same address. So it would ignore the table of a new leader.

Everything is in memory: NameServers do not exchange data, and brokers repeat their registrations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from broker.limits import NAMESERVER
from broker.nameserver.departed_brokers import DepartedBrokers
from broker.nameserver.registration_checks import RegistrationChecks
from broker.nameserver.registrations import (
    LEADER_ID,
    BrokerName,
    LiveProcess,
    Registration,
)
from broker.remoting.protocol.errors import TooManyError
from broker.remoting.protocol.register_broker_body import DataVersion, QueueData

PERM_READ = 4
PERM_WRITE = 2


class RegisterResult(NamedTuple):
    """The answer to a registration: for a follower the leader's addresses; empty for the leader, or
    without one."""

    ha_address: str
    master_address: str


class RouteCounts(NamedTuple):
    """The size of the tables of a NameServer."""

    processes: int
    broker_names: int
    without_leader: int
    """The number of broker names without a registered leader."""
    topics: int


class RouteTable:
    """The tables and their rules. ``clock`` gives milliseconds of a monotonic clock.

    A *channel* is the number of a connection; later connections have greater numbers.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.gone = DepartedBrokers(clock)
        self.version = 0
        """The version of all routes: it grows with every change that may affect a route."""
        self._names: dict[str, BrokerName] = {}
        self._live: dict[str, LiveProcess] = {}
        self._by_channel: dict[int, dict[str, None]] = {}
        self._topic_count = 0
        self._claims = RegistrationChecks(self._live, clock)
        self._queues: dict[str, dict[str, QueueData]] = {}

    # Brokers come and go.

    def register(self, registration: Registration, channel: int, host: str = "") -> RegisterResult:
        """Registers a broker, or renews its registration. ``host`` is the peer of the connection.

        Raises :class:`~broker.nameserver.registration_checks.RegistrationRefusedError`, or
        :class:`~broker.remoting.protocol.errors.TooManyError`; nothing was changed then.
        """
        name, address, broker_id = (
            registration.broker_name,
            registration.address,
            registration.broker_id,
        )
        known = self._live.get(address)
        group = self._names.get(name)
        self._check_room(registration, group, channel)
        self._claims.check_address(address, channel, host)
        if group is not None:
            self._claims.check_place(registration, group, channel)
        self.version += 1
        if known is not None and (
            known.registration.broker_name != name or known.registration.broker_id != broker_id
        ):
            # Only the process, not its name: a leader that becomes a follower keeps the topics.
            self._unlink(
                known.registration, forget_empty_name=known.registration.broker_name != name
            )
        group = self._names.setdefault(name, BrokerName(registration.cluster))
        if broker_id == LEADER_ID or LEADER_ID not in group.addresses:
            group.cluster = registration.cluster
        replaced = group.addresses.get(broker_id)
        if replaced is not None and replaced != address:
            self._forget_live(replaced)
        group.addresses[broker_id] = address
        if broker_id == LEADER_ID or group.may_be_member(address):
            group.note_member(address, broker_id)
        self.gone.returned(name)
        if address in self._live:
            self._forget_live(address)
        kept = replace(registration, table=registration.table._replace(queues={}))
        self._live[address] = LiveProcess(kept, channel, host, self._clock())
        self._by_channel.setdefault(channel, {})[address] = None
        if broker_id == LEADER_ID:
            group.term = registration.term or 0
            group.reported_members = registration.members
            # A leader that registers again also brings back topics that were deleted only here.
            if replaced != address or group.table_version != registration.table.data_version:
                self._take_table(registration, group)
            return RegisterResult("", "")
        return self._leader_of(group)

    def unregister(self, broker_name: str, address: str, channel: int, host: str = "") -> None:
        """Removes a broker.

        Unknown names and addresses are ignored, and so are addresses that are registered over a
        later connection or from another host.
        """
        live = self._live.get(address)
        if (
            live is not None
            and live.registration.broker_name == broker_name
            and (channel == live.channel or (channel > live.channel and host == live.host))
        ):
            self._drop(address)

    def channel_closed(self, channel: int) -> list[str]:
        """Drops the brokers whose latest registration came over ``channel``; returns their
        addresses."""
        gone = []
        while (address := self.drop_one(channel)) is not None:
            gone.append(address)
        return gone

    def drop_one(self, channel: int) -> str | None:
        """Drops one of these brokers; returns its address, or None if there is none. A closed
        channel may have many."""
        addresses = self._by_channel.get(channel)
        if not addresses:
            self._by_channel.pop(channel, None)
            self._claims.channel_closed(channel)
            return None
        address = next(iter(addresses))
        self._drop(address)
        return address

    def expire(self) -> list[tuple[str, int]]:
        """Drops brokers that were silent for too long; returns their addresses and channels."""
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

    def query_data_version(
        self, address: str, version: DataVersion, channel: int | None = None
    ) -> tuple[bool, DataVersion]:
        """Whether a broker must register again with its table, and its known version.

        If not, a query over its own channel renews its registration.
        """
        live = self._live.get(address)
        if live is None:
            return True, DataVersion()
        known = live.registration.table.data_version
        if known != version:
            return True, known
        if channel is None or channel == live.channel:
            live.last_update = self._clock()
        return False, known

    def delete_topic(self, topic: str, cluster: str = "") -> None:
        """Deletes a topic of all brokers, or of those of the ``cluster``."""
        self.version += 1
        for name in list(self._queues.get(topic, ())):
            if cluster in {"", self._names[name].cluster}:
                self._remove_queues(topic, name)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Removes the write permission from the broker's routes until its table changes; returns
        the number of topics."""
        return self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """The opposite of :meth:`wipe_write_perm`."""
        return self._set_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    # Answers to queries. Documents are ready for JSON, except for integer keys.

    def route(self, topic: str) -> dict[str, Any] | None:
        """``TopicRouteData``; None if no registered broker has the topic."""
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
        """``ClusterInfo``, with the HTTP and gRPC addresses that brokers reported."""
        return {
            "brokerAddrTable": {name: self._broker_data(name) for name in self._names},
            "clusterAddrTable": self.clusters(),
            "grpcAddrTable": {
                address: live.registration.grpc_address
                for address, live in self._live.items()
                if live.registration.grpc_address
            },
            "httpAddrTable": {
                address: live.registration.http_address
                for address, live in self._live.items()
                if live.registration.http_address
            },
        }

    def counts(self) -> RouteCounts:
        """The size of the tables."""
        leaderless = sum(LEADER_ID not in group.addresses for group in self._names.values())
        return RouteCounts(len(self._live), len(self._names), leaderless, len(self._queues))

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
        """The address of any registered broker, which a client may ask further."""
        return next(iter(self._live), None)

    def _broker_data(self, name: str) -> dict[str, Any]:
        group = self._names[name]
        return {
            "brokerAddrs": dict(sorted(group.addresses.items())),
            "brokerName": name,
            "cluster": group.cluster,
        }

    def _leader_of(self, group: BrokerName) -> RegisterResult:
        address = group.addresses.get(LEADER_ID)
        if address is None:
            return RegisterResult("", "")
        return RegisterResult(self._live[address].registration.ha_address, address)

    def _take_table(self, registration: Registration, group: BrokerName) -> None:
        name = registration.broker_name
        table = registration.table
        if registration.term is not None:
            for topic in [topic for topic in group.topics if topic not in table.queues]:
                self._remove_queues(topic, name)
        self._topic_count -= len(group.topics)
        for topic, data in table.queues.items():
            self._queues.setdefault(topic, {})[name] = data
            group.topics[topic] = None
        self._topic_count += len(group.topics)
        group.table_version = table.data_version

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        self.version += 1
        group = self._names.get(broker_name)
        topics = () if group is None else group.topics
        for topic in topics:
            queues = self._queues[topic]
            data = queues[broker_name]
            queues[broker_name] = data._replace(perm=change(data.perm))
        return len(topics)

    def _drop(self, address: str) -> None:
        self._unlink(self._live[address].registration, forget_empty_name=True)

    def _unlink(self, registration: Registration, *, forget_empty_name: bool) -> None:
        self.version += 1
        self._forget_live(registration.address)
        group = self._names[registration.broker_name]
        del group.addresses[registration.broker_id]
        if not group.addresses and forget_empty_name:
            # The term is dropped with the name: a new group may begin at 1 again.
            for topic in list(group.topics):
                self._remove_queues(topic, registration.broker_name)
            del self._names[registration.broker_name]
            self._claims.name_forgotten(registration.broker_name)
            self.gone.left(registration.broker_name, group.cluster, group.remaining_members)

    def _forget_live(self, address: str) -> None:
        live = self._live.pop(address)
        addresses = self._by_channel[live.channel]
        del addresses[address]
        if not addresses:
            del self._by_channel[live.channel]

    def _remove_queues(self, topic: str, name: str) -> None:
        queues = self._queues[topic]
        del queues[name]
        del self._names[name].topics[topic]
        self._topic_count -= 1
        if not queues:
            del self._queues[topic]

    def _check_room(
        self, registration: Registration, group: BrokerName | None, channel: int
    ) -> None:
        if registration.address not in self._live and len(self._live) >= NAMESERVER.processes_max:
            raise TooManyError(
                f"{len(self._live)} brokers are registered", NAMESERVER.processes_max
            )
        own = self._by_channel.get(channel, {})
        most = NAMESERVER.connection_processes_max
        if registration.address not in own and len(own) >= most:
            raise TooManyError(f"{len(own)} brokers are registered over this connection", most)
        if registration.broker_id == LEADER_ID:
            known = {} if group is None else group.topics
            table = registration.table.queues
            added = sum(topic not in known for topic in table)
            replaces = registration.term is not None  # as in _take_table
            dropped = sum(topic not in table for topic in known) if replaces else 0
            topics = self._topic_count + added - dropped
            if topics > max(NAMESERVER.all_topics_max, self._topic_count):
                raise TooManyError(
                    f"all brokers would have {topics} topics", NAMESERVER.all_topics_max
                )
