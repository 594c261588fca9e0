"""Sends the check-backs that the log has counted.

One entry may count thousands, and a client of gRPC gets its body decompressed. So only one is sent
in a turn of the event loop, and only a few half messages are in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from random import Random

from broker.delivery.message_lookup import MessageLookup
from broker.remoting.connected_clients import ConnectedClients
from broker.remoting.protocol.codes import RequestCode
from broker.scheduled.republisher import real_queue
from broker.state.state_machine import BrokerStateMachine
from broker.transactions.half_message import check_request
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.message.record import decode_record

LOADED_MAX = 16
"""Pace: half messages that are read from the disk, or wait to be sent, at the same time."""

log = logging.getLogger(__name__)


class _Checks:
    """The check-backs of one term, by the offset of the half message."""

    def __init__(self) -> None:
        self.counted: deque[int] = deque()
        self.loading = 0
        self.loaded: deque[tuple[int, Bytes]] = deque()
        self.is_turn_scheduled = False

    def may_load(self) -> bool:
        return bool(self.counted) and self.loading + len(self.loaded) < LOADED_MAX


class CheckSender:
    """Sends check-backs to producers of this process, in the order in which they were counted."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        lookup: MessageLookup,
        clients: ConnectedClients,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        done: Callable[[int], None],
    ) -> None:
        """``done`` gets the offset of a half message when its check-back is sent, or cannot be."""
        self._machine = machine
        self._lookup = lookup
        self._clients = clients
        self._loop = loop
        self._rng = rng
        self._done = done
        self._checks = _Checks()

    def add(self, offset: int) -> None:
        """The log has counted a check-back about the half message at ``offset``."""
        self._checks.counted.append(offset)
        self._go_on(self._checks)

    def stop(self) -> None:
        """Sends none of those that wait."""
        self._checks = _Checks()

    def _go_on(self, checks: _Checks) -> None:
        if not checks.is_turn_scheduled and (checks.loaded or checks.may_load()):
            checks.is_turn_scheduled = True
            self._loop.call_soon(self._turn, checks)

    def _turn(self, checks: _Checks) -> None:
        if checks is not self._checks:
            return
        checks.is_turn_scheduled = False
        sent = checks.loaded.popleft() if checks.loaded else None
        if checks.may_load():
            self._load(checks, checks.counted.popleft())
        self._go_on(checks)
        if sent is not None:
            self._send(*sent)

    def _load(self, checks: _Checks, offset: int) -> None:
        transaction = self._machine.state.transactions.get(offset)
        if transaction is None:
            return

        def loaded(data: Bytes, fault: StoreError | None) -> None:
            checks.loading -= 1
            if checks is not self._checks:
                return
            if fault is None:
                checks.loaded.append((offset, data))
            else:
                self._failed(offset, fault)
            self._go_on(checks)

        checks.loading += 1
        self._lookup.record(transaction.position, loaded)

    def _send(self, offset: int, data: Bytes) -> None:
        transaction = self._machine.state.transactions.get(offset)
        if transaction is None:
            return
        try:
            record = decode_record(data)
            ext, body = check_request(record, transaction.checks)
        except StoreError as damage:
            self._failed(offset, damage)
            return
        # Any client may claim to belong to a producer group.
        topic, _queue_id = real_queue(record.properties)
        found = self._clients.producers.get(transaction.group, {})
        members = [way for way, client in found.items() if client.may_publish(topic)]
        if members:
            self._rng.choice(members).push(RequestCode.CHECK_TRANSACTION_STATE, ext, (body,))
        self._done(offset)

    def _failed(self, offset: int, fault: StoreError) -> None:
        log.warning("cannot ask about the transaction at offset %d: %s", offset, fault)
        self._done(offset)
