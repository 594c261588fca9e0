"""A backup is taken from a node of this machine, best from one that does not lead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.admin.group_health import LEADER
from broker.cli.backup.local_snapshots import LAG_ENTRIES_MAX, _node_here
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


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ({"lag_entries": None}, "knows no leader"),
        ({"lag_entries": LAG_ENTRIES_MAX + 1}, "10,001 entries behind"),
        ({"refilling": "5 of 7 MiB"}, "is being refilled"),
        ({"member": "refilling"}, "is being refilled"),
        ({"damage": ["entry 7"]}, "has damaged entries"),
    ],
)
def test_a_node_that_lacks_something_makes_no_backup(lacks: dict[str, Any], told: str) -> None:
    view = group(("follower", HERE), (LEADER, HERE))
    old, leader = view.nodes
    behind = replace(old, **lacks)
    assert _node_here(replace(view, nodes=[behind, leader])) is leader
    with pytest.raises(CommandError, match=f"g/n0 {told}"):
        _node_here(replace(view, nodes=[behind, replace(leader, http=ELSEWHERE)]))
