"""Planted bugs N of transactions: half messages that wait for their end."""

from __future__ import annotations

from typing import Any

import broker.ingest.ingest
from broker.state.broker_state import BrokerState
from broker.state.commands import CheckTransaction, Command, EndTransaction
from broker.state.open_transactions import OpenTransaction
from broker.transactions.coordinator import CheckPolicy, TransactionCoordinator
from dledger.node.state_machine import Leadership
from simulator.bugs.planted_bug import Bug, Patch
from simulator.worlds.registry import TRANSACTIONS


def nobody_asked(patch: Patch) -> None:
    """Producers are not asked about transactions that stay open."""
    patch.set(TransactionCoordinator, "_look", lambda _service: None)


def new_leader_asks_nobody(patch: Patch) -> None:
    """A new leader asks about new transactions only, not about those that were open."""
    changed = TransactionCoordinator.leadership_changed

    def forgetful(service: TransactionCoordinator, leadership: Leadership) -> None:
        changed(service, leadership)
        service._due.clear()

    patch.set(TransactionCoordinator, "leadership_changed", forgetful)


def second_end_not_noticed(patch: Patch) -> None:
    """A second end of a transaction in progress publishes it again."""
    end = TransactionCoordinator.end

    def careless(service: TransactionCoordinator, offset: int, *given: Any, **named: Any) -> None:
        service._ending.pop(offset, None)
        end(service, offset, *given, **named)

    patch.set(TransactionCoordinator, "end", careless)


def transaction_given_up_at_once(patch: Patch) -> None:
    """A transaction is rolled back after the first check without an answer."""

    def hasty(policy: CheckPolicy, transaction: OpenTransaction) -> bool:
        del policy
        return transaction.checks >= 1

    patch.set(CheckPolicy, "is_given_up", hasty)


def end_not_kept(patch: Patch) -> None:
    """The end of a transaction is not part of the state."""
    apply = BrokerState.apply

    def forgetful(state: BrokerState, command: Command) -> None:
        if not isinstance(command, EndTransaction):
            apply(state, command)

    patch.set(BrokerState, "apply", forgetful)


def open_transactions_not_in_the_checkpoint(patch: Patch) -> None:
    """Open transactions are not in the state that a restart begins with."""
    pack = BrokerState.to_bytes

    def without(state: BrokerState) -> bytes:
        opened, state.transactions = state.transactions, {}
        try:
            return pack(state)
        finally:
            state.transactions = opened

    patch.set(BrokerState, "to_bytes", without)


def checks_not_counted(patch: Patch) -> None:
    """The log does not count the checks of a transaction."""
    apply = BrokerState.apply

    def forgetful(state: BrokerState, command: Command) -> None:
        if not isinstance(command, CheckTransaction):
            apply(state, command)

    patch.set(BrokerState, "apply", forgetful)


def rolled_back_message_published(patch: Patch) -> None:
    """A half message is published even if its producer rolls it back."""
    end = TransactionCoordinator._end

    def generous(service: TransactionCoordinator, offset: int, record: Any, ending: Any) -> None:
        ending.commit = True
        end(service, offset, record, ending)

    patch.set(TransactionCoordinator, "_end", generous)


def half_message_delivered(patch: Patch) -> None:
    """A half message is stored like any other message."""
    patch.set(broker.ingest.ingest, "is_half_message", lambda _properties: False)


def _bug(id_: str, plant: Any, says: str, seeds: int, *kinds: str) -> Bug:
    return Bug(id_, plant, says, seeds, seconds=8.0, world=TRANSACTIONS, kinds=kinds)


LEADERS = ("crash", "partition", "pause")
OPEN = "every transaction ends: not within"

BUGS = (
    _bug("N33x", nobody_asked, OPEN, 5),
    _bug("N34x", new_leader_asks_nobody, OPEN, 5, *LEADERS),
    _bug("N35x", second_end_not_noticed, "and again by", 30, "slow disk"),
    _bug("N36x", transaction_given_up_at_once, "was to be committed", 10),
    _bug("N37x", end_not_kept, "and again by | is asked about", 5),
    _bug("N38x", open_transactions_not_in_the_checkpoint, "that nobody had", 5, "stop", "crash"),
    _bug("N39x", checks_not_counted, "is asked about", 5),
    _bug("N40x", rolled_back_message_published, "and was not committed", 5),
    _bug("N41x", half_message_delivered, "and was not committed", 5),
)
