"""The programs of docs/clients.md run as they stand there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.clients.test_real_clients import INSTALLED
from tests.clients.test_rocketmq_5 import endpoints
from tests.cluster.running_cluster import RunningCluster

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def test_the_python_program_sends_and_receives(cluster: RunningCluster, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    done = subprocess.run(
        [str(INSTALLED / "rocketmq_5" / "bin" / "python"), "-c", program],
        env={"HOME": str(tmp_path), "ENDPOINTS": endpoints(cluster)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
