"""The rules of the NameServer's tables, one by one, and what must hold after any of them."""

from __future__ import annotations

import pytest

from broker.nameserver.departed_brokers import REMEMBERED_MS
from broker.nameserver.registration_checks import EarlierConnectionError, StaleTermError
from broker.nameserver.registrations import EXPIRY_MS
from broker.remoting.protocol.register_broker_body import DataVersion
from tests.broker.nameserver.route_tables import C0, C1, CHANNELS, N0, N1, N2, Tables


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
    with pytest.raises(EarlierConnectionError, match=f"{N0}: is registered over a later"):
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
