"""A minute of the soak: another seed each time, which the output names with the command."""

from __future__ import annotations

import subprocess
import sys
from random import SystemRandom

SECONDS_MAX = 500.0
"""One minute of faults; on a busy machine the group may be slow to become whole."""


def test_a_minute_of_faults_breaks_no_promise() -> None:
    seed = SystemRandom().randrange(1 << 31)
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", "1", "--seed", str(seed)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert f"repeat: python -m tests.soak --minutes 1 --seed {seed}" in told
    assert " acknowledged" in told
    assert "0 findings" in told


def test_bad_usage_is_told_in_one_line() -> None:
    for arguments in (["--minutes", "0"], ["--minutes", "x"], ["--data", "tests"]):
        done = subprocess.run(
            [sys.executable, "-m", "tests.soak", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
