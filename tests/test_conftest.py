"""What holds for all tests."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOMS, TESTS
from tests.support.work_shares import SPARK, in_order, unit_of


@settings(max_examples=2)
@given(st.booleans())
def test_random_tests_do_not_fail_for_being_slow(flag: bool) -> None:
    time.sleep(0.25)
    assert flag in {True, False}


def test_a_test_without_a_mark_starts_no_process() -> None:
    with pytest.raises(RuntimeError, match=r"subprocess\.Popen: mark it as `processes`"):
        subprocess.Popen([sys.executable, "-c", ""])


def test_quick_imports_all_but_the_folders_whose_tests_start_processes() -> None:
    rules = (TESTS.parent / "Makefile").read_text()
    (named,) = re.findall(r"^ROOMS := (.*)$", rules, re.M)
    assert set(named.split()) == ROOMS.keys()


@pytest.mark.processes
def test_a_test_with_the_mark_does() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_a_worker_takes_a_whole_file_and_all_of_spark() -> None:
    assert unit_of("tests/store/test_restore.py::test_a[x::y]") == "tests/store/test_restore.py"
    assert unit_of("tests/store/test_restore.py::TestLife::runTest") == unit_of(
        "tests/store/test_restore.py::test_a"
    )
    assert unit_of("tests/spark/test_java.py::test_a") == SPARK
    assert unit_of("tests/spark/audit/test_audit.py::test_b") == SPARK


def test_spark_comes_first_then_long_files_mixed_and_short_ones_at_last() -> None:
    short = ["tests/broker/test_holes.py", "tests/store/test_layers.py"]
    waiting = [f"tests/clients/test_{number}.py" for number in range(20)]
    computing = [f"tests/simulator/test_{number}.py" for number in range(20)]
    long = [*waiting, *computing]
    ordered = in_order(
        {**dict.fromkeys([*short, *long], False), **dict.fromkeys(long, True), SPARK: True}
    )
    assert ordered[0] == SPARK
    assert ordered[-2:] == short
    assert sorted(ordered[1:-2]) == sorted(long)
    first = ordered[1:21]
    assert 5 < sum(unit in waiting for unit in first) < 15
