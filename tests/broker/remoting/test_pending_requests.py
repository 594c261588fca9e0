"""The requests of one connection that wait for their answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.remoting.pending_requests import Done, PendingRequests
from broker.remoting.protocol.errors import CallError, RequestTimeoutError
from broker.remoting.protocol.frame import Frame
from tests.support.virtual_network import NetworkedLoop

TIMEOUT = 3.0


class Counted(dict[int, tuple[Done, float]]):
    """Counts the requests that are looked at by going over all of them."""

    looks = 0

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()


@pytest.mark.parametrize("requests", [1, 100, 10_000])
async def test_requests_to_a_silent_peer_end_in_time_and_cost_little(
    loop: NetworkedLoop, requests: int
) -> None:
    """Each has a deadline of its own. All were looked at for each of them."""
    pending = PendingRequests(loop, "peer")
    pending.waiting = counted = Counted()
    late: list[float] = []

    def wait_for_answer() -> None:
        deadline = loop.time() + TIMEOUT

        def done(_answer: Frame | None, failure: CallError | None) -> None:
            assert isinstance(failure, RequestTimeoutError)
            late.append(loop.time() - deadline)

        pending.add(TIMEOUT, done)

    for each in range(requests):
        loop.call_later(TIMEOUT * each / requests, wait_for_answer)
    await asyncio.sleep(2 * TIMEOUT + 0.1)
    assert len(late) == requests
    assert max(late) <= requests / 1e6 + 1e-9
    assert counted.looks <= 2 * TIMEOUT * 1e6 + 4 * requests
    assert not pending.waiting
