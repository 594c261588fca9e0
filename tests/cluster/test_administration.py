"""`topic` and `message` against a cluster that runs."""

from __future__ import annotations

import re

import pytest

from broker.cluster_admin.admin_client import AdminClient, document_of, run_admin
from broker.remoting.protocol.codes import RequestCode
from tests.cluster.running_cluster import RunningCluster

# --- topics


def test_a_created_topic_is_listed_and_described(
    shared_cluster: RunningCluster, topic: str
) -> None:
    created = shared_cluster.ask("topic", "create", topic, "--queues", "2", "-c", "DefaultCluster")

    assert created["queues"] == 2
    assert topic in shared_cluster.ask("topic", "list")["topics"]
    assert shared_cluster.ask("topic", "describe", topic)["queues"] == [
        {"broker": "broker-a", "queue_id": 0, "min_offset": 0, "max_offset": 0},
        {"broker": "broker-a", "queue_id": 1, "min_offset": 0, "max_offset": 0},
    ]


def test_a_topic_can_be_created_at_a_brokers_address(
    shared_cluster: RunningCluster, topic: str
) -> None:
    leader = shared_cluster.view().leader_node
    assert leader is not None
    assert leader.address is not None

    created = shared_cluster.ask("topic", "create", topic, "-b", leader.address)

    assert created["brokers"] == [leader.address]


def test_a_deleted_topic_is_gone_from_broker_and_nameserver(
    shared_cluster: RunningCluster, topic: str
) -> None:
    shared_cluster.dledger("topic", "create", topic)

    shared_cluster.dledger("topic", "delete", topic)

    assert topic not in shared_cluster.ask("topic", "list")["topics"]
    done = shared_cluster.dledger("topic", "describe", topic, code=1)
    assert f"topic {topic} does not exist" in done.stderr


def test_a_bad_topic_name_is_bad_usage(shared_cluster: RunningCluster) -> None:
    done = shared_cluster.dledger("topic", "create", "a b", code=2)

    assert "a b" in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_topic_can_be_created_at_a_followers_address(
    shared_cluster: RunningCluster, host: str
) -> None:
    topic = f"{host.replace('.', '-')}-of-a-follower"
    view = shared_cluster.view()
    follower = next(node for node in view.nodes if node.role == "follower")
    assert follower.address is not None
    assert view.leader_node is not None
    port = follower.address.rpartition(":")[2]

    created = shared_cluster.ask("topic", "create", topic, "-b", f"{host}:{port}")

    assert created["brokers"] == [view.leader_node.address]


