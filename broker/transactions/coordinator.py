"""Transactions on the leader: producers end them, or get check-backs.

The outcome of a transaction and its message are in one log entry, so both are stored or neither. A
producer that does not decide gets check-backs (39); the log counts each before it is sent. The
transaction is rolled back after the last check-back without an answer. If no producer of its group
is connected, it is rolled back at the same age, but a new leader first waits until producers have
had the time to say that they are there. So a connected producer is always asked first, even if the
log could not count check-backs for a long time. While the disk is full, none is asked and nothing
is rolled back.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from broker.delivery.message_lookup import MessageLookup
from broker.errors import (
    REFUSALS,
    AccessDeniedError,
    Refusal,
    TransactionMismatchError,
    UnavailableError,
    unavailable,
)
from broker.group_commit.batcher import Batcher
from broker.remoting.connected_clients import EXPIRY_SECONDS, ConnectedClients
from broker.scheduled.republisher import real_queue
from broker.state.commands import CheckTransaction, EndTransaction
from broker.state.open_transactions import OpenTransaction
from broker.state.state_machine import BrokerStateMachine
from broker.transactions.check_sender import CheckSender
from broker.transactions.half_message import committed_message, is_named
from dledger.errors import ProposeError
from dledger.node.state_machine import Leadership
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.message.record import MessageRecord, decode_record

LOOK_TRANSACTIONS = 64
"""The number of check-backs in one turn of the event loop."""

NOBODY_MS = 2_000
"""The pause in seconds before a producer group without a connection is looked up again."""

_ENDED_MIN = 64
"""Pace: so many that have ended stay among those that are due before they are left out."""

log = logging.getLogger(__name__)

Ended = Callable[[Refusal | None], None]
"""Called once: with None when the transaction has ended as requested, or with the refusal."""


May = Callable[[str], bool]
"""Whether the caller may send to the topic of the transaction."""


class CheckPolicy(NamedTuple):
    """The times and the number of check-backs."""

    timeout_ms: int
    interval_ms: int
    checks_max: int

    def first_ms(self, transaction: OpenTransaction) -> int:
        """The time of the first check-back."""
        immunity_ms = transaction.immunity_ms
        return transaction.stored_ms + (self.timeout_ms if immunity_ms < 0 else immunity_ms)

    def due_ms(self, transaction: OpenTransaction) -> int:
        """The time of the next check-back or of the rollback."""
        if transaction.checks == 0:
            return self.first_ms(transaction)
        return transaction.checked_ms + self.interval_ms

    def is_given_up(self, transaction: OpenTransaction) -> bool:
        """Whether there are no more check-backs."""
        return transaction.checks >= self.checks_max

    def is_too_old(self, transaction: OpenTransaction, now_ms: int) -> bool:
        """Whether it has waited for as long as all check-backs take."""
        return now_ms >= self.first_ms(transaction) + self.all_checks_ms

    @property
    def all_checks_ms(self) -> int:
        """The time from the first check-back to the rollback."""
        return self.checks_max * self.interval_ms


@dataclass(slots=True)
class _Ending:
    """An end in progress, with the waiters of its requests."""

    commit: bool
    waiting: list[Ended] = field(default_factory=list)


class TransactionCoordinator:
    """Ends transactions and sends check-backs, while this node is the leader."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        lookup: MessageLookup,
        batcher: Batcher,
        clients: ConnectedClients,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        policy: CheckPolicy,
    ) -> None:
        self._machine = machine
        self._lookup = lookup
        self._batcher = batcher
        self._clients = clients
        self._loop = loop
        self._policy = policy
        self._check_sender = CheckSender(
            machine=machine,
            lookup=lookup,
            clients=clients,
            loop=loop,
            rng=rng,
            done=self._checked,
        )
        self._term: int | None = None
        """The term in which this node serves."""
        self._knows_producers_at = 0.0
        """The loop's time at which the producers have been heard that are connected in this term.
        """
        self._due: list[tuple[float, int]] = []
        """A heap of the loop's times and offsets. The wall clock may be set back, and nobody would
        be asked until it has caught up. Ended transactions stay in it while they are few: their
        producers may have asked for months without a check."""
        self._ending: dict[int, _Ending] = {}
        self._timer: asyncio.Handle | None = None

    # --- events of the broker

    def leadership_changed(self, leadership: Leadership) -> None:
        """A new term starts from the applied state."""
        term = leadership.term if leadership.serving else None
        if term == self._term:
            return
        self.stop()
        self._term = term
        if term is not None:
            patience = min(EXPIRY_SECONDS, self._policy.all_checks_ms / 1000)
            self._knows_producers_at = self._loop.time() + patience
            due_ms = self._policy.due_ms
            opened = self._machine.state.transactions
            for transaction in opened.values():
                # Otherwise a check-back by a clock that was ahead would delay the next one.
                self._batcher.clock.reached(transaction.checked_ms)
            self._due = [
                (self._time_of(due_ms(transaction)), offset)
                for offset, transaction in opened.items()
            ]
            heapq.heapify(self._due)
            self._wait()

    def opened(self, offset: int, transaction: OpenTransaction) -> None:
        """A half message was stored."""
        if self._term is not None:
            self._look_at(self._policy.due_ms(transaction), offset)

    def stop(self) -> None:
        """Stops: ends no transactions and sends no check-backs."""
        self._term = None
        self._due = []
        self._ending = {}
        self._check_sender.stop()
        self._cancel()

    def oldest_needed_position(self) -> int | None:
        """The position of the first half message of an open transaction, or None."""
        opened = self._machine.state.transactions.values()
        return next((transaction.position for transaction in opened), None)

    # --- ending

    def end(
        self,
        offset: int,
        position: int,
        group: str,
        message_id: str,
        *,
        commit: bool,
        ended: Ended,
        may: May = lambda _topic: True,
    ) -> None:
        """Ends the transaction of the half message at ``offset`` and ``position``.

        Raises :class:`~broker.errors.TransactionMismatchError` if the group has no such open
        transaction, and :class:`~dledger.errors.NotLeaderError`. ``ended`` gets
        :class:`~broker.errors.UnavailableError` if the half message cannot be read, and
        :class:`~broker.errors.AccessDeniedError` if the caller ``may`` not send to its topic. The
        transaction is still open then.
        """
        self._batcher.check_serving()
        self._check_open(offset, position, group)
        term = self._term

        def loaded(data: Bytes, error: StoreError | None) -> None:
            try:
                if error is not None:
                    raise error
                if self._term is None or self._term != term:
                    raise UnavailableError("another leader has served meanwhile")
                self._check_open(offset, position, group)
                record = decode_record(data)
                if not is_named(record, message_id):
                    raise TransactionMismatchError(
                        f"The message id wrong: {message_id} is that of another message"
                    )
                if not may(real_queue(record.properties)[0]):
                    raise AccessDeniedError(
                        "the transaction is of a topic to which you may not send"
                    )
                self._end(offset, record, _Ending(commit, [ended]))
            except REFUSALS as refusal:
                ended(refusal)
            except StoreError as fault:
                # Not the text for an ended transaction: it is open, and a retry may read
                # it.
                ended(unavailable("the half message cannot be read now", fault))

        # Nothing of the request counts before it is known to be the producer's: it would keep the
        # producer from ending the transaction meanwhile.
        self._lookup.record(position, loaded)

    def _check_open(self, offset: int, position: int, group: str) -> None:
        transaction = self._machine.state.transactions.get(offset)
        if transaction is None:
            raise TransactionMismatchError(
                "Find prepared transaction message failed: no transaction is open at offset "
                f"{offset}; it has ended, or there never was one"
            )
        if transaction.group != group:
            raise TransactionMismatchError(
                f"The producer group wrong: it is not a transaction of {group}"
            )
        if transaction.position != position:
            raise TransactionMismatchError(
                f"The commit log offset wrong: {position} is that of another message"
            )

    def _end(self, offset: int, record: MessageRecord, ending: _Ending) -> None:
        under_way = self._ending.get(offset)
        if under_way is not None:
            if under_way.commit is not ending.commit:
                raise TransactionMismatchError(
                    "the transaction is being ended with the other outcome"
                )
            under_way.waiting += ending.waiting
            return
        publication = [committed_message(record, self._batcher.topic)] if ending.commit else []
        self._batcher.add_in_one_entry(
            publication,
            (EndTransaction(offset, record.position),),
            partial(self._ended, offset, ending),
        )
        self._ending[offset] = ending

    def _ended(self, offset: int, ending: _Ending, error: Refusal | None) -> None:
        if self._ending.get(offset) is ending:
            del self._ending[offset]
        for ended in ending.waiting:
            ended(error)

    # --- asking

    def _look(self) -> None:
        """Handles due transactions, and schedules the next look."""
        self._timer = None
        now, now_ms = self._loop.time(), self._batcher.now_ms()
        for _ in range(LOOK_TRANSACTIONS):
            if not self._due or self._due[0][0] > now:
                break
            _at, offset = heapq.heappop(self._due)
            transaction = self._machine.state.transactions.get(offset)
            if transaction is None:
                continue
            try:
                self._act(offset, transaction, now_ms)
            except ProposeError as error:
                log.warning("cannot ask about a transaction now: %s", error)
                self._look_at(now_ms + NOBODY_MS, offset)
        self._wait()

    def _act(self, offset: int, transaction: OpenTransaction, now_ms: int) -> None:
        policy = self._policy
        # A commit is a message. While the disk has no room for it, no check counts: the producer
        # may have decided, and cannot say so.
        if offset in self._ending or not self._batcher.takes_messages:
            self._look_at(now_ms + policy.interval_ms, offset)
        elif policy.is_given_up(transaction):
            self._give_up(offset, transaction, now_ms)
        elif transaction.group in self._clients.producers:
            self._batcher.add_command(
                CheckTransaction(offset, transaction.position, now_ms),
                partial(self._counted, offset, self._term),
            )
        elif (
            policy.is_too_old(transaction, now_ms)
            # There was no leader for long, or another clock: its producer may be about to return.
            and self._loop.time() >= self._knows_producers_at
        ):
            self._give_up(offset, transaction, now_ms)
        else:
            self._look_at(now_ms + NOBODY_MS, offset)

    def _give_up(self, offset: int, transaction: OpenTransaction, now_ms: int) -> None:
        log.warning(
            "rolled back: the transaction at offset %d of the group %s, after %d checks",
            offset,
            transaction.group,
            transaction.checks,
        )
        ending = _Ending(commit=False)
        self._batcher.add_command(
            EndTransaction(offset, transaction.position), partial(self._ended, offset, ending)
        )
        self._ending[offset] = ending
        self._look_at(now_ms + self._policy.interval_ms, offset)

    def _counted(self, offset: int, term: int | None, error: ProposeError | None) -> None:
        """The log has counted the check-back: it is sent to the producer."""
        if term != self._term:
            return
        if error is None:
            self._check_sender.add(offset)
        else:
            self._look_at(self._batcher.now_ms() + NOBODY_MS, offset)

    def _checked(self, offset: int) -> None:
        self._look_at(self._batcher.now_ms() + self._policy.interval_ms, offset)

    # --- waiting

    def _look_at(self, due_ms: int, offset: int) -> None:
        at = self._time_of(due_ms)
        opened = self._machine.state.transactions
        if len(self._due) > 2 * len(opened) + _ENDED_MIN:
            self._due = [each for each in self._due if each[1] in opened]
            heapq.heapify(self._due)
        heapq.heappush(self._due, (at, offset))
        if self._due[0] == (at, offset):
            self._wait()

    def _time_of(self, due_ms: int) -> float:
        """The loop's time for ``due_ms``, not before now."""
        return self._loop.time() + max(due_ms - self._batcher.now_ms(), 0) / 1000

    def _wait(self) -> None:
        self._cancel()
        if self._due:
            self._timer = self._loop.call_at(self._due[0][0], self._look)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
