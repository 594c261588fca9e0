"""`up`, `status`, `kill`, `start`, `down`, and one broker's refusals, with real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from broker.cli.local_cluster.local_cluster import design_cluster
from broker.cli.local_cluster.port_layout import Ports
from broker.config.config_file import read_config
from tests.cluster.running_cluster import RunningCluster, while_needed
from tests.support.free_ports import free_member

ANY_PORTS = ("--namesrv-port", "0", "--port", "0", "--http-port", "0")


def dledger(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "broker", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        dledger(*arguments), capture_output=True, text=True, timeout=90, check=False
    )


def test_status_shows_a_leader_that_serves_and_two_followers(cluster: RunningCluster) -> None:
    [group] = cluster.ask("status")["groups"]

    assert group["group"] == "broker-a"
    assert sorted(node["role"] for node in group["nodes"]) == ["follower", "follower", "leader"]
    [leader] = [node for node in group["nodes"] if node["role"] == "leader"]
    assert leader["node"] == group["leader"]
    assert leader["lag_entries"] == 0
    assert {node["term"] for node in group["nodes"]} == {group["term"]}


def test_a_killed_leader_is_shown_as_down_while_another_leads(cluster: RunningCluster) -> None:
    leader = cluster.leader()
    data = ("--data", str(cluster.directory))

    killed = cluster.dledger("kill", leader, *data)
    again = cluster.dledger("kill", leader, *data, code=1)
    successor = cluster.leader()

    brings_back = f"`dledger start broker-a/{leader} --data {cluster.directory}`"
    assert killed.stdout.endswith(f"; {brings_back} starts it again\n")
    assert again.stderr.endswith(f"; {brings_back} starts it\n")
    assert successor != leader
    [dead] = [node for node in cluster.view().nodes if node.role == "down"]
    assert dead.node == f"broker-a/{leader}"
    assert dead.address == str(read_config(str(cluster.data(leader) / "node.toml")).own.address)


def test_a_node_shares_the_import_of_grpc_and_loads_numpy_a_little_later(tmp_path: Path) -> None:
    started = run("up", "--detach", "--nodes", "1", "--data", tmp_path, *ANY_PORTS)
    pid = (tmp_path / "broker-a/n0/pid").read_text().split()[0]
    libraries = Path(f"/proc/{pid}/maps")
    assert started.returncode == 0, started.stderr
    assert "cygrpc" in libraries.read_text()
    deadline = time.monotonic() + 30.0
    while "numpy" not in libraries.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run("down", "--data", tmp_path)


def test_a_cluster_is_started_also_where_nobody_reads_that_it_is(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    started = subprocess.run(
        dledger("up", "--detach", "--nodes", "1", "--data", tmp_path, *ANY_PORTS),
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=90,
        check=False,
    )
    os.close(writer)
    stopped = run("down", "--data", tmp_path)

    assert (started.returncode, started.stderr) == (0, b"")
    assert stopped.stdout.startswith("stopped broker-a/n0, namesrv; ")


def test_the_console_shows_who_leads_and_who_is_down(cluster: RunningCluster) -> None:
    follower = next(node for node in ("n0", "n1", "n2") if node != cluster.leader())
    served_by = next(
        node for node in ("n0", "n1", "n2") if node not in {follower, cluster.leader()}
    )
    address = read_config(str(cluster.data(served_by) / "node.toml")).own.http
    cluster.kill(follower)

    with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
        assert b"Cannot lose another node" in answer.read()
    with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/nodes", timeout=10) as answer:
        nodes = {node["node"]: node for node in json.load(answer)["nodes"]}
    assert nodes[follower]["role"] == "down"
    assert nodes[follower]["error"].startswith("no answer at 127.0.0.1:")
    assert nodes[served_by]["role"] == "follower"
    assert nodes[cluster.leader()]["role"] == "leader"


def test_health_says_how_many_nodes_may_still_be_lost(cluster: RunningCluster) -> None:
    leader = cluster.leader()
    first, second = (node for node in cluster.nodes if node != leader)
    assert cluster.ask("health")["may_lose"] == 1
    cluster.kill(first)
    health = cluster.ask("health")
    assert (health["healthy"], health["may_lose"]) == (True, 0)
    assert health["groups"][0]["missing"] == [first]
    cluster.kill(second)
    (group,) = cluster.ask("health", code=1)["groups"]
    assert (group["has_majority"], group["in_touch"]) == (False, 1)
    assert "no majority: 1 of 3 voters are in touch" in cluster.dledger("status", code=1).stdout


def test_a_node_that_moved_is_shown_where_it_is(cluster: RunningCluster) -> None:
    moved = next(node for node in cluster.nodes if node != cluster.leader())
    path = cluster.data(moved) / "node.toml"
    before = read_config(str(path)).own
    new = free_member()
    cluster.kill(moved)
    text = path.read_text()
    for old, at in ((before.address, new.address), (before.http, new.http)):
        text = text.replace(f'"{old}"', f'"{at}"')
    path.write_text(text)
    cluster.dledger("start", moved, "--data", str(cluster.directory))
    cluster.wait_until_level()

    [node] = [node for node in cluster.view().nodes if node.node == f"broker-a/{moved}"]
    assert (node.address, node.http) == (str(new.address), str(new.http))
    http = next(node.http for node in cluster.view().nodes if node.role == "leader")
    with urllib.request.urlopen(f"http://{http}/nodes", timeout=10) as answer:
        document = json.load(answer)
    assert {node["node"]: node["http"] for node in document["nodes"]}[moved] == str(new.http)
    assert document["broker_groups"][0]["in_touch"] == 3


def test_a_killed_node_can_be_brought_back(cluster: RunningCluster) -> None:
    leader = cluster.leader()
    cluster.kill(leader)

    started = cluster.ask("start", f"broker-a/{leader}", "--data", str(cluster.directory))

    assert started["role"] in ("follower", "candidate", "leader")
    group = cluster.wait_until_level()
    assert {node.role for node in group.nodes} == {"leader", "follower"}


def test_a_node_that_runs_is_not_started_twice(cluster: RunningCluster) -> None:
    done = cluster.dledger("start", "n0", "--data", str(cluster.directory), code=1)

    assert "broker-a/n0 is running already" in done.stderr


def test_nodes_that_are_started_together_are_processes_of_their_own(
    cluster: RunningCluster,
) -> None:
    for node in cluster.nodes:
        cluster.kill(node)

    started = cluster.ask("start", "n0", "n1", "n1", "n2", "--data", str(cluster.directory))

    assert [each["node"] for each in started] == ["broker-a/n0", "broker-a/n1", "broker-a/n2"]
    for node, pid in zip(cluster.nodes, [each["pid"] for each in started], strict=True):
        process = Path("/proc", str(pid))
        assert process.joinpath("comm").read_text() == f"broker-a/{node}\n"
        assert os.getsid(pid) == pid
        others = [str(cluster.data(other)) for other in cluster.nodes if other != node]
        opened = [os.readlink(fd) for fd in process.joinpath("fd").iterdir()]
        assert str(cluster.data(node) / "log/node.log") in opened
        assert not [path for path in opened if path.startswith(tuple(others))]


def test_of_several_nodes_those_are_started_that_do_not_run(cluster: RunningCluster) -> None:
    pids = {node.node: node.pid for node in cluster.view().nodes}
    cluster.kill("n0")
    data = ("--data", str(cluster.directory))

    done = cluster.dledger("start", "n0", "n1", *data)
    again = cluster.dledger("start", "n0", "n1", *data)

    assert done.stderr == "broker-a/n1 is running already\n"
    assert done.stdout.startswith("broker-a/n0 runs at ")
    assert done.stdout.count("\n") == 1
    assert again.stderr == "broker-a/n0 is running already\nbroker-a/n1 is running already\n"
    now = {node.node: node.pid for node in cluster.view().nodes}
    assert {node for node, pid in now.items() if pid != pids[node]} == {"broker-a/n0"}


def test_three_nodes_killed_at_once_come_back_with_all_that_was_acknowledged(
    cluster: RunningCluster,
) -> None:
    cluster.dledger("topic", "create", "orders", "--queues", "1")
    lines = [f"line {number}" for number in range(1000)]
    cluster.dledger("produce", "orders", "--batch", "7", stdin="\n".join(lines))

    for node in cluster.nodes:
        cluster.kill(node)
    [dead] = cluster.ask("status", code=1)["groups"]
    gone_for = dead["unregistered_seconds"]
    assert (dead["group"], dead["leader"], gone_for >= 0) == ("broker-a", None, True)
    assert sorted((node["node"], node["role"]) for node in dead["nodes"]) == [
        (f"broker-a/{node}", "down") for node in cluster.nodes
    ]
    told = cluster.dledger("status", code=1).stdout
    assert "broker-a: no node is registered" in told
    told = cluster.dledger("health", code=1).stdout
    assert told == "broker-a: NOT healthy, it has no leader and no node of it answers\n"
    cluster.dledger("start", *cluster.nodes, "--data", str(cluster.directory))
    cluster.leader()

    consumed = cluster.dledger("consume", "orders", "--group", "g", "--count", "1000")
    assert consumed.stdout.splitlines() == lines


def test_a_killed_nameserver_learns_everything_again(cluster: RunningCluster) -> None:
    data = ("--data", str(cluster.directory))
    cluster.dledger("topic", "create", "orders", "--queues", "3")

    cluster.dledger("kill", "namesrv", *data)
    cluster.dledger("start", "namesrv", *data)
    cluster.wait_until_level()

    assert len(cluster.ask("topic", "describe", "orders")["queues"]) == 3


def test_data_survives_down_and_up(cluster: RunningCluster) -> None:
    data = ("--data", str(cluster.directory))
    cluster.dledger("topic", "create", "orders", "--queues", "5")

    down = cluster.ask("down", *data)
    up = cluster.ask("up", *data, "--detach")

    assert len(down["stopped"]) == 4
    assert up["namesrv"] == cluster.namesrv
    assert len(cluster.ask("topic", "describe", "orders")["queues"]) == 5


def test_up_refuses_to_start_what_runs_already(cluster: RunningCluster) -> None:
    done = cluster.dledger("up", "--data", str(cluster.directory), "--detach", code=1)

    assert "is running already" in done.stderr
    assert f"`dledger down --data {cluster.directory}` stops it" in done.stderr


def test_a_mistake_in_one_nodes_settings_keeps_no_process_from_being_ended(
    cluster: RunningCluster,
) -> None:
    (cluster.data("n1") / "node.toml").write_text("no TOML")
    data = ("--data", str(cluster.directory))

    killed = cluster.dledger("kill", "n0", *data)
    down = cluster.ask("down", *data)

    assert killed.stdout.startswith("killed broker-a/n0 ")
    assert list(down["stopped"]) == ["broker-a/n1", "broker-a/n2", "namesrv"]
    assert not any(map(cluster.runs, cluster.nodes))


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_up_stops_its_processes_when_it_is_told_to_stop(
    sig: signal.Signals, tmp_path: Path
) -> None:
    command = dledger("up", "--data", tmp_path / "data", "--nodes", 1, *ANY_PORTS, "--json")
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with while_needed(started) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        [node] = ready["groups"][0]["nodes"]
        os.kill(process.pid, sig)
        _, errors = process.communicate(timeout=90)

    assert process.returncode == 0
    assert errors == "stopping ...\n"
    with pytest.raises(ProcessLookupError):
        os.kill(node["pid"], 0)


def test_up_ends_when_another_command_has_stopped_all(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = dledger("up", "--data", data, "--nodes", 1, *ANY_PORTS, "--json")
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with while_needed(started) as process:
        assert process.stdout is not None
        process.stdout.readline()
        killed = [run(verb, "namesrv", "--data", data).returncode for verb in ("kill", "start")]
        down = run("down", "--data", data)
        _, errors = process.communicate(timeout=90)

    assert (killed, down.returncode, process.returncode) == ([0, 0], 0, 0)
    *told, last = errors.splitlines()
    assert last == "all processes have ended, so `dledger up` ends"
    assert told[:2] == [
        "namesrv was killed by signal 9",
        f"`dledger start namesrv --data {data}` starts it again",
    ]
    assert told[2:] in ([], ["broker-a/n0 was stopped"])  # as it looks before, or after all ended


def test_up_says_how_to_stop_and_what_brings_a_node_back_that_ended(tmp_path: Path) -> None:
    data = tmp_path / "with space"
    made = run("up", "--data", data, *ANY_PORTS, "--detach")
    assert made.stdout.endswith(f"Stop        dledger down --data '{data}'\n"), made.stderr
    assert run("down", "--data", data).returncode == 0
    (data / "broker-a/n1/state/vote").unlink()

    again = run("up", "--data", data, "--detach")
    assert run("down", "--data", data).returncode == 0

    ended, hint = again.stderr.splitlines()
    assert ended.startswith("broker-a/n1 ended with exit code 1: ")
    assert "replace the node, see docs/safety.md" in ended
    assert hint == (
        f"once that is fixed, `dledger start broker-a/n1 --data '{data}'` starts it again"
    )


def test_a_port_in_use_is_named_with_who_wanted_it_and_changes_nothing(tmp_path: Path) -> None:
    def files() -> dict[Path, str]:
        return {path: path.read_text() for path in tmp_path.rglob("node.toml")}

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = ("up", "--data", tmp_path, "--namesrv-port", port, "--port", 0, "--detach")
        new = run(*command)
        assert files() == {}
        design_cluster(tmp_path, ports=Ports(0, 0, 0)).write()
        made = files()
        known = run(*command)

    assert files() == made
    for done in (new, known):
        assert done.returncode == 1
        assert f"127.0.0.1:{port}, meant for the NameServer, cannot be used" in done.stderr
        assert "choose another with --namesrv-port" in done.stderr


@pytest.mark.parametrize("which", ["address", "peer", "http"])
def test_a_node_says_which_of_its_addresses_is_taken(which: str, tmp_path: Path) -> None:
    node = design_cluster(tmp_path, nodes=1, ports=Ports(0, 0, 0)).write().node("n0").config
    with socket.socket() as taken:
        taken.bind(getattr(node.own, which))
        taken.listen()
        done = run("node", "--config", tmp_path / "broker-a/n0/node.toml")

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"dledger node: broker-a/n0 cannot listen on its addresses ({node.own.peer}," in last
    assert "Address already in use; stop what uses them" in last
    assert "Traceback" not in done.stderr


def test_the_data_of_another_node_is_refused_with_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = run("up", "--data", data, *ANY_PORTS, "--detach")
    assert made.returncode == 0, made.stderr
    assert run("down", "--data", data).returncode == 0
    shutil.copytree(data / "broker-a/n0/state", data / "broker-a/n1/state", dirs_exist_ok=True)

    done = run("node", "--config", data / "broker-a/n1/node.toml")

    assert done.returncode == 1
    assert "broker-a/n1:" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_misspelt_setting_is_refused_with_one_line(tmp_path: Path) -> None:
    design_cluster(tmp_path, nodes=1).write()
    path = tmp_path / "broker-a/n0/node.toml"
    path.write_text(path.read_text().replace("flush", "flsh"))

    done = run("node", "--config", path)

    assert done.returncode == 2
    assert done.stderr == (
        f"dledger node: {path}: line 7: flsh: is not a setting; did you mean flush?\n"
    )


def test_verify_refuses_the_data_of_a_node_that_runs(cluster: RunningCluster) -> None:
    done = cluster.dledger("verify", str(cluster.data("n0")), code=2)

    assert str(cluster.data("n0")) in done.stderr
