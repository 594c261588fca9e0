"""The timer of a node, on a loop that rounds times as uvloop does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

import pytest

from simulator.engine.event_loop import VirtualLoop
from tests.dledger.node.member import leading

Ts = TypeVarTuple("Ts")


class RoundingLoop(VirtualLoop):
    """Timers fire at the nearest millisecond, so some fire too early."""

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        rounded = max(round(when * 1000) / 1000, self.now)
        return super().call_at(rounded, callback, *args, context=context)


def test_a_node_does_not_look_again_and_again_until_something_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within one instant the loop would end it as a spinning process."""
    loop = RoundingLoop()

    async def looks() -> int:
        async with leading(loop) as member:
            await asyncio.sleep(0.0004)  # deadlines lie between two milliseconds from now on
            core, looked = member.node.driver.core, 0
            tick = core.tick

            def counted(now: float) -> None:
                nonlocal looked
                looked += 1
                tick(now)

            monkeypatch.setattr(core, "tick", counted)
            before = member.peers.heartbeats
            await asyncio.sleep(10)
            assert member.leads
            assert member.peers.heartbeats > before
            return looked

    try:
        assert loop.run_until_complete(looks()) < 10 * 60
    finally:
        loop.close()
