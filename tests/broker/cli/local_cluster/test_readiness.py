"""When a cluster that was started is called ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cli.local_cluster import readiness
from broker.cli.local_cluster.local_cluster import design_cluster
from broker.cli.local_cluster.port_layout import Ports
from broker.cli.local_cluster.readiness import wait_until_serving
from broker.cluster_admin.admin_client import AdminClient
from broker.cluster_admin.broker_names import BrokerName
from broker.cluster_admin.cluster_view import GroupView, NodeView
from broker.command_error import CommandError

LEADER, OTHER = "127.0.0.1:1", "127.0.0.1:2"


@pytest.mark.parametrize("before", [{2: LEADER}, {0: OTHER, 1: LEADER}])
def test_it_is_not_ready_before_the_nameserver_names_the_leader_to_clients(
    before: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower may be the first to register again, and a leader that died may still be named."""
    node = NodeView("broker-a/n0", 1, LEADER, None, "leader", 1, 1, 1, 1, 0, serving=True)
    known = [before, before, {0: LEADER}]

    async def view_groups(_: AdminClient) -> list[GroupView]:
        return [GroupView("broker-a", "broker-a/n0", 1, [node])]

    async def broker_names(_: AdminClient) -> list[BrokerName]:
        return [BrokerName("broker-a", "DefaultCluster", known.pop(0))]

    monkeypatch.setattr(readiness, "view_groups", view_groups)
    monkeypatch.setattr(readiness, "_obstacles", lambda _cluster: [])
    monkeypatch.setattr(AdminClient, "broker_names", broker_names)

    [group] = wait_until_serving(design_cluster(tmp_path, nodes=1, ports=Ports(0, 0, 0)).write())

    assert (group.leader, known) == ("broker-a/n0", [])


def test_who_waits_in_vain_is_told_where_the_reason_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a group of which no node can open its log."""

    async def view_groups(_: AdminClient) -> list[GroupView]:
        return []

    monkeypatch.setattr(readiness, "view_groups", view_groups)
    monkeypatch.setattr(readiness, "_obstacles", lambda _cluster: [])
    monkeypatch.setattr(readiness, "READY_SECONDS", 0.001)

    with pytest.raises(CommandError, match=r"broker-a has no leader that serves; the log of each"):
        wait_until_serving(design_cluster(tmp_path, nodes=1, ports=Ports(0, 0, 0)).write())
