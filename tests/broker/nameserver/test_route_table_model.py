"""Any sequence of registrations leaves the table that a plain model has."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.nameserver.registration_checks import EarlierConnectionError, StaleTermError
from broker.nameserver.registrations import EXPIRY_MS
from tests.broker.nameserver.route_tables import N0, N1, N2, Tables
from tests.support.search_effort import searching

ADDRESSES = st.sampled_from([N0, N1, N2])


NAMES = st.sampled_from(["broker-a", "broker-b"])


class AnySequence(RuleBasedStateMachine):
    """Whatever brokers do, the tables agree with each other."""

    @initialize()
    def begin(self) -> None:
        self.tables = Tables()
        self.highest: dict[str, int] = {}

    @rule(
        broker_id=st.integers(0, 3),
        address=ADDRESSES,
        name=NAMES,
        cluster=st.sampled_from(["c", "d"]),
        topics=st.lists(st.sampled_from(["T", "U", "V"]), max_size=3, unique=True),
        version=st.integers(1, 3),
        term=st.none() | st.integers(0, 4),
        channel=st.integers(1, 3),
    )
    def register(self, broker_id: int, address: str, topics: list[str], **rest: Any) -> None:
        name, term = rest["name"], rest["term"] or 0
        known = self.tables._names.get(name)
        stale = broker_id == 0 and known is not None and term < known.term
        live = self.tables._live.get(address)
        late = live is not None and rest["channel"] < live.channel
        before = self.tables.cluster_info()
        try:
            self.tables.join(broker_id, address, *topics, **rest)
        except StaleTermError:
            assert not late
            assert stale
            assert self.tables.cluster_info() == before
        except EarlierConnectionError:
            assert late
            assert self.tables.cluster_info() == before
        else:
            assert not stale
            assert not late
            assert self.tables._names[name].addresses[broker_id] == address

    @rule(address=ADDRESSES, name=NAMES, channel=st.integers(1, 3))
    def unregister(self, address: str, name: str, channel: int) -> None:
        live = self.tables._live.get(address)
        self.tables.unregister(name, address, channel)
        if live is not None and channel < live.channel:
            assert self.tables._live[address] is live

    @rule(channel=st.integers(1, 3))
    def close(self, channel: int) -> None:
        self.tables.channel_closed(channel)
        assert self.tables.channel_closed(channel) == []

    @rule(elapsed_ms=st.integers(0, EXPIRY_MS))
    def pass_time(self, elapsed_ms: int) -> None:
        self.tables.time.now += elapsed_ms
        self.tables.expire()

    @invariant()
    def every_living_address_stands_once_in_the_tables(self) -> None:
        info = self.tables.cluster_info()
        listed = [
            address
            for data in info["brokerAddrTable"].values()
            for address in data["brokerAddrs"].values()
        ]
        assert sorted(listed) == sorted(self.tables._live)

    @invariant()
    def every_name_has_a_living_broker_and_one_cluster(self) -> None:
        info = self.tables.cluster_info()
        assert all(data["brokerAddrs"] for data in info["brokerAddrTable"].values())
        in_clusters = [name for names in info["clusterAddrTable"].values() for name in names]
        assert sorted(in_clusters) == sorted(info["brokerAddrTable"])

    @invariant()
    def every_topic_has_a_route_to_living_names(self) -> None:
        for topic in self.tables.topics():
            route = self.tables.route(topic)
            assert route is not None
            assert len(route["brokerDatas"]) == len(route["queueDatas"]) > 0


AnySequence.TestCase.settings = searching(60, 20)


TestAnySequence = AnySequence.TestCase
