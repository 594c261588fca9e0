"""What a file that is read again changes."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from broker.config.config_file import NODE
from broker.config.config_text import commented_toml
from broker.config.reload import take_changes
from tests.support.config_text import parse_config

BEFORE = parse_config(commented_toml(NODE), "/d")


def test_settings_that_may_change_do_and_the_log_says_what_happened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    after = replace(BEFORE, log_level="debug", flush="async", drain_seconds=1)
    assert take_changes(NODE.settings, BEFORE, after) == replace(
        BEFORE, log_level="debug", drain_seconds=1
    )
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, "flush was changed in the file and needs a restart"),
        (logging.INFO, "drain_seconds is 1 now, it was 35"),
        (logging.INFO, "log_level is debug now, it was info"),
    ]


def test_a_file_that_stayed_as_it_was_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert take_changes(NODE.settings, BEFORE, replace(BEFORE)) is not None
    assert not caplog.records
