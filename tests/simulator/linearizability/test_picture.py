"""What is not linearizable is drawn beside the page of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.cli.main import main
from simulator.invariants import Invariant
from simulator.invariants.raft.read_index import ReadIndexSeesCommitted


@pytest.mark.minutes
def test_a_replay_draws_the_registers_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # This check sees a stale read before anybody asks whether the registers are linearizable.
    monkeypatch.setattr(ReadIndexSeesCommitted, "booted", Invariant.booted)
    page = tmp_path / "run.html"
    for seed in range(1, 21):
        code = main(["replay", str(seed), "--bug", "A10b", "--html", str(page)])
        if code:
            break
    assert "is not linearizable" in capsys.readouterr().out
    assert page.exists()
    drawn = (tmp_path / "run.registers.html").read_text(encoding="utf-8")
    assert 'class="misfit"' in drawn
    assert "is not linearizable" in drawn
