"""A backup of a running cluster says what it lacks, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.admin.group_health import LEADER
from broker.cli.backup.local_snapshots import LocalSnapshots
from broker.cli.command_line import run_command
from broker.cli.commands import backup
from broker.cluster_admin.cluster_view import DOWN, GroupView, NodeView
from tests.store.replica_directories import write_replicas

LEADS = NodeView("broker-a/n0", 1, "a:1", "a:2", LEADER, 1, 1, 1, 1, 0)
IS_DOWN = NodeView("broker-b/n0", None, "b:1", None, DOWN, None, None, None, None, None)
CLUSTER = (
    GroupView("broker-a", "broker-a/n0", 1, [LEADS]),
    GroupView("broker-b", None, None, [IS_DOWN], unregistered_seconds=60.0),
)


@pytest.fixture
def create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Backs up this cluster; returns exit code, document and stderr."""
    replicas = tmp_path / "replicas"
    write_replicas(replicas)
    left: list[Path] = []

    @contextmanager
    def snapshots(groups: Sequence[GroupView]) -> Iterator[LocalSnapshots]:
        made = LocalSnapshots([replicas / group.group / "n1" for group in groups])
        yield made
        made.left += left

    monkeypatch.setattr(backup, "run_admin", lambda _namesrv, _work: CLUSTER)
    monkeypatch.setattr(backup, "local_snapshots", snapshots)

    def create(*options: str, leaves: tuple[Path, ...] = ()) -> tuple[int, Any, str]:
        left[:] = leaves
        code = run_command(["backup", "create", f"file://{tmp_path}/store", *options, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return create


def test_a_group_without_a_node_is_told_and_the_others_are_backed_up(create: Any) -> None:
    code, document, told = create()
    assert code == 1
    assert "no node of broker-b is registered any more" in told
    assert document["unregistered_groups"] == document["gone_groups"] == ["broker-b"]
    assert [each["group"] for each in document["replicas"]] == ["broker-a"]


def test_who_names_the_other_groups_knows(create: Any) -> None:
    code, document, told = create("--group", "broker-a")
    assert (code, told) == (0, "")
    assert document["unregistered_groups"] == document["gone_groups"] == []


def test_a_snapshot_that_stays_behind_is_a_failure(create: Any) -> None:
    code, document, _ = create("--group", "broker-a", leaves=(Path("snapshots/1"),))
    assert code == 1
    assert [each["group"] for each in document["replicas"]] == ["broker-a"]


def test_a_backup_of_nothing_is_none(create: Any) -> None:
    code, document, told = create("--group", "broker-b")
    assert (code, document) == (1, None)
    assert "no node of broker-b is registered any more" in told
