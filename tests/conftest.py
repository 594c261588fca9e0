"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("any machine")
"""By default an example fails that takes more than 200 ms by the clock, as any does now and then
where the machine has much else to do."""


def pytest_configure() -> None:
    """Whoever ends the tests with SIGTERM (``kill``, ``timeout``, a CI job that is cancelled) gets
    what Ctrl-C gives: the fixtures' ends run, so that no process of a cluster stays behind. And
    what is tested gets the signals that ``nohup``, or a shell's ``&``, would have it ignore."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
