"""`produce` and `consume` against a cluster that runs, and one whose leaders are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, TypedDict

import pytest

from tests.cluster.running_cluster import COMMAND_SECONDS, RunningCluster, while_needed


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    name: str = request.node.name
    return re.sub(r"[^\w-]", "-", name.removeprefix("test_"))


class Command(TypedDict):
    """What ``subprocess`` needs to run a command against a cluster, in bytes."""

    args: list[str]
    env: dict[str, str]


def command(cluster: RunningCluster, *arguments: str) -> Command:
    return {
        "args": [sys.executable, "-m", "broker", *arguments],
        "env": {"NAMESRV_ADDR": cluster.namesrv},
    }


def run(cluster: RunningCluster, *arguments: str, stdin: bytes = b"", code: int = 0) -> bytes:
    return cluster.run(*arguments, stdin=stdin, code=code).stdout


def consume(cluster: RunningCluster, topic: str, *options: str, group: str = "g") -> list[bytes]:
    return run(cluster, "consume", topic, "--group", group, *options).split(b"\n")[:-1]


def test_lines_come_back_byte_for_byte(shared_cluster: RunningCluster, topic: str) -> None:
    lines = [b"plain", b"", b"\xff\xfe\x00not text", b"with \r inside", b"x" * 100_000, b"no end"]
    run(shared_cluster, "topic", "create", topic, "--queues", "1")

    run(shared_cluster, "produce", topic, stdin=b"\n".join(lines))

    assert consume(shared_cluster, topic, "--count", str(len(lines))) == lines


def test_an_acknowledgement_tells_where_each_message_is(
    shared_cluster: RunningCluster, topic: str
) -> None:
    acknowledged = shared_cluster.ask("produce", topic, "--tag", "T", stdin="one\ntwo\n")

    received = shared_cluster.ask("consume", topic, "--group", "g", "--count", "2")
    place = ("msg_id", "queue_id", "queue_offset")
    assert [[line[key] for key in place] for line in acknowledged] == [
        [line[key] for key in place] for line in received
    ]
    assert {line["broker"] for line in acknowledged} == {"broker-a"}


def test_a_message_is_printed_with_exactly_these_keys(
    shared_cluster: RunningCluster, topic: str
) -> None:
    shared_cluster.dledger("produce", topic, "--tag", "T", "--key", "a b", stdin="one\n")

    received = shared_cluster.ask("consume", topic, "--group", "g", "--count", "1")

    assert set(received) == {
        "topic",
        "queue_id",
        "queue_offset",
        "msg_id",
        "unique_key",
        "tags",
        "keys",
        "properties",
        "born_timestamp",
        "store_timestamp",
        "reconsume_times",
        "body",
    }
    assert (received["topic"], received["tags"], received["body"]) == (topic, "T", "one")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stream_that_is_stopped_tells_how_far_it_got(
    shared_cluster: RunningCluster, topic: str, number: signal.Signals
) -> None:
    with subprocess.Popen(
        **command(shared_cluster, "produce", topic, "--json"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as produce:
        assert produce.stdin is not None
        assert produce.stdout is not None
        try:
            produce.stdin.write(b"one\n")
            produce.stdin.flush()
            assert b"msg_id" in produce.stdout.readline()
            produce.send_signal(number)
            produce.wait(COMMAND_SECONDS)  # before its input ends
            _, told = produce.communicate()
        finally:
            produce.kill()
    assert produce.returncode == 128 + number
    assert told == b"dledger produce: 1 of 1 lines are acknowledged\n"


@pytest.mark.parametrize("arguments", [("produce", "--json"), ("consume", "--group", "g")])
def test_messages_for_whose_lines_there_is_no_room_are_a_failure_told_in_one_line(
    shared_cluster: RunningCluster, topic: str, arguments: tuple[str, ...]
) -> None:
    run(shared_cluster, "produce", topic, stdin=b"one\n")
    name, *options = arguments
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            **command(shared_cluster, name, topic, *options),
            input=b"two\n",
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"cannot write what it prints: No space left on device" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])  # a write may then take a part of the bytes
def test_no_message_is_acknowledged_that_was_not_printed(
    shared_cluster: RunningCluster, topic: str, unbuffered: str
) -> None:
    lines = [b"%03d" % n * 300 for n in range(200)]
    run(shared_cluster, "topic", "create", topic, "--queues", "1")
    run(shared_cluster, "produce", topic, stdin=b"\n".join(lines))
    wanted = command(shared_cluster, "consume", topic, "--group", "g", "--count", "200")
    with tempfile.TemporaryFile() as file:
        done = subprocess.run(
            ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *wanted["args"]],
            env={**wanted["env"], "PYTHONUNBUFFERED": unbuffered},
            stdout=file,
            stderr=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"dledger consume: cannot write what it prints: File too large\n"
    assert consume(shared_cluster, topic, "--count", "200") == lines


def test_a_reader_that_has_enough_ends_consume_well(
    shared_cluster: RunningCluster, topic: str
) -> None:
    run(shared_cluster, "produce", topic, stdin=b"one\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        **command(shared_cluster, "consume", topic, "--group", "g"),
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_consuming_what_is_not_there_fails_and_consuming_nothing_does_not(
    shared_cluster: RunningCluster, topic: str
) -> None:
    run(shared_cluster, "consume", topic, "--group", "g", "--timeout", "5", code=1)
    run(shared_cluster, "topic", "create", topic)
    assert consume(shared_cluster, topic, "--timeout", "5", "--count", "3") == []


def test_a_group_goes_on_where_it_ended(shared_cluster: RunningCluster, topic: str) -> None:
    run(shared_cluster, "topic", "create", topic, "--queues", "1")
    run(shared_cluster, "produce", topic, stdin=b"1\n2\n3\n")

    assert consume(shared_cluster, topic, "--count", "2") == [b"1", b"2"]
    assert consume(shared_cluster, topic, "--count", "1") == [b"3"]
    assert consume(shared_cluster, topic, "--timeout", "5") == []


def test_only_the_tags_asked_for_are_printed(shared_cluster: RunningCluster, topic: str) -> None:
    run(shared_cluster, "topic", "create", topic, "--queues", "1")
    for tag in ("A", "B", "C"):
        run(shared_cluster, "produce", topic, "--tag", tag, stdin=tag.encode())

    assert consume(shared_cluster, topic, "--tags", "A||C", "--count", "2") == [b"A", b"C"]
    selector = ("--sql", "TAGS <> 'B'", "--count", "2")
    assert consume(shared_cluster, topic, *selector, group="sql") == [b"A", b"C"]


def test_broadcast_members_each_get_everything(shared_cluster: RunningCluster, topic: str) -> None:
    run(shared_cluster, "topic", "create", topic, "--queues", "2")
    run(shared_cluster, "produce", topic, stdin=b"1\n2\n")

    for _ in range(2):
        got = consume(shared_cluster, topic, "--broadcast", "--count", "2", group="all")
        assert sorted(got) == [b"1", b"2"]


def test_lines_with_the_same_field_stay_in_order(
    shared_cluster: RunningCluster, topic: str
) -> None:
    lines = [json.dumps({"customer": number % 7, "n": number}) for number in range(700)]
    run(shared_cluster, "topic", "create", topic, "--queues", "4")

    shared_cluster.dledger("produce", topic, "--order-by", "customer", stdin="\n".join(lines))

    received = shared_cluster.ask("consume", topic, "--group", "g", "--count", "700")
    numbers: dict[int, list[int]] = defaultdict(list)
    queues: dict[int, set[int]] = defaultdict(set)
    for message in received:
        line = json.loads(message["body"])
        numbers[line["customer"]].append(line["n"])
        queues[line["customer"]].add(message["queue_id"])
    assert numbers == {customer: list(range(customer, 700, 7)) for customer in range(7)}
    assert all(len(each) == 1 for each in queues.values())


@pytest.mark.parametrize(
    ("stdin", "complaint"),
    [
        ("{}\n", "line 1 is not a JSON object with the field f"),
        ('{"f":1}\nx', "line 2 is not JSON"),
    ],
)
def test_a_line_without_the_order_field_is_named(
    shared_cluster: RunningCluster, stdin: str, complaint: str
) -> None:
    done = shared_cluster.dledger("produce", "order_field", "--order-by", "f", stdin=stdin, code=1)
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_line_that_is_too_long_is_named_and_those_before_it_are_sent(
    shared_cluster: RunningCluster, topic: str
) -> None:
    done = subprocess.run(
        **command(shared_cluster, "produce", topic),
        input=b"one\n" + b"x" * (5 << 20),
        capture_output=True,
        check=False,
        timeout=COMMAND_SECONDS,
    )
    assert done.returncode == 1
    assert b"1 of 1 lines are acknowledged, then: line 2 is longer" in done.stderr
    assert consume(shared_cluster, topic, "--count", "1") == [b"one"]


def test_a_reader_that_leaves_early_makes_produce_fail(
    shared_cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"x\n" * 5000)  # a file, so that all of them are read at once
    with lines.open("rb") as stdin:
        started = subprocess.Popen(
            **command(shared_cluster, "produce", topic, "--json", "--batch", "1"),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    with while_needed(started) as producer:
        assert producer.stdout is not None
        producer.stdout.close()
        _, complaint = producer.communicate(timeout=COMMAND_SECONDS)
    assert producer.returncode == 1
    assert b"of 5000 lines are acknowledged, then: the output is closed" in complaint


def test_a_consumer_waits_for_a_topic_that_is_not_there_yet(
    shared_cluster: RunningCluster, topic: str
) -> None:
    started = subprocess.Popen(
        **command(shared_cluster, "consume", topic, "--group", "g", "--count", "1"),
        stdout=subprocess.PIPE,
    )
    with while_needed(started) as consumer:
        run(shared_cluster, "produce", topic, stdin=b"at last\n")
        assert consumer.communicate(timeout=COMMAND_SECONDS)[0] == b"at last\n"


def test_lines_survive_leaders_that_are_killed_in_their_midst(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    parts, part_lines = 6, 10_000
    total = parts * part_lines
    run(cluster, "topic", "create", "lines", "--queues", "8")
    printed = tmp_path / "printed"
    with (
        printed.open("wb") as stdout,
        while_needed(
            subprocess.Popen(
                **command(
                    cluster, "consume", "lines", "--group", "g", "--count", str(total), "--json"
                ),
                stdout=stdout,
            )
        ) as consumer,
        while_needed(
            subprocess.Popen(**command(cluster, "produce", "lines"), stdin=subprocess.PIPE)
        ) as producer,
    ):
        assert producer.stdin is not None
        killed = ""
        for part in range(parts):
            first = part * part_lines
            producer.stdin.write(b"".join(b"%d\n" % n for n in range(first, first + part_lines)))
            producer.stdin.flush()
            if part in {1, 3}:
                killed = cluster.leader()
                cluster.kill(killed)
            elif part in {2, 4}:
                cluster.start(killed)
        producer.stdin.close()
        assert producer.wait(COMMAND_SECONDS) == 0
        assert consumer.wait(COMMAND_SECONDS) == 0
    messages = [json.loads(line) for line in printed.read_bytes().splitlines()]
    assert sorted(int(message["body"]) for message in messages) == list(range(total))
    queues: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for message in messages:
        queues[message["queue_id"]].append(message)
    for queue in queues.values():
        assert [message["queue_offset"] for message in queue] == list(range(len(queue)))
        numbers = [int(message["body"]) for message in queue]
        assert numbers == sorted(numbers)


def test_bench_measures_a_running_cluster(shared_cluster: RunningCluster) -> None:
    report = shared_cluster.ask(
        "bench",
        "produce",
        "--namesrv",
        shared_cluster.namesrv,
        *("--batch", "16", "--inflight", "2", "--size", "100", "--seconds", "0.2", "--rounds", "2"),
    )
    (workload,) = report["cluster"]["workloads"]
    assert report["cluster"]["nodes"] == 3
    assert workload["name"] == "batches of 16, 2 in flight"
    assert workload["messages_per_second"] > 0
    assert workload["p99_ms"] >= workload["p50_ms"] > 0
    assert workload["server_cpu_seconds_per_100k"] > 0
    assert not any("bench" in name for name in shared_cluster.ask("topic", "list")["topics"])


def test_a_group_can_begin_at_a_time(shared_cluster: RunningCluster, topic: str) -> None:
    run(shared_cluster, "topic", "create", topic, "--queues", "1")
    run(shared_cluster, "produce", topic, stdin=b"old\n")
    first = shared_cluster.ask("consume", topic, "--group", "g", "--count", "1")
    time.sleep(0.01)  # timestamps are milliseconds
    run(shared_cluster, "produce", topic, stdin=b"new\n")

    moment = str(first["store_timestamp"] + 5)
    late = consume(shared_cluster, topic, "--from", moment, "--count", "1", group="late")
    assert late == [b"new"]


def test_a_group_that_was_moved_stays_so_when_the_leader_dies(cluster: RunningCluster) -> None:
    cluster.dledger("topic", "create", "moved", "--queues", "1")
    cluster.dledger("produce", "moved", stdin="one\ntwo\n")
    read = ("consume", "moved", "--group", "movers", "--from", "earliest", "--count", "2")
    assert cluster.dledger(*read).stdout.splitlines() == ["one", "two"]

    cluster.dledger("group", "reset-offset", "movers", "--topic", "moved", "--to", "earliest")
    cluster.kill(cluster.leader())

    assert cluster.dledger(*read).stdout.splitlines() == ["one", "two"]
