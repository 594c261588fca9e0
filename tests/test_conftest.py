"""What holds for all tests."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=2)
@given(st.booleans())
def test_random_tests_do_not_fail_for_being_slow(flag: bool) -> None:
    time.sleep(0.25)
    assert flag in {True, False}
