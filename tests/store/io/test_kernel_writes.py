"""What the kernel gives for writes that nobody waits for, and what it holds until their end."""

from __future__ import annotations

import platform

import pytest

from store.io import kernel_aio
from store.io.async_io import AsyncWrites
from tests.store.io.hand_kernel import Clock


def test_what_the_kernel_does_not_give_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_aio, "system_call", lambda *_arguments: -1)
    assert AsyncWrites.open(Clock().time) is None


def test_where_there_are_none_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "sparc")
    assert AsyncWrites.open(Clock().time) is None
