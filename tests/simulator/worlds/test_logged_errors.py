"""What shipped code catches, logs and survives is found all the same."""

from __future__ import annotations

import logging
from typing import NoReturn

import pytest

from broker.remoting.processors.consumer_offsets import OffsetProcessor
from simulator.engine.violation import Violation
from simulator.faults.injector import FaultPlan
from simulator.worlds.logged_errors import logged_errors_reported
from simulator.worlds.registry import CALM, Run


def test_a_handler_of_requests_that_fails_breaks_a_promise_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(*_request: object) -> NoReturn:
        raise TypeError("no topic")

    monkeypatch.setattr(OffsetProcessor, "update_consumer_offset", forgetful)
    violation = Run(1, world=CALM, seconds=3.0, plan=FaultPlan((), 1.0)).play().violation
    assert violation is not None
    assert violation.startswith("nobody expected TypeError('no topic') in forgetful: ")


def test_a_disk_that_fails_is_expected() -> None:
    found: list[Violation] = []
    log = logging.getLogger("dledger.remoting")
    with logged_errors_reported(found.append):
        log.error("a request failed", exc_info=OSError(5, "Input/output error"))
        log.error("a request failed", exc_info=KeyError("topic"))
    log.error("a request failed", exc_info=KeyError("later"))
    assert [str(each) for each in found] == ["nobody expected KeyError('topic'): a request failed"]