@pytest.mark.parametrize("key", ["DefaultCluster", "broker-a", "TBW102"])
def test_java_s_create_topic_finds_the_brokers_by_its_key(
    shared_cluster: RunningCluster, key: str
) -> None:
    """What ``MQAdminImpl.createTopic(key, newTopic, queueNum)`` sends: 105 for the route of the
    key, and 17 to each master in it."""
    topic = f"made-by-{key}"

    async def create(admin: AdminClient) -> list[str]:
        route = await admin.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": key})
        brokers = document_of(route)["brokerDatas"]
        fields = {
            "topic": topic,
            "defaultTopic": key,
            "readQueueNums": "3",
            "writeQueueNums": "3",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        masters = [str(data["brokerAddrs"]["0"]) for data in brokers]
        for address in masters:
            await admin.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        return masters

    leader = shared_cluster.view().leader_node
    assert leader is not None
    assert run_admin(shared_cluster.namesrv, create) == [leader.address]
    assert len(shared_cluster.ask("topic", "describe", topic)["queues"]) == 3


def test_a_topic_that_is_there_keeps_all_but_the_number_of_its_queues(
    shared_cluster: RunningCluster, topic: str
) -> None:
    config = {
        "readQueueNums": 8,
        "writeQueueNums": 4,
        "perm": 4,
        "order": True,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
    }
    leader = shared_cluster.view().leader_node
    assert leader is not None
    address = str(leader.address)

    def ask(code: RequestCode, **fields: object) -> dict[str, object]:
        answer = run_admin(
            shared_cluster.namesrv,
            lambda admin: admin.ask(address, code, {"topic": topic, **fields}),
        )
        return {name: value for name, value in document_of(answer).items() if name in config}

    ask(RequestCode.UPDATE_AND_CREATE_TOPIC, defaultTopic="TBW102", **config)
    told = shared_cluster.dledger("topic", "create", topic).stdout
    assert told.startswith(f"{topic} already has 8 queues on")
    assert ask(RequestCode.GET_TOPIC_CONFIG) == config

    told = shared_cluster.dledger("topic", "create", topic, "--queues", "8").stdout
    assert told.startswith(f"changed {topic} to 8 queues on")
    assert ask(RequestCode.GET_TOPIC_CONFIG) == {**config, "writeQueueNums": 8}


def test_a_topic_that_is_there_keeps_its_queues_or_gets_more(
    shared_cluster: RunningCluster, topic: str
) -> None:
    def create(*arguments: str, code: int = 0) -> tuple[str, str]:
        done = shared_cluster.dledger("topic", "create", topic, *arguments, code=code)
        return done.stdout, done.stderr

    assert create("--queues", "4")[0].startswith(f"created {topic} with 4 queues on")
    assert create("--queues", "4")[0].startswith(f"{topic} already has 4 queues on")
    assert create("--queues", "6")[0].startswith(f"changed {topic} to 6 queues on")
    told = create("--queues", "5", code=1)[1]
    assert f"{topic} has 6 queues" in told
    assert "--fewer" in told
    assert len(shared_cluster.ask("topic", "describe", topic)["queues"]) == 6
    assert create("--queues", "5", "--fewer")[0].startswith(f"changed {topic} to 5 queues on")
    assert create()[0].startswith(f"{topic} already has 5 queues on")


def test_a_broker_is_not_taken_for_a_nameserver(shared_cluster: RunningCluster) -> None:
    leader = shared_cluster.view().leader_node
    assert leader is not None
    assert leader.address is not None
    for command in (["topic", "list"], ["produce", "orders"]):
        done = shared_cluster.dledger(*command, "--namesrv", leader.address, code=1)
        assert "is not a NameServer" in done.stderr
    assert leader.http is not None
    done = shared_cluster.dledger("status", "--namesrv", leader.http, code=1)
    assert "does not speak RocketMQ's protocol" in done.stderr


def test_an_unknown_cluster_is_answered_with_those_known(shared_cluster: RunningCluster) -> None:
    done = shared_cluster.dledger("topic", "create", "orders", "-c", "Elsewhere", code=1)

    assert "known are: DefaultCluster" in done.stderr


def test_describe_shows_the_settings_and_the_offsets_of_each_queue_as_tables(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    """It is where one looks for why sends are refused, or messages are gone."""
    shared_cluster.dledger("topic", "alter", stocked, "--perm", "r", "--retention", "24h")
    (leader, told), *_ = shared_cluster.ask("topic", "describe", stocked)["brokers"].items()
    assert (told["perm"], told["order"]) == (4, False)

    done = shared_cluster.dledger("topic", "describe", stocked)

    assert [line.split() for line in done.stdout.splitlines()] == [
        ["BROKER", "READ", "QUEUES", "WRITE", "QUEUES", "PERM", "ORDER", "TYPE", "RETENTION"],
        [leader, "1", "1", "r", "no", "UNSPECIFIED", "1d"],
        [],
        ["BROKER", "QUEUE", "MIN", "MAX", "MESSAGES"],
        ["broker-a", "0", "0", "3", "3"],
    ]
    assert done.stderr == ""


# --- messages


def test_a_message_is_found_by_the_id_of_its_acknowledgement(
    shared_cluster: RunningCluster, topic: str
) -> None:
    shared_cluster.dledger("topic", "create", topic, "--queues", "1")
    acknowledged = shared_cluster.ask("produce", topic, stdin="hello\n")

    found = shared_cluster.ask("message", "get", acknowledged["msg_id"])

    assert found["body"] == "hello"
    assert found["queue_offset"] == acknowledged["queue_offset"]


def test_a_message_is_still_found_by_id_when_the_node_that_stored_it_is_gone(
    cluster: RunningCluster,
) -> None:
    cluster.dledger("topic", "create", "orders", "--queues", "1")
    acknowledged = cluster.ask("produce", "orders", stdin="hello\n")
    cluster.kill(cluster.leader())
    cluster.leader()

    assert cluster.ask("message", "get", acknowledged["msg_id"])["body"] == "hello"


def test_a_message_is_found_by_its_unique_key(shared_cluster: RunningCluster, stocked: str) -> None:
    first = shared_cluster.ask("message", "query", "--topic", stocked, "--key", "K")[-1]

    told = shared_cluster.dledger("message", "get", first["unique_key"], "--topic", stocked).stdout
    assert re.search(r"^keys +K$", told, re.MULTILINE)
    assert re.search(r"^properties +UNIQ_KEY=\w+\n +TAGS=T\n +KEYS=K$", told, re.MULTILINE)
    found = shared_cluster.ask("message", "get", first["unique_key"], "--topic", stocked)

    assert found == first


def test_messages_are_found_by_key(shared_cluster: RunningCluster, stocked: str) -> None:
    found = shared_cluster.ask("message", "query", "--topic", stocked, "--key", "K")

    assert sorted(message["body"] for message in found) == ["one", "three", "two"]
    assert {message["tags"] for message in found} == {"T"}


def test_messages_of_a_key_are_found_by_the_time_they_were_stored(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    query = ("message", "query", "--topic", stocked, "--key", "K")
    stored = [found["store_timestamp"] for found in shared_cluster.ask(*query)]

    during = shared_cluster.ask(*query, "--since", str(min(stored)), "--until", str(max(stored)))
    before = shared_cluster.dledger(*query, "--until", str(min(stored) - 1000), code=1)
    noon = shared_cluster.dledger(*query, "--since", "noon", code=2)

    assert len(during) == 3
    assert f"topic {stocked} has no message with key K" in before.stderr
    assert "'noon' is not a time in milliseconds" in noon.stderr


def test_an_unknown_key_is_a_failure_that_names_it(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    done = shared_cluster.dledger("message", "query", "--topic", stocked, "--key", "X", code=1)

    assert f"topic {stocked} has no message with key X" in done.stderr


def test_an_unknown_message_id_is_a_failure_that_names_it(shared_cluster: RunningCluster) -> None:
    message_id = "7F000001000000010000000000FFFFFF"

    done = shared_cluster.dledger("message", "get", message_id, code=1)

    assert f"no message has the id {message_id}" in done.stderr


def test_what_is_no_message_id_is_bad_usage(shared_cluster: RunningCluster) -> None:
    done = shared_cluster.dledger("message", "get", "zzz", code=2)

    assert "32 hexadecimal digits" in done.stderr
