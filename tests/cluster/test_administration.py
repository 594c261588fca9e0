"""`topic`, `group` and `message` against a cluster that runs."""

from __future__ import annotations

import re

import pytest

from tests.cluster.running import RunningCluster


@pytest.fixture
def orders(cluster: RunningCluster) -> RunningCluster:
    """The cluster, with three messages in one queue of a topic."""
    cluster.dledger("topic", "create", "orders", "--queues", "1")
    cluster.dledger("produce", "orders", "--tag", "T", "--key", "K", stdin="one\ntwo\nthree\n")
    return cluster


def test_a_created_topic_is_listed_and_described(cluster: RunningCluster) -> None:
    created = cluster.ask("topic", "create", "orders", "--queues", "2", "-c", "DefaultCluster")

    assert created["queues"] == 2
    assert "orders" in cluster.ask("topic", "list")["topics"]
    assert cluster.ask("topic", "describe", "orders")["queues"] == [
        {"broker": "broker-a", "queue_id": 0, "min_offset": 0, "max_offset": 0},
        {"broker": "broker-a", "queue_id": 1, "min_offset": 0, "max_offset": 0},
    ]


def test_a_topic_can_be_created_on_one_broker_by_address(cluster: RunningCluster) -> None:
    leader = cluster.view().leader_node
    assert leader is not None
    assert leader.address is not None

    created = cluster.ask("topic", "create", "orders", "-b", leader.address)

    assert created["brokers"] == [leader.address]


def test_a_deleted_topic_is_gone_from_broker_and_nameserver(cluster: RunningCluster) -> None:
    cluster.dledger("topic", "create", "orders")

    cluster.dledger("topic", "delete", "orders")

    assert "orders" not in cluster.ask("topic", "list")["topics"]
    done = cluster.dledger("topic", "describe", "orders", code=1)
    assert "topic orders does not exist" in done.stderr


def test_a_bad_topic_name_is_bad_usage(cluster: RunningCluster) -> None:
    done = cluster.dledger("topic", "create", "a b", code=2)

    assert "a b" in done.stderr


def test_a_follower_refuses_to_create_a_topic(cluster: RunningCluster) -> None:
    follower = next(node for node in cluster.view().nodes if node.role == "follower")
    assert follower.address is not None

    done = cluster.dledger("topic", "create", "orders", "-b", follower.address, code=1)

    assert f"{follower.address} refused" in done.stderr


def test_an_unknown_cluster_is_answered_with_those_known(cluster: RunningCluster) -> None:
    done = cluster.dledger("topic", "create", "orders", "-c", "Elsewhere", code=1)

    assert "known are: DefaultCluster" in done.stderr


def test_describe_counts_the_messages_of_each_queue(orders: RunningCluster) -> None:
    [queue] = orders.ask("topic", "describe", "orders")["queues"]

    assert (queue["min_offset"], queue["max_offset"]) == (0, 3)


def test_a_message_is_found_by_the_id_of_its_acknowledgement(cluster: RunningCluster) -> None:
    cluster.dledger("topic", "create", "orders", "--queues", "1")
    acknowledged = cluster.ask("produce", "orders", stdin="hello\n")

    found = cluster.ask("message", "get", acknowledged["msg_id"])

    assert found["body"] == "hello"
    assert found["queue_offset"] == acknowledged["queue_offset"]


def test_a_message_is_found_by_its_unique_key(orders: RunningCluster) -> None:
    first = orders.ask("message", "query", "--topic", "orders", "--key", "K")[-1]

    found = orders.ask("message", "get", first["unique_key"], "--topic", "orders")

    assert found == first


def test_a_message_is_still_found_by_id_when_the_leader_that_stored_it_is_gone(
    cluster: RunningCluster,
) -> None:
    cluster.dledger("topic", "create", "orders", "--queues", "1")
    acknowledged = cluster.ask("produce", "orders", stdin="hello\n")
    cluster.kill(cluster.leader())
    cluster.leader()

    assert cluster.ask("message", "get", acknowledged["msg_id"])["body"] == "hello"


def test_messages_are_found_by_key(orders: RunningCluster) -> None:
    found = orders.ask("message", "query", "--topic", "orders", "--key", "K")

    assert sorted(message["body"] for message in found) == ["one", "three", "two"]
    assert {message["tags"] for message in found} == {"T"}


def test_an_unknown_key_is_a_failure_that_names_it(orders: RunningCluster) -> None:
    done = orders.dledger("message", "query", "--topic", "orders", "--key", "X", code=1)

    assert "topic orders has no message with key X" in done.stderr


def test_what_is_no_message_id_is_bad_usage(cluster: RunningCluster) -> None:
    done = cluster.dledger("message", "get", "zzz", code=2)

    assert "32 hexadecimal digits" in done.stderr


def consume(cluster: RunningCluster, count: int) -> list[str]:
    done = cluster.dledger(
        "consume", "orders", "--group", "g", "--from", "earliest", "--count", str(count)
    )
    return done.stdout.splitlines()


def test_a_group_that_consumed_is_listed_with_its_offsets(orders: RunningCluster) -> None:
    assert consume(orders, 3) == ["one", "two", "three"]

    assert "g" in orders.ask("group", "list")["groups"]
    described = orders.ask("group", "describe", "g")
    assert described["members"] == []
    [queue] = [queue for queue in described["queues"] if queue["topic"] == "orders"]
    assert (queue["offset"], queue["max_offset"], queue["lag"]) == (3, 3, 0)


def test_a_reset_group_consumes_again_from_where_it_was_set(orders: RunningCluster) -> None:
    consume(orders, 3)

    reset = orders.ask("group", "reset-offset", "g", "--topic", "orders", "--to", "earliest")

    assert reset["queues"] == [{"broker": "broker-a", "queue_id": 0, "offset": 0}]
    assert consume(orders, 3) == ["one", "two", "three"]


def test_a_deleted_group_is_not_listed_any_more(orders: RunningCluster) -> None:
    consume(orders, 3)

    orders.dledger("group", "delete", "g")

    assert "g" not in orders.ask("group", "list")["groups"]
    assert "no broker knows the group g" in orders.dledger("group", "describe", "g", code=1).stderr


def test_results_go_to_stdout_and_nothing_to_stderr(orders: RunningCluster) -> None:
    done = orders.dledger("topic", "describe", "orders")

    assert re.match(r"BROKER +QUEUE +MIN +MAX +MESSAGES\nbroker-a +0 +0 +3 +3\n", done.stdout)
    assert done.stderr == ""
