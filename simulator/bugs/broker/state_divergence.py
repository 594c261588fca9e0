"""Planted bugs P: only one replica's state is wrong, and the proof must find it.

Usually the simulator itself compares the states of the replicas after every entry. Here it does
not: the shipped proof must report a difference within a second
(``broker/maintenance/state_proofs.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import broker.maintenance.state_proofs
from broker.server.broker import Broker
from broker.state.commands import (
    Command,
    CommitOffset,
    EndTransaction,
    Expire,
    Proof,
    PutTopic,
    Schedule,
    StoreRequests,
    Timer,
    Trim,
)
from broker.state.queue_expiry import QueueFirsts
from broker.state.state_machine import BrokerStateMachine
from dledger.node.member_features import MemberFeatures
from simulator.bugs.planted_bug import BugsOf, Original, Patch, Plant
from simulator.invariants.invariant import Invariant
from simulator.invariants.raft.state_machine_safety import StateMachineSafety
from simulator.worlds.registry import BROKERS, RETENTION, TRANSACTIONS, WAITING
from store.io.filesystem import Bytes
from store.log.entry import Entry
from store.message.batch import Batch
from store.state.state_digests import StateVerdict, by_table, judge

ONE = "n1"
"""The replica that has the bug."""

Change: TypeAlias = Callable[[BrokerStateMachine, Sequence[Command]], Sequence[Command]]

bug = BugsOf(BROKERS, usual=("client pause",))


def _differs(table: str, id_: str, *kinds: str, world: str = BROKERS) -> Callable[[Plant], Plant]:
    """As ``bug``: the proof must find the difference in that table."""
    return bug(id_, f"has another state in {table}, and says so in time", 10, *kinds, world=world)


def _blindfold(patch: Patch) -> None:
    """The simulator's own comparison is off."""
    patch.set(StateMachineSafety, "applies", Invariant.applies)
    patch.set(StateMachineSafety, "restored", Invariant.restored)
    patch.set(StateMachineSafety, "healed", Invariant.healed)


def _is_the_one(machine: BrokerStateMachine) -> bool:
    told = machine.listener
    return isinstance(told, Broker) and told.context.config.node == ONE


def obeys_otherwise(patch: Patch, change: Change) -> None:
    """One replica obeys other commands than those in the log."""
    _blindfold(patch)

    @patch.around(BrokerStateMachine, "_apply_commands")
    def obey(
        apply: Original[Proof | None],
        machine: BrokerStateMachine,
        commands: Sequence[Command],
        entry: Entry,
        expired: Iterator[QueueFirsts],
    ) -> Proof | None:
        if _is_the_one(machine):
            commands = change(machine, commands)
        return apply(machine, commands, entry, expired)


def without(*kinds: type[Command]) -> Change:
    return lambda _machine, commands: [each for each in commands if not isinstance(each, kinds)]


@_differs("offsets", "P1x")
def one_replica_loses_a_committed_offset(patch: Patch) -> None:
    """One replica does not apply committed offsets."""
    obeys_otherwise(patch, without(CommitOffset))


@_differs("topics", "P2x")
def one_replica_has_other_settings_of_a_topic(patch: Patch) -> None:
    """One replica makes each topic with one queue too many."""

    def change(_machine: BrokerStateMachine, commands: Sequence[Command]) -> Sequence[Command]:
        return [
            each._replace(read_queues=each.read_queues + 1) if isinstance(each, PutTopic) else each
            for each in commands
        ]

    obeys_otherwise(patch, change)


@_differs("requests", "P3x")
def one_replica_forgets_requests(patch: Patch) -> None:
    """One replica does not remember the requests of an entry."""
    obeys_otherwise(patch, without(StoreRequests))


@_differs("queues, log", "P4x", "expiry")
def one_replica_keeps_what_expired(patch: Patch) -> None:
    """One replica does not move its queues when the log expires."""
    obeys_otherwise(patch, without(Expire))


@_differs("queues", "P12x", "expiry", world=RETENTION)
def one_replica_keeps_what_its_topic_gave_up(patch: Patch) -> None:
    """One replica does not move the beginning of a queue by the retention of its topic."""
    obeys_otherwise(patch, without(Trim))


@_differs("transactions", "P5x", world=TRANSACTIONS)
def one_replica_leaves_transactions_open(patch: Patch) -> None:
    """One replica does not apply the end of a transaction."""
    obeys_otherwise(patch, without(EndTransaction))


@_differs("waiting", "P7x", world=WAITING)
def one_replica_loses_what_was_delivered_late(patch: Patch) -> None:
    """One replica does not apply the progress of scheduled messages."""
    obeys_otherwise(patch, without(Schedule, Timer))


@_differs("transactions", "P6x", world=TRANSACTIONS)
def one_replica_forgets_a_transaction(patch: Patch) -> None:
    """One replica opens no transaction for a half message."""
    _blindfold(patch)

    @patch.around(BrokerStateMachine, "_open_transactions")
    def deaf(
        opened: Original[None],
        machine: BrokerStateMachine,
        first_offset: int,
        rows: Bytes,
        batch: Batch,
    ) -> None:
        if not _is_the_one(machine):
            opened(machine, first_offset, rows, batch)


@_differs("topics", "P8x")
def one_replica_forgets_by_itself(patch: Patch) -> None:
    """One replica loses a topic from memory without a command."""

    def change(machine: BrokerStateMachine, commands: Sequence[Command]) -> Sequence[Command]:
        if any(isinstance(each, CommitOffset) for each in commands):
            machine.state.topics.pop("bills", None)
        return commands

    obeys_otherwise(patch, change)


@_differs("offsets", "P9x", "crash")
def one_replica_starts_without_an_offset(patch: Patch) -> None:
    """One replica forgets an offset of each group when it loads a checkpoint."""
    _blindfold(patch)

    @patch.around(BrokerStateMachine, "restore")
    def forgetful(
        restore: Original[None], machine: BrokerStateMachine, state: bytes | None
    ) -> None:
        restore(machine, state)
        if _is_the_one(machine):
            for queues in filter(None, machine.state.offsets.values()):
                queues.popitem()
            machine.digests.begin()


@bug("P10x", "gives up a state that is that of most", 10)
def one_member_is_believed(patch: Patch) -> None:
    """A proof is judged by one member's digests and not by the majority's."""
    one_replica_loses_a_committed_offset(patch)

    @patch.instead(broker.maintenance.state_proofs, "judge")
    def credulous(reports: Mapping[str, bytes]) -> StateVerdict:
        said = by_table(reports.get(ONE, b""))
        return judge(reports)._replace(right=said, wrong={}, contested=())


@bug("P11x", "is given a command that it does not know", 40, seconds=2.0)
def commands_written_before_all_know_them(patch: Patch) -> None:
    """A leader writes new commands before all members have announced them."""

    @patch.instead(MemberFeatures, "known_by_all")
    def careless(_features: MemberFeatures, _feature: str) -> bool:
        return True
