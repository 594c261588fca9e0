"""Planted bugs N of transactions: half messages that wait for their end."""

from __future__ import annotations

from typing import Any

import broker.ingest.ingest
from broker.state.commands import CheckTransaction, EndTransaction
from broker.state.open_transactions import OpenTransaction
from broker.transactions.coordinator import CheckPolicy, TransactionCoordinator
from dledger.node.state_machine import Leadership
from simulator.bugs.broker.lost_state import not_applied, not_in_checkpoints
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import TRANSACTIONS

LEADERS = ("crash", "partition", "pause")
OPEN = "every transaction ends: not within"
bug = BugsOf(TRANSACTIONS, seconds=8.0)


@bug("N33x", OPEN, 5)
def nobody_asked(patch: Patch) -> None:
    """Producers are not asked about transactions that stay open."""
    patch.set(TransactionCoordinator, "_look", lambda _service: None)


@bug("N34x", OPEN, 5, *LEADERS)
def new_leader_asks_nobody(patch: Patch) -> None:
    """A new leader asks about new transactions only, not about those that were open."""

    @patch.around(TransactionCoordinator, "leadership_changed")
    def forgetful(
        changed: Original[None], service: TransactionCoordinator, leadership: Leadership
    ) -> None:
        changed(service, leadership)
        service._due.clear()


@bug("N35x", "and again by", 30, "slow disk")
def second_end_not_noticed(patch: Patch) -> None:
    """A second end of a transaction in progress publishes it again."""

    @patch.around(TransactionCoordinator, "end")
    def careless(
        end: Original[None], service: TransactionCoordinator, offset: int, *given: Any, **named: Any
    ) -> None:
        service._ending.pop(offset, None)
        end(service, offset, *given, **named)


@bug("N36x", "was to be committed", 60)
def transaction_given_up_at_once(patch: Patch) -> None:
    """A transaction is rolled back after the first check without an answer."""

    @patch.instead(CheckPolicy, "is_given_up")
    def hasty(policy: CheckPolicy, transaction: OpenTransaction) -> bool:
        del policy
        return transaction.checks >= 1


@bug("N37x", "and again by | is asked about", 5)
def end_not_kept(patch: Patch) -> None:
    """The end of a transaction is not part of the state."""
    not_applied(patch, EndTransaction)


@bug("N38x", "that nobody had", 5, "stop", "crash")
def open_transactions_not_in_the_checkpoint(patch: Patch) -> None:
    """Open transactions are not in the state that a restart begins with."""
    not_in_checkpoints(patch, "transactions", dict)


@bug("N39x", "is asked about | as part transactions of the broker", 5)
def checks_not_counted(patch: Patch) -> None:
    """The log does not count the checks of a transaction."""
    not_applied(patch, CheckTransaction)


@bug("N40x", "and was not committed", 5)
def rolled_back_message_published(patch: Patch) -> None:
    """A half message is published even if its producer rolls it back."""

    @patch.around(TransactionCoordinator, "_end")
    def generous(
        end: Original[None],
        service: TransactionCoordinator,
        offset: int,
        record: Any,
        ending: Any,
    ) -> None:
        ending.commit = True
        end(service, offset, record, ending)


@bug("N41x", "and was not committed", 5)
def half_message_delivered(patch: Patch) -> None:
    """A half message is stored like any other message."""
    patch.set(broker.ingest.ingest, "is_half_message", lambda _properties: False)
