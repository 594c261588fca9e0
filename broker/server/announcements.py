"""What this broker registers at NameServers: topics, the members of its group, and the leader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from broker.admin.membership import client_addresses, grpc_address, leader_address
from broker.config.node_config import NodeConfig
from broker.limits import STATE
from broker.server.name_server_registration import Announcement
from broker.state.broker_state import DataVersion
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import TopicConfig
from dledger.node.node import Node
from dledger.raft.configuration import Configuration


class Announcements:
    """Makes the registration of one broker. ``on_changed`` is called when :meth:`current` has
    changed."""

    def __init__(self, config: NodeConfig, node: Node, machine: BrokerStateMachine) -> None:
        self.on_changed: Callable[[], None] = lambda: None
        self._config = config
        self._node = node
        self._machine = machine
        self._address, self._http_address = str(config.own.address), str(config.own.http)
        self._topics: tuple[DataVersion, dict[str, dict[str, object]]] | None = None
        """The last topic table with its version, which changes with each topic."""
        self._members: tuple[Configuration, tuple[str, ...]] | None = None
        self._serving = False

    def current(self) -> Announcement:
        """The present registration; broker id 0 is a leader that serves."""
        config, node, state = self._config, self._node, self._machine.state
        configuration = node.core.configuration
        if self._members is None or self._members[0] is not configuration:
            self._members = (configuration, client_addresses(config, configuration))
        version = state.topics_version
        if self._topics is None or self._topics[0] != version:
            table = {name: _announced(topic) for name, topic in sorted(state.topics.items())}
            self._topics = (version, table)
        return Announcement(
            cluster=config.cluster,
            broker_name=config.group,
            broker_id=0 if node.serving else config.follower_broker_id,
            address=self._address,
            http_address=self._http_address,
            grpc_address=grpc_address(config),
            term=node.leadership.term,
            data_version={"counter": version.counter, "timestamp": version.timestamp_ms},
            topics=self._topics[1],
            members=self._members[1],
            is_member=node.removal.is_member,
        )

    def refresh(self) -> None:
        """Called after a change of topics or leadership. Only a leader registers again: NameServers
        take neither topics nor terms from followers."""
        node, known = self._node, self._members
        serving = node.serving
        if serving or self._serving or known is None or known[0] is not node.core.configuration:
            self._serving = serving
            self.on_changed()

    def membership_changed(self) -> None:
        """Called when this broker became or ceased to be a member."""
        self.on_changed()

    def leader_address(self) -> str | None:
        """The leader's remoting address; None while the leader or its address is unknown."""
        return leader_address(self._config, self._node)

    def leads_elsewhere(self) -> bool:
        """Whether another member leads, at a known address."""
        return self.leader_address() not in (None, self._address)


def _announced(topic: TopicConfig) -> dict[str, object]:
    """A topic for the registration. The number of queues is limited, because clients make an object
    of each queue, and older states have topics with any number."""
    if topic.queues > STATE.queues_max:
        read, write = (min(n, STATE.queues_max) for n in (topic.read_queues, topic.write_queues))
        topic = replace(topic, read_queues=read, write_queues=write)
    return topic.as_json()
