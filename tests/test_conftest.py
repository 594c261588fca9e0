"""What holds for all tests."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=2)
@given(st.booleans())
def test_random_tests_do_not_fail_for_being_slow(flag: bool) -> None:
    time.sleep(0.25)
    assert flag in {True, False}


def test_a_test_without_a_mark_starts_no_process() -> None:
    with pytest.raises(RuntimeError, match=r"subprocess\.Popen: mark it as `processes`"):
        subprocess.Popen([sys.executable, "-c", ""])


@pytest.mark.processes
def test_a_test_with_the_mark_does() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)
