"""The section "Deploy" of docs/operations.md, followed to the letter on three machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.machines import Machine, follow_deploy, machines, run, until_healthy

__all__ = ["machines"]

pytestmark = pytest.mark.processes


def test_three_machines_serve_after_the_page_was_followed(
    machines: list[Machine], tmp_path: Path
) -> None:
    machines = machines[:3]
    blocks = follow_deploy(machines, tmp_path)
    _, health = (text for words, _, text in blocks["Start"])
    client = "--namesrv 127.0.0.4:9876 --profile security/admin.toml"
    run(f"dledger topic create orders -c DefaultCluster {client}", tmp_path)
    run(f"printf 'one\\ntwo\\n' | dledger produce orders {client}", tmp_path)

    reload, restart = (text.strip() for _, _, text in blocks["Change and restart"])
    # A leader would forward for drain_seconds, while the command of this test is the only client.
    for machine in machines:
        file = machine.root / "etc" / "dledger" / "broker-a.toml"
        file.write_text("drain_seconds = 2\n" + file.read_text())
        machine.shell(reload)
    log = machines[1].root / "dledger-node@broker-a.log"
    assert "drain_seconds is 2 now, it was 35" in log.read_text()
    for machine in machines:
        machine.shell(restart)
        until_healthy(health, tmp_path)
    read = f"dledger consume orders --group g --from earliest --count 2 {client}"
    assert set(run(read, tmp_path).split()) == {"one", "two"}
