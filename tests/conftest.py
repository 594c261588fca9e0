"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Whoever ends the tests with SIGTERM (``kill``, ``timeout``, a CI job that is cancelled) gets
    what Ctrl-C gives: the fixtures' ends run, so that no process of a cluster stays behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
