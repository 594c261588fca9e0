"""The rules of the NameServer's tables, one by one, and what must hold after any of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.nameserver.departed_brokers import REMEMBERED_MS
from broker.nameserver.registration_checks import EarlierConnectionError, StaleTermError
from broker.nameserver.registrations import EXPIRY_MS, Registration
from broker.nameserver.route_table import RouteTable
from broker.remoting.protocol.register_broker_body import DataVersion, QueueData, TopicTable

N0, N1, N2 = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
C0, C1, C2 = 10, 11, 12
CHANNELS = {N0: C0, N1: C1, N2: C2}
"""The connection over which each of them registers, where a test names no other."""


class Clock:
    def __init__(self) -> None:
        self.now = 5_000

    def __call__(self) -> int:
        return self.now


class Tables(RouteTable):
    """The tables with a clock that tests move and short ways to register."""

    def __init__(self) -> None:
        self.time = Clock()
        super().__init__(self.time)

    def leader(self, address: str = N0, *, version: int = 1, **changes: Any) -> None:
        self.join(0, address, version=version, **changes)

    def join(
        self,
        broker_id: int,
        address: str,
        *topics: str,
        version: int = 1,
        term: int | None = None,
        name: str = "broker-a",
        cluster: str = "c",
        channel: int | None = None,
        **changes: Any,
    ) -> Any:
        queues = {topic: QueueData(4, 4, 6) for topic in topics or ("T",)}
        table = TopicTable(DataVersion(counter=version), queues, changes.pop("filters", []))
        return self.register(
            Registration(cluster, name, broker_id, address, table, term=term, **changes),
            CHANNELS[address] if channel is None else channel,
        )

    def addresses(self, topic: str = "T") -> dict[str, dict[int, str]] | None:
        route = self.route(topic)
        if route is None:
            return None
        return {data["brokerName"]: data["brokerAddrs"] for data in route["brokerDatas"]}


@pytest.fixture
def tables() -> Tables:
    return Tables()


def test_the_route_names_the_queues_and_who_holds_them(tables: Tables) -> None:
    tables.join(1, N1)
    tables.join(0, N0)
    assert tables.route("T") == {
        "brokerDatas": [
            {"brokerAddrs": {0: N0, 1: N1}, "brokerName": "broker-a", "cluster": "c"},
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        ],
    }


def test_an_unknown_topic_has_no_route(tables: Tables) -> None:
    tables.leader()
    assert tables.route("U") is None


def test_a_topic_of_two_brokers_names_both(tables: Tables) -> None:
    tables.join(0, N0)
    tables.join(0, N1, name="broker-b")
    assert tables.addresses() == {"broker-a": {0: N0}, "broker-b": {0: N1}}


def test_the_table_of_a_follower_is_not_taken(tables: Tables) -> None:
    tables.join(0, N0, "T")
    tables.join(1, N1, "U", version=9)
    assert tables.topics() == ["T"]


def test_a_changed_version_updates_the_topics(tables: Tables) -> None:
    tables.join(0, N0, "T", version=1)
    tables.join(0, N0, "T", "U", version=2)
    assert tables.topics() == ["T", "U"]


def test_an_unchanged_version_updates_nothing(tables: Tables) -> None:
    tables.join(0, N0, "T", version=1)
    tables.join(0, N0, "T", "U", version=1)
    assert tables.topics() == ["T"]


def test_a_table_without_a_term_adds_topics_and_removes_none(tables: Tables) -> None:
    tables.join(0, N0, "T", version=1)
    tables.join(0, N0, "U", version=2)
    assert tables.topics() == ["T", "U"]


def test_a_table_with_a_term_is_complete(tables: Tables) -> None:
    tables.join(0, N0, "T", "U", version=1, term=3)
    tables.join(0, N1, "T", name="broker-b")
    tables.join(0, N0, "U", version=2, term=3)
    assert tables.topics() == ["T", "U"]
    assert tables.addresses("T") == {"broker-b": {0: N1}}


def test_the_table_of_a_new_leader_is_taken_though_it_sent_that_version_as_follower(
    tables: Tables,
) -> None:
    tables.join(0, N0, "T", version=1, term=1)
    tables.join(2, N1, "T", "U", version=2, term=1)
    tables.join(0, N1, "T", "U", version=2, term=2)
    assert tables.topics() == ["T", "U"]


def test_the_table_of_a_leader_seen_anew_is_taken_though_its_version_is_known(
    tables: Tables,
) -> None:
    tables.join(0, N0, "T", version=1, term=1)
    tables.delete_topic("T")
    tables.join(0, N0, "T", version=1, term=1)
    assert tables.topics() == []
    tables.join(0, N1, "T", version=1, term=2)
    assert tables.topics() == ["T"]


def test_a_new_leader_takes_the_place_of_the_old(tables: Tables) -> None:
    tables.join(0, N0, term=1)
    tables.join(2, N1, term=1)
    tables.join(0, N1, term=2)
    assert tables.addresses() == {"broker-a": {0: N1}}


def test_a_leader_that_became_follower_leaves_the_name_without_one(tables: Tables) -> None:
    tables.join(0, N0, term=1)
    tables.join(1, N0, term=1)
    assert tables.addresses() == {"broker-a": {1: N0}}


def test_a_deposed_leader_is_refused(tables: Tables) -> None:
    tables.join(0, N1, "T", "U", version=2, term=7)
    with pytest.raises(StaleTermError, match="broker-a: a leader of term 7 is known, not 6"):
        tables.join(0, N0, "T", version=1, term=6)
    assert tables.addresses() == {"broker-a": {0: N1}}
    assert tables.topics() == ["T", "U"]


def test_a_deposed_leader_is_refused_after_the_new_one_has_gone(tables: Tables) -> None:
    tables.join(0, N1, term=7)
    tables.join(3, N2, term=7)
    tables.channel_closed(C1)
    with pytest.raises(StaleTermError):
        tables.join(0, N0, term=6)


def test_a_leader_without_a_term_is_refused_where_terms_are_known(tables: Tables) -> None:
    tables.join(0, N1, term=7)
    with pytest.raises(StaleTermError, match="term 7 is known, not 0"):
        tables.join(0, N0)


def test_a_follower_of_an_older_term_is_welcome(tables: Tables) -> None:
    tables.join(0, N1, term=7)
    tables.join(1, N0, term=6)
    assert tables.addresses() == {"broker-a": {0: N1, 1: N0}}


def test_a_term_is_forgotten_with_the_last_broker_of_the_name(tables: Tables) -> None:
    tables.join(0, N0, term=7)
    tables.channel_closed(C0)
    tables.join(0, N1, term=1)
    assert tables.addresses() == {"broker-a": {0: N1}}


def test_a_follower_learns_who_leads(tables: Tables) -> None:
    assert tables.join(1, N1) == ("", "")
    assert tables.join(0, N0, ha_address="10.0.0.1:10912") == ("", "")
    assert tables.join(1, N1) == ("10.0.0.1:10912", N0)


def test_a_closed_channel_drops_its_broker_and_its_topics(tables: Tables) -> None:
    tables.join(0, N0)
    assert tables.channel_closed(C0) == [N0]
    assert tables.route("T") is None
    assert tables.cluster_info() == {
        "brokerAddrTable": {},
        "clusterAddrTable": {},
        "grpcAddrTable": {},
        "httpAddrTable": {},
    }


def test_a_closed_channel_leaves_the_topics_to_the_other_replicas(tables: Tables) -> None:
    tables.join(0, N0)
    tables.join(2, N1)
    tables.channel_closed(C0)
    assert tables.addresses() == {"broker-a": {2: N1}}


def test_an_old_channel_that_closes_late_drops_nothing(tables: Tables) -> None:
    tables.join(0, N0, channel=1)
    tables.join(0, N0, channel=2)
    assert tables.channel_closed(1) == []
    assert tables.addresses() == {"broker-a": {0: N0}}


def test_what_an_earlier_connection_kept_until_now_changes_nothing(tables: Tables) -> None:
    tables.join(1, N1, channel=3)
    tables.join(0, N0, term=6, channel=2)
    with pytest.raises(EarlierConnectionError, match=f"{N0}: has registered over a later"):
        tables.join(2, N0, term=4, channel=1)
    tables.unregister("broker-a", N0, 1)
    assert tables.channel_closed(1) == []
    assert tables.addresses() == {"broker-a": {0: N0, 1: N1}}


def test_an_earlier_connection_is_heard_once_the_later_one_has_closed(tables: Tables) -> None:
    tables.join(0, N0, channel=2)
    tables.channel_closed(2)
    tables.join(0, N0, channel=1)
    assert tables.addresses() == {"broker-a": {0: N0}}


def test_a_silent_broker_is_dropped_after_120_seconds(tables: Tables) -> None:
    tables.join(0, N0)
    tables.time.now += EXPIRY_MS
    assert tables.expire() == []
    tables.time.now += 1
    assert tables.expire() == [(N0, C0)]
    assert tables.route("T") is None


def test_a_broker_may_ask_for_a_shorter_expiry(tables: Tables) -> None:
    tables.join(0, N0, expiry_ms=1000)
    tables.time.now += 1001
    assert tables.expire() == [(N0, C0)]


def test_registering_again_keeps_a_broker_alive(tables: Tables) -> None:
    tables.join(0, N0)
    tables.time.now += EXPIRY_MS
    tables.join(0, N0)
    tables.time.now += EXPIRY_MS
    assert tables.expire() == []


def test_an_unchanged_data_version_keeps_a_broker_alive(tables: Tables) -> None:
    tables.join(0, N0, version=3)
    tables.time.now += EXPIRY_MS
    assert tables.query_data_version(N0, DataVersion(counter=3)) == (False, DataVersion(0, 3))
    tables.time.now += EXPIRY_MS
    assert tables.expire() == []


def test_a_changed_data_version_is_no_sign_of_life(tables: Tables) -> None:
    tables.join(0, N0, version=3)
    tables.time.now += EXPIRY_MS
    assert tables.query_data_version(N0, DataVersion(counter=4)) == (True, DataVersion(0, 3))
    tables.time.now += 1
    assert tables.expire() == [(N0, C0)]


def test_an_unknown_broker_must_register_in_full(tables: Tables) -> None:
    assert tables.query_data_version(N0, DataVersion(counter=1)) == (True, DataVersion())


def test_a_follower_is_asked_for_its_own_version(tables: Tables) -> None:
    tables.join(0, N0, version=3)
    tables.join(1, N1, version=2)
    assert tables.query_data_version(N1, DataVersion(counter=2))[0] is False


def test_a_broker_that_says_goodbye_is_dropped(tables: Tables) -> None:
    tables.join(0, N0)
    tables.unregister("broker-a", N0, C0)
    assert tables.addresses() is None


def test_a_goodbye_under_another_name_is_ignored(tables: Tables) -> None:
    tables.join(0, N0)
    tables.unregister("broker-b", N0, C0)
    tables.unregister("broker-a", N1, C1)
    assert tables.addresses() == {"broker-a": {0: N0}}


def test_the_goodbye_of_a_deposed_leader_leaves_the_new_one(tables: Tables) -> None:
    tables.join(0, N0, term=1)
    tables.join(0, N1, term=2)
    tables.unregister("broker-a", N0, C0)
    assert tables.addresses() == {"broker-a": {0: N1}}


def test_an_address_under_a_new_name_leaves_the_old_one(tables: Tables) -> None:
    tables.join(0, N0)
    tables.join(0, N0, name="broker-b")
    assert tables.addresses() == {"broker-b": {0: N0}}


def test_a_name_that_moves_to_another_cluster_is_in_that_one_only(tables: Tables) -> None:
    tables.join(0, N0, cluster="c")
    tables.join(0, N0, cluster="d")
    assert tables.clusters() == {"d": ["broker-a"]}


def test_write_permission_is_wiped_and_given_back(tables: Tables) -> None:
    tables.join(0, N0, "T", "U")
    tables.join(0, N1, "T", name="broker-b")

    def perms() -> list[int]:
        route = tables.route("T")
        assert route is not None
        return [data["perm"] for data in route["queueDatas"]]

    assert tables.wipe_write_perm("broker-a") == 2
    assert perms() == [4, 6]
    tables.join(0, N0, "T", "U")
    assert perms() == [4, 6]
    assert tables.add_write_perm("broker-a") == 2
    assert perms() == [6, 6]
    assert tables.wipe_write_perm("nobody") == 0


def test_a_deleted_topic_has_no_route(tables: Tables) -> None:
    tables.join(0, N0, "T", "U")
    tables.delete_topic("T")
    tables.delete_topic("T")
    assert tables.topics() == ["U"]


def test_topics_are_told_by_cluster(tables: Tables) -> None:
    tables.join(0, N0, "T")
    tables.join(0, N1, "T", "U", name="broker-b", cluster="d")
    assert tables.topics_of_cluster("c") == ["T"]
    assert tables.topics_of_cluster("d") == ["T", "U"]
    assert tables.topics_of_cluster("e") == []


def test_the_cluster_info_names_all_brokers_and_their_http_addresses(tables: Tables) -> None:
    tables.join(0, N0, http_address="10.0.0.1:8080", grpc_address="10.0.0.1:10916")
    tables.join(2, N1)
    assert tables.cluster_info() == {
        "brokerAddrTable": {
            "broker-a": {"brokerAddrs": {0: N0, 2: N1}, "brokerName": "broker-a", "cluster": "c"}
        },
        "clusterAddrTable": {"c": ["broker-a"]},
        "grpcAddrTable": {N0: "10.0.0.1:10916"},
        "httpAddrTable": {N0: "10.0.0.1:8080"},
    }


def test_filter_servers_are_told_by_address(tables: Tables) -> None:
    tables.join(0, N0, filters=["10.0.0.1:7000"])
    tables.join(1, N1)
    route = tables.route("T")
    assert route is not None
    assert route["filterServerTable"] == {N0: ["10.0.0.1:7000"]}


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


AnySequence.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestAnySequence = AnySequence.TestCase


def test_a_name_of_which_nobody_is_left_is_remembered_with_who_was_there(tables: Tables) -> None:
    tables.join(1, N0)
    tables.join(0, N0, term=1)
    tables.join(0, N1, term=2)
    tables.join(3, N2)
    tables.unregister("broker-a", N0, C0)
    tables.channel_closed(1)
    for address in (N0, N1, N2):
        tables.unregister("broker-a", address, CHANNELS[address])
    assert tables.route("T") is None
    tables.time.now += 7_000
    assert tables.gone.as_json() == {
        "broker-a": {"cluster": "c", "goneMillis": 7_000, "members": {N0: 1, N1: 0, N2: 3}}
    }
    tables.leader()
    assert tables.gone.as_json() == {}


def test_a_member_that_moved_is_remembered_where_it_was_last(tables: Tables) -> None:
    tables.leader(N0)
    tables.join(2, N1)
    tables.join(2, N2)
    for address in (N0, N1, N2):
        tables.unregister("broker-a", address, CHANNELS[address])
    assert tables.gone.as_json()["broker-a"]["members"] == {N0: 0, N2: 2}


def test_a_member_that_was_removed_is_not_missed_when_the_others_are_gone(tables: Tables) -> None:
    tables.leader(N0, members=(N0, N1, N2))
    tables.join(2, N1)
    tables.join(3, N2)
    tables.leader(N0, members=(N0, N1))
    tables.join(3, N2)  # it runs on, as none of the group
    for address in (N2, N1, N0):
        tables.unregister("broker-a", address, CHANNELS[address])
    assert tables.gone.as_json()["broker-a"]["members"] == {N0: 0, N1: 2}


def test_who_is_gone_for_a_day_is_forgotten(tables: Tables) -> None:
    tables.leader(N0)
    tables.unregister("broker-a", N0, C0)
    tables.time.now += REMEMBERED_MS
    tables.expire()
    assert list(tables.gone.as_json()) == ["broker-a"]
    tables.time.now += 1
    tables.expire()
    assert tables.gone.as_json() == {}
