"""A backup is taken from a node of this machine, best from one that does not lead."""

from __future__ import annotations

import pytest

from broker.admin.group_health import LEADER
from broker.cli.backup.local_snapshots import _node_here
from broker.cli.terminal.command_error import CommandError
from broker.cluster_admin.cluster_view import DOWN, GroupView, NodeView

ELSEWHERE = "192.0.2.1:8080"
HERE = "127.0.0.1:8080"


def group(*nodes: tuple[str, str | None]) -> GroupView:
    """By role and HTTP address; the first one is n0."""
    views = [
        NodeView(f"g/n{number}", 1, "127.0.0.1:1", http, role, 1, 1, 1, 1, 0)
        for number, (role, http) in enumerate(nodes)
    ]
    return GroupView("g", "g/n0", 1, views)


def test_a_follower_of_this_machine_goes_before_the_leader() -> None:
    both = group((LEADER, HERE), ("follower", ELSEWHERE), ("follower", HERE))
    assert _node_here(both).node == "g/n2"
    alone = group((LEADER, HERE), ("follower", ELSEWHERE), (DOWN, HERE), ("follower", None))
    assert _node_here(alone).node == "g/n0"


def test_a_group_without_a_node_on_this_machine_is_told() -> None:
    with pytest.raises(CommandError, match="no node of g runs on this machine"):
        _node_here(group((LEADER, ELSEWHERE), ("follower", ELSEWHERE)))
