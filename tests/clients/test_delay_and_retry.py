"""Delay and retry, seen by clients written by others, with a leader killed amid it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from store.message.scheduled_topics import DELAYS_MS
from tests.clients.test_real_clients import (
    check_replicas,
    cpp_command,
    lines_of,
    needs_linux_wheel,
    node_command,
    running,
)
from tests.cluster.running_cluster import RunningCluster

MESSAGES = 1000
FAILURES = 20
"""The leader is killed when they are all sent back, for what a client cannot send back it tries
again by itself."""

LEVEL = 2
DELAY_MS = DELAYS_MS[LEVEL - 1]
RETRY_MS = DELAYS_MS[2]
USUALLY_LATE_MS = 100
LATE_MS = 15_000
"""What is due while nobody leads is delivered by the next leader."""


def test_delayed_messages_and_retries_come_once_although_the_leader_is_killed(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster.dledger("topic", "create", "letters", "--queues", "4")
    leader = cluster.leader()
    consume = node_command(
        "consume-failing", cluster.namesrv, "letters", "readers", MESSAGES, FAILURES
    )
    received: list[dict[str, Any]] = []
    failed, killed = 0, False
    with running(consume, tmp_path) as arrivals:
        delay = node_command(
            "produce-delayed", cluster.namesrv, "letters", MESSAGES, LEVEL, DELAY_MS
        )
        acks = lines_of(delay, tmp_path)
        for line in arrivals:
            # It consumes one after the other: the next line says that the last was sent back.
            sent_back = failed == FAILURES
            received.append(json.loads(line))
            failed += received[-1]["failed"]
            if sent_back and len(received) > MESSAGES // 4 and not killed:
                cluster.kill(leader)
                killed = True
    cluster.start(leader)
    cluster.wait_until_level()
    cluster.stop()

    attempts = {ack["n"]: ack["attempts"] for ack in acks}
    places = check_once([got for got in received if not got["again"]], range(MESSAGES), attempts)
    sent_once = [ack for ack in acks if ack["attempts"] == 1]
    assert len(sent_once) > MESSAGES // 2
    late_ms = []
    for ack in sent_once:
        stored_ms = places[ack["n"]]["stored_ms"]
        assert DELAY_MS <= stored_ms - ack["sent_ms"] <= DELAY_MS + LATE_MS
        late_ms.append(stored_ms - ack["acked_ms"] - DELAY_MS)
    assert min(late_ms) <= USUALLY_LATE_MS
    again = check_once([got for got in received if got["again"]], range(FAILURES), attempts)
    for n, got in again.items():
        assert got["reconsume_times"] == 1
        assert got["stored_ms"] - places[n]["stored_ms"] >= RETRY_MS
    check_replicas(cluster, 2 * MESSAGES)


def check_once(
    received: list[dict[str, Any]],
    expected: Sequence[int],
    attempts: Mapping[int, int] | None = None,
) -> dict[int, dict[str, Any]]:
    """Each number lies in one place, or in as many as there were attempts to send it. A client may
    be handed that more than once: a consumer goes on from its last commit."""
    attempts = attempts or dict.fromkeys(expected, 1)
    places: dict[int, dict[tuple[int, int], dict[str, Any]]] = defaultdict(dict)
    for got in received:
        places[got["n"]][got["queue_id"], got["queue_offset"]] = got
    assert sorted(places) == list(expected)
    assert not {n: found for n, found in places.items() if len(found) > attempts[n]}
    return {n: next(iter(found.values())) for n, found in places.items()}


@needs_linux_wheel
def test_the_cpp_client_delays_and_asks_for_messages_again(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    count = 20
    cluster.dledger("topic", "create", "letters", "--queues", "4")
    # The retry topic is there when the client asks for its route: else it asks again after 30 s.
    while "%RETRY%readers" not in cluster.ask("topic", "list")["topics"]:
        cluster.dledger("consume", "letters", "--group", "readers", "--timeout", "2")

    produce = cpp_command("produce-delayed", cluster.namesrv, "letters", 1, count)
    consume = cpp_command("consume-failing", cluster.namesrv, "letters", "readers", count)
    with running(consume, tmp_path) as arrivals:
        acks = lines_of(produce, tmp_path)
        received = [json.loads(line) for line in arrivals]

    # Of several messages that one pull brought, this client shows the first and, as that is wanted
    # again, sends all of them back.
    shown = [got for got in received if not got["reconsume_times"]]
    first = check_once(shown, sorted({got["n"] for got in shown}))
    again = check_once([got for got in received if got["reconsume_times"]], range(count))
    assert {got["queue_id"] for got in shown} == set(range(4))
    late_ms = [
        first[ack["n"]]["stored_ms"] - ack["sent_ms"] - DELAYS_MS[0]
        for ack in acks
        if ack["n"] in first
    ]
    assert 0 <= min(late_ms) <= 1000
    assert max(late_ms) <= LATE_MS
    for n, sent in enumerate(acks):
        assert again[n]["stored_ms"] - sent["sent_ms"] >= DELAYS_MS[0] + RETRY_MS
        assert again[n]["reconsume_times"] == 1
    for n, got in first.items():
        assert again[n]["stored_ms"] - got["stored_ms"] >= RETRY_MS
