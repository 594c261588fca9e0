"""How the process of a node is set up."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

THREADS = """
import os
from broker.cli.commands.node import tune_interpreter
tune_interpreter()
import numpy
print(len(os.listdir("/proc/self/task")))
"""


def test_numpy_starts_no_threads_in_a_node() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
