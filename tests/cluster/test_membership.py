"""Members change, lose their disks and hand over, while messages are sent: none is lost."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.cluster_admin.admin_client import AdminClient, run_admin
from broker.config.config_file import read_config
from broker.remoting.protocol.codes import RequestCode
from tests.cluster.running_cluster import (
    LEVEL_SECONDS,
    LOOK_AGAIN_SECONDS,
    RunningCluster,
    free_address,
)
from tests.cluster.steady_load import Load

QUIET_SECONDS = 60.0


@contextmanager
def load(cluster: RunningCluster) -> Iterator[Load]:
    """Sends meanwhile; afterwards every message is there."""
    cluster.dledger("topic", "create", "orders", "--queues", "2")
    running = Load(cluster.namesrv, "orders")
    try:
        yield running
    except BaseException:  # whatever ends the test, Ctrl-C too: the producer must not stay behind
        running.end()
        raise
    count = running.end()
    assert count > 100
    told = cluster.ask(
        *("consume", "orders", "--group", "readers", "--from", "earliest"),
        *("--count", str(count), "--timeout", "30"),
    )
    bodies = {message["body"] for message in told}
    missing = [number for number in range(count) if f"line {number}" not in bodies]
    # A message that was sent twice, because the first answer was lost, takes the place of another.
    assert len(missing) <= len(told) - len(bodies)


@pytest.fixture
def local(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """A cluster whose nodes may be more than it began with."""
    yield cluster
    cluster.dledger("down", "--data", str(cluster.directory))


def test_members_are_added_and_removed_and_hand_over_under_load(local: RunningCluster) -> None:
    data = ("--data", str(local.directory))
    with load(local):
        members = local.ask("member", "add", "broker-a", "n3", free_address(), *data)
        assert members["voters"] == ["n0", "n1", "n2", "n3"]
        members = local.ask("member", "add", "broker-a", "n4", free_address(), *data, "--learner")
        assert members["learners"] == ["n4"]
        members = local.ask("member", "promote", "broker-a", "n4")
        assert len(members["voters"]) == 5
        assert local.ask("leader", "transfer", "broker-a", "n3")["leader"] == "broker-a/n3"
        assert local.leader() == "n3"
        members = local.ask("member", "remove", "broker-a", "n3")
        assert members["voters"] == ["n0", "n1", "n2", "n4"]
        assert members["leader"] != "n3"
        local.ask("member", "remove", "broker-a", "n4")
    [group] = local.ask("status")["groups"]
    assert {node["node"]: node["member"] for node in group["nodes"]} == {
        "broker-a/n0": "voter",
        "broker-a/n1": "voter",
        "broker-a/n2": "voter",
    }


def noted_members(local: RunningCluster) -> Any:
    """The members of the group, once it has noted the disks of all: a moment after its start."""
    ends_at = time.monotonic() + LEVEL_SECONDS
    while True:
        members = local.ask("member", "list", "broker-a")["members"]
        if all(member["incarnation"] for member in members.values()):
            return members
        assert time.monotonic() < ends_at
        time.sleep(LOOK_AGAIN_SECONDS)


def test_a_dead_and_a_wiped_node_are_replaced_in_one_command_each(local: RunningCluster) -> None:
    data = ("--data", str(local.directory))
    before = noted_members(local)
    with load(local):
        dead = next(node for node in local.nodes if node != local.leader())
        local.kill(dead)
        members = local.ask("member", "replace", "broker-a", dead, *data)
        assert members["voters"] == ["n0", "n1", "n2"]
        wiped = next(node for node in local.nodes if node not in (dead, local.leader()))
        local.kill(wiped)
        for part in ("commitlog", "index", "state", "consumequeue", "keyindex"):
            shutil.rmtree(local.data(wiped) / part, ignore_errors=True)
        local.start(wiped)
        local.wait_until_answering(wiped)
        members = local.ask("member", "replace", "broker-a", wiped, *data)
        assert members["voters"] == ["n0", "n1", "n2"]
    after = local.ask("member", "list", "broker-a")["members"]
    changed = [node for node in before if before[node]["incarnation"] != after[node]["incarnation"]]
    assert changed == sorted([dead, wiped])


def test_who_names_a_stranger_or_a_healthy_node_is_told_so(local: RunningCluster) -> None:
    data = ("--data", str(local.directory))
    refused = local.dledger("member", "remove", "broker-a", "n9", *data, code=1).stderr
    assert "n9 is not a member of broker-a; `dledger member list broker-a` shows" in refused
    before = local.ask("member", "list", "broker-a")["members"]
    kept = local.dledger("member", "replace", "broker-a", "n1", "--json", *data)
    assert "broker-a/n1 answers at " in kept.stderr
    assert "nothing is replaced" in kept.stderr
    incarnations = {node: at["incarnation"] for node, at in before.items()}
    after = json.loads(kept.stdout)["members"]
    assert {node: at["incarnation"] for node, at in after.items()} == incarnations


def test_a_removed_node_is_ended_and_not_started_until_it_is_added_again(
    local: RunningCluster,
) -> None:
    data = ("--data", str(local.directory))
    local.ask("member", "remove", "broker-a", local.leader(), *data)
    [group] = local.ask("status")["groups"]
    assert len(group["nodes"]) == 2
    [removed] = {"n0", "n1", "n2"} - {node["node"][-2:] for node in group["nodes"]}
    assert not local.runs(removed)
    assert "was removed from its group" in local.dledger("start", removed, *data, code=1).stderr
    address = json.loads(local.dledger("down", *data, "--json").stdout)
    assert f"broker-a/{removed}" not in address["stopped"]
    local.dledger("up", "--detach", *data)
    assert not local.runs(removed)
    where = read_config(str(local.data(removed) / "node.toml")).own
    members = local.ask("member", "add", "broker-a", removed, str(where.address), *data)
    assert members["voters"] == ["n0", "n1", "n2"]
    assert members["members"][removed]["http"] == str(where.http)
    local.wait_until_level()


def test_a_node_that_was_removed_while_it_was_down_falls_quiet(
    local: RunningCluster, tmp_path: Path
) -> None:
    away = next(node for node in local.nodes if node != local.leader())
    local.kill(away)
    # Without --data, as from another machine: the node comes back and does not know.
    done = local.dledger("member", "remove", "broker-a", away, "--data", str(tmp_path / "no"))
    assert "do not start it again" in done.stderr
    local.start(away)
    local.wait_until_answering(away)
    log = local.data(away) / "log/node.log"
    ends_at = time.monotonic() + QUIET_SECONDS
    while "say that it was removed" not in log.read_text():
        assert time.monotonic() < ends_at, log.read_text()
        time.sleep(0.05)
    shown = local.view().nodes
    assert [node.node for node in shown if node.node.endswith(away)] == []
    registered = run_admin(local.namesrv, lambda admin: admin.broker_names())
    assert len(registered[0].addresses) == 2
    address = str(read_config(str(local.data(away) / "node.toml")).own.address)
    members = local.ask("member", "add", "broker-a", away, address)
    assert members["voters"] == ["n0", "n1", "n2"]
    local.wait_until_level()


def test_followers_tell_the_newest_offsets(local: RunningCluster) -> None:
    place = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
    addresses = [node.address for node in local.view().nodes if node.address]
    local.dledger("topic", "create", "orders", "-c", "DefaultCluster", "--queues", "1")
    local.dledger("produce", "orders", stdin="x\n" * 20)
    leader = local.leader()

    async def told_everywhere(admin: AdminClient) -> None:
        at = (await admin.masters())["broker-a"]
        for offset in range(1, 21):
            ext = {**place, "commitOffset": offset}
            await admin.ask(at, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
            for address in addresses:
                answer = await admin.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, place)
                assert answer.ext["offset"] == str(offset), address

    run_admin(local.namesrv, told_everywhere)
    assert local.leader() == leader


def test_what_makes_no_sense_is_refused_in_one_line(local: RunningCluster) -> None:
    refused = {
        ("member", "add", "broker-a", "x3", "127.0.0.1:1"): (2, "'x3' is not a node"),
        ("member", "add", "broker-a", "n3", "nowhere"): (2, "'nowhere' is not host:port"),
        ("member", "add", "broker-a", "n0", "127.0.0.1:1"): (1, "n0 is a voter of broker-a"),
        ("member", "add", "broker-a", "n3", "127.0.0.1:1"): (1, "cannot connect to 127.0.0.1:1"),
        ("member", "list", "broker-x"): (2, "there is no group 'broker-x'; known are: broker-a"),
        ("member", "promote", "broker-a", "n7"): (1, "n7 is not a learner of broker-a"),
        ("member", "remove", "broker-a", "n7"): (1, "n7 is not a member"),
        ("leader", "transfer", "broker-a", "n7"): (1, "n7 is not a voter"),
        ("leader", "transfer", "broker-a", "zero"): (1, "node 'zero' is not allowed"),
    }
    for arguments, (code, what) in refused.items():
        done = local.dledger(*arguments, code=code)
        assert what in done.stderr


def test_a_node_that_is_removed_from_afar_ends_by_itself_and_its_data_can_be_purged(
    local: RunningCluster, tmp_path: Path
) -> None:
    node = local.leader()
    done = local.dledger("member", "remove", "broker-a", node, "--data", str(tmp_path / "no"))
    assert "its process ends once it learns of the removal" in done.stderr
    ends_at = time.monotonic() + QUIET_SECONDS
    while local.runs(node):
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    log = (local.data(node) / "log/node.log").read_text()
    assert log.count("was removed from its group") == 1
    assert "it is no longer a member" in log

    data = ("--data", str(local.directory))
    local.dledger("down", *data)
    local.dledger("up", "--detach", *data)
    assert not local.runs(node)
    # As if it had ended before it knew: it is started, idles, and nobody waits for it.
    (local.data(node) / "removed").unlink()
    local.dledger("down", *data)
    local.dledger("up", "--detach", *data)
    assert local.runs(node)
    away = ("member", "remove", "broker-a", node, "--purge", "--data", str(tmp_path / "no"))
    assert "its data is not there" in local.dledger(*away, code=1).stderr
    assert (local.data(node) / "commitlog").exists()
    members = local.ask("member", "remove", "broker-a", node, "--purge", *data)
    assert len(members["voters"]) == 2
    assert not local.data(node).exists()
    local.dledger("down", *data)
    local.dledger("up", "--detach", *data)
    assert len(local.view().nodes) == 2
