"""The programs in docs/client.md print what the page says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.cluster.running_cluster import RunningCluster

PAGE = Path(__file__).parents[2] / "docs/client.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_client_page_print_what_it_says(
    shared_cluster: RunningCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", shared_cluster.namesrv)
    text = PAGE.read_text(encoding="utf-8")
    programs = PROGRAM.findall(text)
    assert len(programs) == text.count("```python")

    for program, output in programs:
        (tmp_path / "program.py").write_text(program, encoding="utf-8")
        runpy.run_path(str(tmp_path / "program.py"), run_name="__main__")
        assert capsys.readouterr().out == output, program
