"""Which deliveries are renewed while their consumer works: ``auto_renew`` of a push consumer.

The leader makes such a message invisible for a short time, and repeats that. So the messages of a
dead consumer are soon received by another. Everything needed is in the replicated state
(:mod:`broker.pop.renewed_receipts`), so a new leader continues the renewals.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from broker.group_commit.batcher import Batcher
from broker.pop.receiver import committing
from broker.pop.renewed_receipts import owner_of, renewed
from broker.state.commands import PopChange
from broker.state.pop_queues import PopDelivery, PopKey
from broker.state.state_machine import BrokerStateMachine

_ENTRY_RENEWALS = 256
"""Pace: the most renewals in one log entry."""


class Renewable(NamedTuple):
    """A delivery that may be renewed; ``left_ms``: the time until it is visible."""

    offset: int
    delivery: PopDelivery
    left_ms: int


class AutoRenewal:
    """Finds and renews these deliveries, on the leader."""

    def __init__(self, machine: BrokerStateMachine, batcher: Batcher) -> None:
        self._machine = machine
        self._batcher = batcher

    def queues(self) -> list[PopKey]:
        """The queues that may have deliveries."""
        queues = self._machine.state.pop.queues
        return [key for key, queue in queues.items() if queue.deliveries]

    def deliveries(self, key: PopKey, clients: Container[int]) -> Iterator[Renewable]:
        """The deliveries of these clients, given by
        :func:`~broker.pop.renewed_receipts.client_hash`. The queue must not change meanwhile."""
        queue = self._machine.state.pop.queues.get(key)
        now_ms = self._batcher.now_ms()
        for offset, delivery in () if queue is None else queue.deliveries.items():
            left_ms = delivery.visible_ms - now_ms
            if delivery.attempt and left_ms > 0 and owner_of(delivery.nonce) in clients:
                yield Renewable(offset, delivery, left_ms)

    async def renew(self, key: PopKey, found: Sequence[Renewable], invisible_ms: int) -> None:
        """Makes the deliveries of ``found`` that are unchanged invisible for ``invisible_ms`` from
        now on. The consumer has these messages.

        Raises one of :data:`~broker.errors.REFUSALS`.
        """
        for start in range(0, len(found), _ENTRY_RENEWALS):
            now_ms = self._batcher.now_ms()
            pending = self._batcher.pop_queue(key)
            known = {} if pending is None else pending.queue.deliveries
            until_ms = now_ms + invisible_ms
            commands = [
                PopChange(*key, at, renewed(delivery.nonce), until_ms, now_ms)
                for at, delivery, _left_ms in found[start : start + _ENTRY_RENEWALS]
                if delivery.visible_ms > now_ms and known.get(at) == delivery
            ]
            if commands:
                await committing(partial(self._batcher.add_in_one_entry, (), commands))
