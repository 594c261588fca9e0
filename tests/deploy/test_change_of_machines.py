"""The section "Change the machines" of docs/operations.md, followed to the letter: a loaded group
grows from three machines to five, one of them loses its disk, and another is taken out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cluster.steady_load import Load
from tests.deploy.machines import (
    DLEDGER,
    MACHINES,
    Machine,
    follow_deploy,
    machines,
    run,
    section,
    until_healthy,
)

__all__ = ["machines"]

pytestmark = pytest.mark.processes

DATA = "/var/lib/dledger/broker-a"
UNIT = "dledger-node@broker-a"
FILE = "/etc/dledger/broker-a.toml"


def voters(shell: str, directory: Path) -> list[str]:
    told = json.loads(run(f"{shell}\ndledger member list broker-a --json", directory))
    return sorted(told["voters"])


def test_machines_come_go_and_are_replaced_under_load(
    machines: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy = follow_deploy(machines[:3], tmp_path)
    _, health = (text for _, _, text in deploy["Start"])
    change = section("Change the machines")
    shell = change[""][0].text
    until_healthy(health, tmp_path)
    run(f"{shell}\ndledger topic create orders -c DefaultCluster", tmp_path)
    monkeypatch.setenv("DLEDGER_PROFILE", str(tmp_path / "security" / "admin.toml"))
    load = Load(f"{MACHINES[0]}:9876", "orders", (DLEDGER,))
    try:
        certificates, node, members, start, add = (
            each.text for each in change["From three machines to five"]
        )
        run(f"{shell}\n{certificates}", tmp_path)
        for machine in machines[3:]:
            machine.write(FILE, settings(deploy["Settings"][1].text, node) + members)
            machine.follow(start)
        run(f"{shell}\n{add}", tmp_path)
        assert voters(shell, tmp_path) == ["n0", "n1", "n2", "n3", "n4"]
        until_healthy(health, tmp_path)

        start, replace = (each.text for each in change["Replace a machine"])
        lost = machines[4]
        lost.kill(UNIT)
        shutil.rmtree(lost.local(DATA))
        lost.follow(start)
        run(f"{shell}\n{replace}", tmp_path)
        assert len(voters(shell, tmp_path)) == len(MACHINES)
        until_healthy(health, tmp_path)

        remove, end = (each.text for each in change["Take a machine out"])
        gone = machines[3]
        run(f"{shell}\n{remove}", tmp_path)
        assert gone.ended(UNIT) == 0
        gone.follow(end)
        assert not Path(gone.local(DATA)).exists()
        assert voters(shell, tmp_path) == ["n0", "n1", "n2", "n4"]
        until_healthy(health, tmp_path)
    finally:
        sent = load.end()
    read = f"dledger consume orders --group g --from earliest --count {sent}"
    bodies = run(f"{shell}\n{read}", tmp_path).splitlines()
    assert set(bodies) == {f"line {number}" for number in range(sent)}


def settings(text: str, node: str) -> str:
    """Those of the page, with other lines for ``node``."""
    lines = text.splitlines(keepends=True)
    return "".join(node if line.startswith("node = ") else line for line in lines)
