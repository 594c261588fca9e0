"""A local cluster's directory: addresses, and what a second `up` may change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.cli.commands import kill
from broker.cli.local_cluster import port_layout
from broker.cli.local_cluster.local_cluster import (
    design_cluster,
    find_process,
    find_processes,
    open_cluster,
)
from broker.cli.local_cluster.local_member import local_cluster, mark_removed, put_aside, retire
from broker.cli.local_cluster.managed_processes import PID_FILE, ManagedProcess, end_processes
from broker.cli.local_cluster.port_layout import (
    FREE_PORTS,
    Ports,
    group_names,
    plan_cluster,
    plan_member,
)
from broker.command_error import CommandError, UsageError
from broker.config.config_file import read_config
from broker.config.node_addresses import Member
from dledger.wire.endpoint import Endpoint


def test_the_addresses_are_counted_from_the_first_ports() -> None:
    configs = plan_cluster(Path("/data"), 2, group_names(2), Ports())

    assert [config.name for config in configs] == [
        "broker-a/n0",
        "broker-a/n1",
        "broker-b/n0",
        "broker-b/n1",
    ]
    assert [str(config.own.address) for config in configs] == [
        "127.0.0.1:10911",
        "127.0.0.1:10921",
        "127.0.0.1:10931",
        "127.0.0.1:10941",
    ]
    assert [config.own.peer.port for config in configs] == [10915, 10925, 10935, 10945]
    assert [config.own.http.port for config in configs] == [8080, 8081, 8082, 8083]
    assert {config.namesrv for config in configs} == {("127.0.0.1:9876",)}


def test_several_groups_prefer_leaders_on_different_nodes() -> None:
    configs = plan_cluster(Path("/data"), 3, group_names(4), Ports(0, 0, 0))
    preferred = {config.group: config.preferred_leader for config in configs}
    assert list(preferred.values()) == ["n0", "n1", "n2", "n0"]
    (alone,) = {
        each.preferred_leader
        for each in plan_cluster(Path("/data"), 3, group_names(1), Ports(0, 0, 0))
    }
    assert alone == ""


def test_kinds_of_ports_may_begin_next_to_each_other_and_stay_when_they_are_given_again(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        made = design_cluster(tmp_path, ports=Ports(9876, 10911, 8080, 8081)).write()
        members = [node.config.own for node in made.nodes.values()]
        assert [each.http.port for each in members] == [8080, 8082, 8084]
        assert [each.grpc and each.grpc.port for each in members] == [8081, 8083, 8085]


def test_grpc_may_move_alone(tmp_path: Path) -> None:
    first = design_cluster(tmp_path).write()
    made = design_cluster(tmp_path, ports=Ports(grpc=8081)).write()
    for name, node in made.nodes.items():
        before = first.nodes[name].config.own
        assert node.config.own == before._replace(grpc=node.config.own.grpc)
    own = [node.config.own for node in made.nodes.values()]
    assert [each.grpc and each.grpc.port for each in own] == [8083, 8084, 8085]


class InOrder:
    """A source of randomness that draws the first ones."""

    def sample(self, drawn: Sequence[int], count: int) -> Sequence[int]:
        return drawn[:count]


def test_a_port_that_was_given_is_not_chosen_for_another_server() -> None:
    given = FREE_PORTS.start
    with patch.object(port_layout, "Random", InOrder):
        configs = plan_cluster(Path("/data"), 3, group_names(1), Ports(given, 0, 0))

    ports = [endpoint.port for config in configs for endpoint in config.own.endpoints.values()]
    assert given not in ports


def test_free_ports_are_all_different_and_none_is_one_of_outgoing_connections() -> None:
    configs = plan_cluster(Path("/data"), 3, group_names(1), Ports(0, 0, 0))

    ports = [endpoint.port for config in configs for endpoint in config.own.endpoints.values()]
    assert len(set(ports)) == 12
    assert all(port in FREE_PORTS for port in ports)


def test_ports_beyond_the_last_are_refused() -> None:
    with pytest.raises(UsageError, match="the ports of node 2 would be above 65535"):
        plan_cluster(Path("/data"), 3, group_names(1), Ports(9876, 65_530, 8080))


def test_a_cluster_is_found_again_from_its_directory_alone(tmp_path: Path) -> None:
    made = design_cluster(tmp_path, ports=Ports(0, 0, 0)).write()

    found = open_cluster(tmp_path)

    assert [node.config for node in found.nodes.values()] == [
        node.config for node in made.nodes.values()
    ]
    assert found.namesrv == made.namesrv


def test_without_ports_a_second_up_keeps_those_of_the_first(tmp_path: Path) -> None:
    first = design_cluster(tmp_path, ports=Ports(0, 0, 0)).write()

    second = design_cluster(tmp_path).write()

    assert second.namesrv == first.namesrv


def test_new_ports_and_flush_mode_leave_other_settings_as_they_are(tmp_path: Path) -> None:
    design_cluster(tmp_path).write()
    path = tmp_path / "broker-a/n1/node.toml"
    path.write_text(path.read_text().replace("heartbeat_ms = 100", "heartbeat_ms = 50"))

    design_cluster(tmp_path, flush="async", ports=Ports(9000, 9100, 9200)).write()

    config = read_config(str(path))
    assert config.heartbeat_ms == 50
    assert config.flush == "async"
    assert config.own.address.port == 9110


def test_the_ports_of_grpc_go_with_the_others_if_nobody_says_where(tmp_path: Path) -> None:
    def ports(given: Ports) -> list[tuple[int, int]]:
        nodes = design_cluster(tmp_path, ports=given).write().nodes.values()
        own = [node.config.own for node in nodes]
        return [(each.address.port, each.grpc.port if each.grpc else 0) for each in own]

    asked = ports(Ports(9000, 9100, 9200, 9300))
    assert asked == [(9100, 9300), (9110, 9301), (9120, 9302)]
    assert ports(Ports(http=9400)) == asked
    assert ports(Ports(remoting=9500)) == [(9500, 9505), (9510, 9515), (9520, 9525)]
    assert ports(Ports(grpc=9600)) == [(9500, 9600), (9510, 9601), (9520, 9602)]
    assert {grpc in FREE_PORTS for _, grpc in ports(Ports(grpc=0))} == {True}


def test_ports_that_are_not_given_stay_as_they_are(tmp_path: Path) -> None:
    design_cluster(tmp_path, ports=Ports(9000, 9100, 9200)).write()

    http = design_cluster(tmp_path, ports=Ports(http=9300)).write()
    assert http.namesrv.port == 9000
    assert [
        [end.port for end in node.config.own.endpoints.values()] for node in http.nodes.values()
    ] == [
        [9104, 9100, 9300, 9105],
        [9114, 9110, 9301, 9115],
        [9124, 9120, 9302, 9125],
    ]
    namesrv = design_cluster(tmp_path, ports=Ports(namesrv=9001)).write()
    assert namesrv.namesrv.port == 9001
    assert namesrv.node("n2").config.own == http.node("n2").config.own
    remoting = design_cluster(tmp_path, ports=Ports(remoting=0)).write()
    assert remoting.namesrv.port == 9001
    own = remoting.node("n2").config.own
    assert own.http.port == 9302
    assert own.peer.port in FREE_PORTS
    assert own.address.port in FREE_PORTS


def test_a_free_port_is_none_of_those_that_are_taken() -> None:
    taken = set(FREE_PORTS[::2])

    configs = plan_cluster(Path("/data"), 3, group_names(1), Ports(0, 0, 0), taken)

    assert not taken & {end.port for config in configs for end in config.own.endpoints.values()}


def test_the_ports_of_a_cluster_with_another_member_cannot_change(tmp_path: Path) -> None:
    design_cluster(tmp_path).write()
    path = tmp_path / "broker-a/n2/node.toml"
    path.write_text(path.read_text().replace("n2", "n3"))

    with pytest.raises(
        UsageError, match=r"has had members added or removed: `up` cannot change its ports"
    ):
        design_cluster(tmp_path, ports=Ports(http=9300)).write()


def member(number: int) -> Member:
    first = 10911 + 10 * number
    ports = (first + 4, first, 8080 + number, first + 5)
    return Member(*(Endpoint("127.0.0.1", port) for port in ports))


def test_a_node_that_is_added_gets_the_next_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.cli.local_cluster.port_layout.why_taken", lambda endpoint: None)
    known = [member(0), member(1), member(2)]
    assert plan_member(Endpoint("127.0.0.1", 10941), known) == member(3)
    assert plan_member(Endpoint("127.0.0.1", 10951), [*known, member(3)]) == member(4)
    own = plan_member(Endpoint("127.0.0.1", 10921), known)  # in the midst of those of another
    assert (own.peer.port, own.http.port) == (10927, 8083)
    assert own.grpc is not None
    assert own.grpc.port == 10928


def test_a_port_that_is_used_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    used = (10945, 8083, 8084)
    monkeypatch.setattr(
        "broker.cli.local_cluster.port_layout.why_taken",
        lambda endpoint: endpoint.port in used or None,
    )
    own = plan_member(Endpoint("127.0.0.1", 10941), [member(0), member(1), member(2)])
    assert (own.peer.port, own.http.port) == (10946, 8085)
    monkeypatch.setattr("broker.cli.local_cluster.port_layout.why_taken", lambda endpoint: "in use")
    with pytest.raises(UsageError, match="no free port from 10945 to 65535"):
        plan_member(Endpoint("127.0.0.1", 10941), [])


def test_a_removed_node_is_not_started_and_says_how_it_comes_back(tmp_path: Path) -> None:
    cluster = design_cluster(tmp_path).write()
    assert retire(cluster, "broker-a", "n2")
    for found in (open_cluster(tmp_path), design_cluster(tmp_path)):
        assert [*found.nodes] == ["broker-a/n0", "broker-a/n1"]
        assert [process.name for process in found.processes] == [
            "namesrv",
            "broker-a/n0",
            "broker-a/n1",
        ]
        with pytest.raises(
            CommandError,
            match=r"n2 was removed .* `dledger member add broker-a n2 127.0.0.1:10931 --data ",
        ):
            found.process("n2")
        with pytest.raises(CommandError, match="n2 was removed from its group"):
            kill.command.main(["n2", "--data", str(tmp_path)], standalone_mode=False)
        assert retire(found, "broker-a", "n2")
        assert not retire(found, "broker-a", "n7")


def test_no_cluster_is_made_over_the_data_of_removed_nodes(tmp_path: Path) -> None:
    (node,) = design_cluster(tmp_path, nodes=1).write().nodes.values()
    mark_removed(node.config)
    for find in (open_cluster, design_cluster):
        with pytest.raises(UsageError, match="has only nodes that were removed from their groups"):
            find(tmp_path)


@pytest.mark.processes
def test_a_node_that_has_marked_itself_is_still_ended_and_put_aside(tmp_path: Path) -> None:
    """It marks itself when it learns of its removal, and drains before it ends."""
    made = design_cluster(tmp_path).write()
    mark_removed(made.nodes["broker-a/n2"].config)
    cluster = open_cluster(tmp_path)
    home = tmp_path / "broker-a/n2"
    program = [sys.executable, "-c", "import signal; signal.pause()"]
    process = ManagedProcess("broker-a/n2", home, program, home / "log/node.log")
    try:
        process.start()
        assert retire(cluster, "broker-a", "n2")
        assert process.pid is None
        process.reap(5.0)
        process.start()
        assert put_aside(cluster, "broker-a", "n2") == tmp_path / "replaced/broker-a/n2-1"
        assert process.pid is None
        assert not home.exists()
    finally:
        end_processes([process], kill=True)


def test_only_the_cluster_that_was_asked_is_changed(tmp_path: Path) -> None:
    made = design_cluster(tmp_path, ports=Ports(9000, 9100, 9200)).write()
    assert local_cluster(tmp_path, "broker-a", "127.0.0.1:9876") is None
    assert local_cluster(tmp_path, "broker-b", str(made.namesrv)) is None
    assert local_cluster(tmp_path / "other", "broker-a", str(made.namesrv)) is None
    for namesrv in ("127.0.0.1:9000", "10.0.0.1:9876;localhost:9000"):
        found = local_cluster(tmp_path, "broker-a", namesrv)
        assert found is not None
        assert found.directory == tmp_path


def test_a_design_is_written_nowhere(tmp_path: Path) -> None:
    cluster = design_cluster(tmp_path / "data", nodes=1)

    assert list(tmp_path.iterdir()) == []
    cluster.write()
    assert open_cluster(tmp_path / "data").node("n0").config.data == cluster.node("n0").config.data


@pytest.mark.parametrize("data", ["file", "file/below"])
def test_a_directory_that_cannot_be_written_is_told(data: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match=r"/file/.* cannot be written: Not a directory; --data"):
        design_cluster(tmp_path / data).write()


def test_the_number_of_nodes_cannot_change(tmp_path: Path) -> None:
    design_cluster(tmp_path, nodes=3).write()

    with pytest.raises(UsageError, match=r"holds 1 group of 3 nodes"):
        design_cluster(tmp_path, nodes=5).write()


def test_an_empty_directory_says_how_to_make_a_cluster(tmp_path: Path) -> None:
    for find in (open_cluster, find_processes):
        with pytest.raises(
            UsageError, match=f"holds no cluster; `dledger up --data {tmp_path}` makes one"
        ):
            find(tmp_path)


def test_a_node_goes_by_its_short_name_where_there_is_one_group(tmp_path: Path) -> None:
    cluster = design_cluster(tmp_path).write()

    assert cluster.node("n2") is cluster.node("broker-a/n2")
    assert find_process(tmp_path, "n2").name == "broker-a/n2"


def test_an_unknown_node_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    cluster = design_cluster(tmp_path, nodes=1).write()

    with pytest.raises(UsageError, match="no node broker-a/n7; it has broker-a/n0, namesrv"):
        cluster.process("broker-a/n7")
    with pytest.raises(UsageError, match="no node n7; it has broker-a/n0, namesrv"):
        find_process(tmp_path, "n7")


@pytest.mark.processes
def test_a_node_that_was_added_since_runs_and_is_stopped_too(tmp_path: Path) -> None:
    cluster = design_cluster(tmp_path, nodes=1).write()
    home = tmp_path / "broker-a/n1"
    program = [sys.executable, "-c", "import signal; signal.pause()"]
    added = ManagedProcess("broker-a/n1", home, program, home / "log/node.log")
    added.start()
    pid = added.pid
    try:
        assert cluster.running == ["broker-a/n1"]
        assert cluster.stop() == {"broker-a/n1": pid}
        assert cluster.running == []
    finally:
        end_processes([added], kill=True)


def test_processes_are_found_whatever_the_settings_say(tmp_path: Path) -> None:
    made = design_cluster(tmp_path, groups=2).write()
    (tmp_path / "broker-a/n1/node.toml").write_text("no TOML")
    n2 = tmp_path / "broker-a/n2/node.toml"
    n2.rename(n2.with_name(PID_FILE))

    found = find_processes(tmp_path)

    assert {name: process.directory for name, process in found.items()} == {
        process.name: process.directory for process in made.processes
    }
    assert find_process(tmp_path, "namesrv").directory == made.namesrv_process.directory
