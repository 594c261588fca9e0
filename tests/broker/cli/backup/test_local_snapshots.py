"""A backup is taken from a node of this machine, best from one that does not lead."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.admin.group_health import LEADER
from broker.cli.backup import local_snapshots as module
from broker.cli.backup.local_snapshots import LAG_ENTRIES_MAX, _node_here, local_snapshots
from broker.cluster_admin.cluster_view import DOWN, GroupView, NodeView
from broker.cluster_admin.snapshot_fetch import NotHereError
from broker.command_error import CommandError

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
        ({"lag_entries": LAG_ENTRIES_MAX + 1}, "is 10,001 entries behind"),
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


class Nodes:
    """Nodes that make empty snapshots below a directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.interrupted = ""
        """At the request to this node Ctrl-C is pressed."""

    async def take(self, node: NodeView, _wanted: None) -> dict[str, Any]:
        if node.node == self.interrupted:
            raise KeyboardInterrupt
        made = self.home / node.node
        made.mkdir(parents=True)
        return {"replica": node.node, "directory": str(made)}


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes(tmp_path)

    @asynccontextmanager
    async def requests() -> AsyncIterator[Nodes]:
        yield nodes

    monkeypatch.setattr(module, "snapshot_requests", requests)
    monkeypatch.setattr(module, "require_here", lambda *_: None)
    return nodes


A, B = (replace(group((LEADER, HERE)), group=name) for name in "ab")
B.nodes[0] = replace(B.nodes[0], node="h/n0")


def test_the_snapshots_are_removed_at_the_end(nodes: Nodes) -> None:
    with local_snapshots([A, B]) as made:
        assert sorted(made.directories) == [nodes.home / "g/n0", nodes.home / "h/n0"]
        assert all(each.is_dir() for each in made.directories)
    assert made.left == []
    assert not any(each.exists() for each in made.directories)


def test_a_snapshot_that_came_before_ctrl_c_is_removed(nodes: Nodes) -> None:
    nodes.interrupted = "h/n0"
    with pytest.raises(KeyboardInterrupt), local_snapshots([A, B]):
        pass
    assert [*(nodes.home / "g").iterdir()] == []


def test_a_snapshot_that_cannot_be_removed_is_told(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: Callable[[Path], None] = shutil.rmtree

    def refused(path: Path) -> None:
        if path.parent.name == "g":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        whole(path)

    monkeypatch.setattr(shutil, "rmtree", refused)
    with local_snapshots([A, B]) as made:
        pass
    assert made.left == [nodes.home / "g/n0"]
    assert f"{nodes.home}/g/n0 cannot be removed: Permission denied" in capsys.readouterr().err
    assert not (nodes.home / "h/n0").exists()


def test_a_snapshot_of_another_machine_is_not_removed_here(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of the same name may be here."""

    def elsewhere(*_: object) -> None:
        raise NotHereError

    monkeypatch.setattr(module, "require_here", elsewhere)
    with pytest.raises(CommandError, match="is not here; remove it there"), local_snapshots([A]):
        pass
    assert (nodes.home / "g/n0").is_dir()
