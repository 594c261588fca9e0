"""Commands that look at topics and dead letters, and change settings, against a running cluster."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest

from broker.client import Consumer, ReceivedMessage
from tests.cluster.running_cluster import RunningCluster, while_needed


def looked(cluster: RunningCluster, topic: str, *options: str) -> list[str]:
    return cluster.dledger("consume", topic, *options).stdout.splitlines()


def test_a_look_shows_messages_and_leaves_no_trace(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    before = shared_cluster.ask("group", "list")["groups"]
    assert looked(shared_cluster, stocked) == ["one", "two", "three"]
    assert looked(shared_cluster, stocked) == ["one", "two", "three"]
    assert looked(shared_cluster, stocked, "--last", "2") == ["two", "three"]
    assert looked(shared_cluster, stocked, "--offset", "1", "--count", "1") == ["two"]
    assert looked(shared_cluster, stocked, "--queue", "0", "--tags", "T || U") == [
        *("one", "two", "three")
    ]
    assert looked(shared_cluster, stocked, "--tags", "U") == []
    assert looked(shared_cluster, stocked, "--sql", "KEYS = 'K'", "--count", "2") == ["one", "two"]
    assert looked(shared_cluster, stocked, "--since", "1h", "--until", "+1h") == [
        *("one", "two", "three")
    ]
    assert looked(shared_cluster, stocked, "--until", "1h") == []
    assert looked(shared_cluster, stocked, "--from", "latest") == []
    assert shared_cluster.ask("group", "list")["groups"] == before


def test_a_look_shows_the_queues_of_a_topic_in_the_order_of_time(
    shared_cluster: RunningCluster, topic: str
) -> None:
    shared_cluster.dledger("topic", "create", topic, "--queues", "4")
    for number in range(8):
        queue = str(number * 3 % 4)
        shared_cluster.dledger("produce", topic, "--queue", queue, stdin=f"{number}\n")
    numbers = [str(number) for number in range(8)]
    assert looked(shared_cluster, topic) == numbers
    assert looked(shared_cluster, topic, "--last", "3") == numbers[-3:]
    assert looked(shared_cluster, topic, "--format", "%q:%s ") == [
        " ".join(f"{number * 3 % 4}:{number}" for number in range(8)) + " "
    ]


def test_a_topic_is_followed_also_to_its_next_leader(
    shared_cluster: RunningCluster, topic: str
) -> None:
    shared_cluster.dledger("topic", "create", topic, "--queues", "2")
    with while_needed(shared_cluster.popen("consume", topic, "--follow", "--count", "2")) as seen:
        assert seen.stdout is not None
        shared_cluster.dledger("produce", topic, stdin="before\n")
        assert seen.stdout.readline() == "before\n"
        leader = shared_cluster.leader()
        other = next(node for node in shared_cluster.nodes if node != leader)
        shared_cluster.dledger("leader", "transfer", shared_cluster.group, other)
        shared_cluster.dledger("produce", topic, stdin="after\n")
        assert seen.stdout.readline() == "after\n"
        assert seen.wait(30) == 0


def test_what_is_produced_has_the_properties_keys_and_time_that_were_asked_for(
    shared_cluster: RunningCluster, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared_cluster.dledger("topic", "create", topic, "--queues", "1")
    line = json.dumps({"id": "k7", "customer": "c1"})
    options = ("--key-from", "id", "--order-by", "customer", "--property", "region=eu=west")
    shared_cluster.dledger("produce", topic, *options, stdin=f"{line}\n")
    path = tmp_path_factory.mktemp("files") / "letter"
    path.write_bytes(b"two\nlines\xff")
    shared_cluster.dledger("produce", topic, "--file", str(path))
    began = time.time()
    shared_cluster.dledger("produce", topic, "--deliver-at", "2s", stdin="later\n")

    first, second = shared_cluster.ask("consume", topic, "--last", "2")
    assert (first["keys"], first["properties"]["region"]) == (["k7"], "eu=west")
    assert second["body_base64"] == "dHdvCmxpbmVz/w=="
    assert first == shared_cluster.ask("message", "query", "--topic", topic, "--key", "k7")
    size = ("--last", "1", "--format", "%S\\n")
    while looked(shared_cluster, topic, *size) != [str(len("later"))]:
        assert time.time() < began + 30
    assert time.time() >= began + 1.9


def test_the_settings_of_a_topic_change_one_by_one(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    def settings(*options: str) -> tuple[int, int, bool]:
        brokers = shared_cluster.ask("topic", "alter", stocked, *options)["brokers"]
        (config,) = brokers.values()
        return config["writeQueueNums"], config["perm"], config["order"]

    assert settings("--queues", "3") == (3, 6, False)
    assert settings("--perm", "r") == (3, 4, False)
    assert settings("--order") == (3, 4, True)
    refused = shared_cluster.dledger(
        "produce", stocked, "--timeout", "5", stdin="no\n", code=1
    ).stderr
    assert "no queue with the permission" in refused
    assert settings("--perm", "rw", "--no-order") == (3, 6, False)
    assert (
        "--fewer"
        in shared_cluster.dledger("topic", "alter", stocked, "--queues", "1", code=1).stderr
    )
    assert settings("--queues", "1", "--fewer") == (1, 6, False)
    assert looked(shared_cluster, stocked) == ["one", "two", "three"]


def test_the_settings_of_a_group_change_one_by_one(shared_cluster: RunningCluster) -> None:
    def settings(word: str, *options: str) -> tuple[int, bool]:
        brokers = shared_cluster.ask("group", word, "bookkeepers", *options)["brokers"]
        (config,) = brokers.values()
        return config["retryMaxTimes"], config["consumeEnable"]

    missing = shared_cluster.dledger("group", "alter", "bookkeepers", "--no-consume", code=1)
    assert "no broker knows the group bookkeepers" in missing.stderr
    assert settings("create", "--retry-max", "3") == (3, True)
    assert settings("alter", "--no-consume") == (3, False)
    assert settings("alter", "--retry-max", "5") == (5, False)
    assert (
        "there is a group"
        in shared_cluster.dledger("group", "create", "bookkeepers", code=1).stderr
    )


def test_a_reset_is_foreseen_without_a_move(shared_cluster: RunningCluster, stocked: str) -> None:
    shared_cluster.dledger("consume", stocked, "--group", "careful", "--count", "2")
    reset = ("group", "reset-offset", "careful", "--topic", stocked, "--to", "latest")
    place = {"broker": "broker-a", "queue_id": 0, "offset": 3, "was": 2}
    assert shared_cluster.ask(*reset, "--dry-run")["queues"] == [place]
    table = shared_cluster.dledger(*reset, "--dry-run").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["BROKER", "QUEUE", "OFFSET", "WAS"],
        ["broker-a", "0", "3", "2"],
    ]
    (queue,) = shared_cluster.ask("group", "describe", "careful")["queues"]
    assert queue["offset"] == 2
    assert shared_cluster.ask(*reset)["queues"] == [place]
    (queue,) = shared_cluster.ask("group", "describe", "careful")["queues"]
    assert queue["offset"] == 3


def test_dead_letters_are_shown_sent_again_to_their_group_and_purged(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    group = "givers-up"
    asyncio.run(give_up(shared_cluster.namesrv, stocked, group))
    listed = shared_cluster.ask("dlq", "list")["groups"]
    assert {"group": group, "topic": f"%DLQ%{group}", "messages": 3} in listed
    shown = shared_cluster.ask("dlq", "show", group)
    assert [each["body"] for each in shown] == ["one", "two", "three"]
    assert looked(shared_cluster, f"%DLQ%{group}", "--last", "1") == ["three"]

    chosen = ("--id", shown[1]["msg_id"])
    foreseen = shared_cluster.ask("dlq", "resend", group, "--dry-run", *chosen)
    assert foreseen["messages"] == [shown[1]["msg_id"]]
    shared_cluster.dledger("dlq", "resend", group, *chosen)
    again = asyncio.run(retried(shared_cluster.namesrv, stocked, group))
    assert (again.body, again.properties["RETRY_TOPIC"]) == (b"two", stocked)
    assert again.unique_key not in ("", shown[1]["unique_key"])

    shared_cluster.dledger("dlq", "purge", group)
    assert "has no dead letters" in shared_cluster.dledger("dlq", "show", group, code=1).stderr


async def give_up(namesrv: str, topic: str, group: str) -> None:
    """Lets the group have each message of the topic, and try none of them again."""
    async with Consumer(namesrv, group, {topic: "*"}, start_from="earliest") as consumer:
        count = 0
        while count < 3:
            batch = await consumer.next_batch()
            for message in batch:
                await consumer.send_back(message, -1)
                count += 1
            consumer.acknowledge(batch.queue, batch.next_offset)
        await consumer.commit()


async def retried(namesrv: str, topic: str, group: str) -> ReceivedMessage:
    """The next message that the group gets."""
    async with Consumer(namesrv, group, {topic: "*"}, retries=True) as consumer:
        (message,) = await consumer.next_batch()
        return message


def test_the_status_is_shown_again_and_again(shared_cluster: RunningCluster) -> None:
    with while_needed(shared_cluster.popen("status", "--watch", "0.1", "--json")) as watching:
        assert watching.stdout is not None
        for _ in range(3):
            assert json.loads(watching.stdout.readline())["groups"][0]["group"] == "broker-a"


def test_what_clients_told_of_a_message_is_shown_by_time(shared_cluster: RunningCluster) -> None:
    message_id = "7F0000010A5C2B1D4E8F0000010203AB"
    sent = ("Pub", "1700000000000", "r", "makers", "orders", message_id, "", "k", "a:1", "5", "7")
    begun = ("SubBefore", "1700000000100", "r", "readers", "R1", message_id, "0", "k")
    ended = ("SubAfter", "R1", message_id, "30", "true", "k", "0", "1700000000130", "readers")
    for event in (ended, begun, sent):
        body = "\x01".join(event) + "\x02\n"
        shared_cluster.dledger("produce", "RMQ_SYS_TRACE_TOPIC", "--key", message_id, stdin=body)
    told = shared_cluster.ask("message", "trace", message_id)
    assert [event["kind"] for event in told["events"]] == ["Pub", "SubBefore", "SubAfter"]
    lines = shared_cluster.dledger("message", "trace", message_id).stdout.splitlines()
    assert lines[1].split() == ["2023-11-14T22:13:20.000+00:00", "sent", "makers", "7", "-", "-"]
    other = shared_cluster.dledger("message", "trace", "0" * 32, code=1)
    assert "no client has sent a trace of a message" in other.stderr


def test_a_topic_keeps_its_messages_no_longer_than_it_says_on_all_nodes(
    shared_cluster: RunningCluster, stocked: str
) -> None:
    def minima() -> set[int]:
        return {each["min_offset"] for each in described()["queues"]}

    def described() -> dict[str, Any]:
        found: dict[str, Any] = shared_cluster.ask("topic", "describe", stocked)
        return found

    assert minima() == {0}
    refused = shared_cluster.dledger(
        "topic", "alter", stocked, "--retention", "1000d", code=1
    ).stderr
    assert "the log of all topics is kept for" in refused
    shared_cluster.dledger("topic", "alter", stocked, "--retention", "2s")
    assert {*described()["retention_ms"].values()} == {2000}
    (listed,) = [
        each
        for each in shared_cluster.ask("topic", "list", "--long")["topics"]
        if each["topicName"] == stocked
    ]
    assert (listed["retention.ms"], listed["broker"]) == (2000, shared_cluster.group)
    table = shared_cluster.dledger("topic", "list", "--long").stdout
    assert re.search(rf"^{stocked} .* 2s$", table, re.MULTILINE)
    began = time.time()
    while minima() == {0}:
        assert time.time() < began + 60
        time.sleep(0.5)
    assert looked(shared_cluster, stocked) == []
    leader = shared_cluster.leader()
    other = next(node for node in shared_cluster.nodes if node != leader)
    shared_cluster.dledger("leader", "transfer", shared_cluster.group, other)
    assert minima() != {0}
    shared_cluster.dledger("topic", "alter", stocked, "--retention", "unset")
    assert {*described()["retention_ms"].values()} == {None}
