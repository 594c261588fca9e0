"""`group` against a cluster that runs."""

from __future__ import annotations

from broker.cluster_admin.admin_client import run_admin
from broker.remoting.protocol.codes import RequestCode
from tests.cluster.running_cluster import RunningCluster, while_needed
from tests.cluster.stocked_topics import consume


def test_a_group_that_consumed_is_listed_with_its_offsets(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    assert consume(shared_cluster, stocked, "readers") == ["one", "two", "three"]

    assert "readers" in shared_cluster.ask("group", "list")["groups"]
    described = shared_cluster.ask("group", "describe", "readers")
    assert described["members"] == []
    [queue] = [queue for queue in described["queues"] if queue["topic"] == stocked]
    assert (queue["offset"], queue["max_offset"], queue["lag"]) == (3, 3, 0)


def test_a_group_is_described_without_a_topic_that_was_deleted(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    consume(shared_cluster, stocked, "orphans")
    shared_cluster.dledger("topic", "delete", stocked)

    described = shared_cluster.ask("group", "describe", "orphans")

    assert stocked not in {queue["topic"] for queue in described["queues"]}


def test_a_group_that_consumes_begins_again_where_it_was_set(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    with while_needed(shared_cluster.popen("consume", stocked, "--group", "busy")) as consumer:
        assert consumer.stdout is not None
        assert [consumer.stdout.readline() for _ in range(3)] == ["one\n", "two\n", "three\n"]

        reset = shared_cluster.ask(
            "group", "reset-offset", "busy", "--topic", stocked, "--to", "earliest"
        )

        assert [consumer.stdout.readline() for _ in range(3)] == ["one\n", "two\n", "three\n"]
        consumer.terminate()
        consumer.communicate()
    (moved,) = reset["queues"]
    assert (moved["broker"], moved["queue_id"], moved["offset"]) == ("broker-a", 0, 0)


def test_a_reset_group_consumes_again_from_where_it_was_set(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    consume(shared_cluster, stocked, "repeaters")

    reset = shared_cluster.ask(
        "group", "reset-offset", "repeaters", "--topic", stocked, "--to", "earliest"
    )

    assert reset["queues"] == [{"broker": "broker-a", "queue_id": 0, "offset": 0, "was": 3}]
    assert consume(shared_cluster, stocked, "repeaters") == ["one", "two", "three"]


def test_a_group_can_be_moved_to_a_time(shared_cluster: RunningCluster, stocked: str) -> None:
    [*_, last] = shared_cluster.ask("message", "query", "--topic", stocked, "--key", "K")
    time_ms = str(last["store_timestamp"])

    reset = shared_cluster.ask(
        "group", "reset-offset", "travellers", "--topic", stocked, "--to", time_ms, "--create"
    )

    assert reset["queues"][0]["offset"] == last["queue_offset"]
    assert reset["queues"][0]["was"] is None


def test_a_deleted_group_is_not_listed_any_more(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    consume(shared_cluster, stocked, "leavers")

    shared_cluster.dledger("group", "delete", "leavers")

    assert "leavers" not in shared_cluster.ask("group", "list")["groups"]
    done = shared_cluster.dledger("group", "describe", "leavers", code=1)
    assert "no broker knows the group leavers" in done.stderr


def test_a_misspelled_group_is_not_made_by_a_reset(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    consume(shared_cluster, stocked, "spelled")
    reset = ("group", "reset-offset", "speled", "--topic", stocked, "--to", "latest")

    done = shared_cluster.dledger(*reset, code=1)

    assert "no broker knows the group speled; is it spelled?" in done.stderr
    assert "speled" not in shared_cluster.ask("group", "list")["groups"]
    shared_cluster.dledger(*reset, "--create")
    assert "speled" in shared_cluster.ask("group", "list")["groups"]
    shared_cluster.dledger("group", "delete", "speled")
    assert "speled" not in shared_cluster.ask("group", "list")["groups"]


def test_offsets_without_a_group_are_listed_and_deleted(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    leader = shared_cluster.view().leader_node
    assert leader is not None
    ext = {"consumerGroup": "strays", "topic": stocked, "queueId": 0, "commitOffset": 1}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    run_admin(shared_cluster.namesrv, lambda admin: admin.ask(str(leader.address), code, ext))

    assert "strays" in shared_cluster.ask("group", "list")["groups"]
    assert shared_cluster.ask("group", "describe", "strays")["lag"] == 2
    shared_cluster.dledger("group", "delete", "strays")
    assert "strays" not in shared_cluster.ask("group", "list")["groups"]


def test_a_deleted_group_leaves_its_dead_letters_alone(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    consume(shared_cluster, stocked, "losers")
    shared_cluster.dledger("topic", "create", "%DLQ%losers", "--queues", "1")
    assert "%RETRY%losers" in shared_cluster.ask("topic", "list")["topics"]

    done = shared_cluster.dledger("group", "delete", "losers")

    assert "its dead letters stay" in done.stderr
    topics = shared_cluster.ask("topic", "list")["topics"]
    assert [topic for topic in topics if topic.endswith("%losers")] == ["%DLQ%losers"]
    shared_cluster.dledger("topic", "delete", "%DLQ%losers")
