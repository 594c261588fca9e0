"""Freed buffers are used again, which only a process of its own can show: it is set for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

_FAULTS = """
import resource, sys
from broker.system.malloc_tuning import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit(3)
def use():
    for _ in range(8):
        held = [b"x" * (512 << 10) for _ in range(16)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


FAULTS_MIN = 1000
"""Of the 16,384 pages that the buffers take, in all eight turns; fewer are not worth saving."""


def faults(mode: str) -> int:
    ended = subprocess.run(
        [sys.executable, "-c", _FAULTS, mode], capture_output=True, text=True, check=False
    )
    if ended.returncode == 3:
        pytest.skip("the C library has no such settings")
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def test_buffers_that_come_and_go_cost_no_page_faults_again() -> None:
    kept, as_it_is = faults("keep"), faults("as it is")
    if as_it_is < FAULTS_MIN:
        pytest.skip(f"this C library uses freed memory again by itself: {as_it_is} page faults")
    assert kept < as_it_is / 10
