"""Planted bugs K, for checks that run with the cluster: transfers, changes, routes, files."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any

import store.message.scheduled_topics
from broker.client.message import MessageQueue
from broker.client.producer.queue_selection import QueueSelector, Target
from broker.nameserver.registrations import Registration
from broker.nameserver.route_table import RegisterResult, RouteTable
from broker.server.name_server_registration import Registrar
from dledger.raft.configuration import Configuration
from dledger.raft.leader import LeaderState
from dledger.raft.leadership_transfer import LeadershipTransfer
from dledger.raft.messages import TimeoutNow
from dledger.raft.raft_log import RaftLog
from simulator.bugs.planted_bug import Bug, Original, Patch
from simulator.worlds.registry import BROKERS, GROUPS, LOOKUPS, NODES, WAITING
from store.index.key_file import KEY_ROW_SIZE, IndexFile
from store.index.key_index import KeyFlush, KeyIndex


def proposals_taken_during_a_hand_over(patch: Patch) -> None:
    """A leader that has ordered another node to campaign goes on taking proposals."""

    @patch.around(LeaderState, "check_may_propose")
    def lenient(check: Original[None], leader_state: LeaderState) -> None:
        target, leader_state.leadership_transfer.target = (
            leader_state.leadership_transfer.target,
            None,
        )
        try:
            check(leader_state)
        finally:
            leader_state.leadership_transfer.target = target


def campaign_ordered_before_all_is_there(patch: Patch) -> None:
    """The order to campaign does not wait until the target holds everything and all is
    committed."""

    @patch.instead(LeadershipTransfer, "go_on")
    def hasty(leadership_transfer: LeadershipTransfer) -> None:
        if leadership_transfer.target is not None and not leadership_transfer._sent:
            leadership_transfer._sent = True
            leadership_transfer._ready_builder.send(
                leadership_transfer.target, TimeoutNow(leadership_transfer._term)
            )


def one_entry_too_many_committed(patch: Patch) -> None:
    """A node's commit index is one too high."""
    commit_to = RaftLog.commit_to
    patch.set(RaftLog, "commit_to", lambda raft_log, index: commit_to(raft_log, index + 1))


def new_voters_alone_count_where_several_change(patch: Patch) -> None:
    """While several voters change at once, a majority of the new ones is enough."""
    both = Configuration.quorums.fget  # type: ignore[attr-defined]  # it is a property

    def new_alone(configuration: Configuration) -> tuple[tuple[str, ...], ...]:
        changed = {*configuration.voters} ^ {*configuration.old_voters}
        if configuration.is_joint and len(changed) > 1:
            return (configuration.voters,)
        quorums: tuple[tuple[str, ...], ...] = both(configuration)
        return quorums

    patch.set(Configuration, "quorums", property(new_alone))


def key_lost_until_the_scrub_comes(patch: Patch) -> None:
    """A file of the key index lacks its last row until the scrub has rebuilt it."""

    @patch.instead(KeyFlush, "run")
    def lossy(flush: KeyFlush) -> None:
        rows = flush._rows
        flush._file = flush._index.write(rows[:-KEY_ROW_SIZE] or rows)


def new_leader_registered_late(patch: Patch) -> None:
    """A new leader registers at its next round, half a minute later."""

    @patch.around(Registrar, "register_now")
    def late(register_now: Original[None], registrar: Registrar) -> None:
        if not registrar._announced:
            register_now(registrar)


def forgotten_broker_keeps_silent(patch: Patch) -> None:
    """A broker whose connection to a NameServer ends does not register again at once."""
    patch.set(Registrar, "_connection_lost", lambda _registrar, _nameserver: None)
    patch.set(Registrar, "_retry_soon", lambda _registrar, _nameserver: None)


def first_leader_of_a_name_kept(patch: Patch) -> None:
    """A NameServer keeps the first leader of a name for as long as that lives."""

    @patch.around(RouteTable, "register")
    def faithful(
        register: Original[RegisterResult],
        table: RouteTable,
        registration: Registration,
        channel: int,
        host: str = "",
    ) -> RegisterResult:
        group = table._names.get(registration.broker_name)
        first = None if group is None else group.addresses.get(0)
        if first is not None and (registration.broker_id == 0) != (first == registration.address):
            return RegisterResult("", "")
        return register(table, registration, channel, host)


def _bug(id_: str, plant: Any, says: str, seeds: int, world: str = NODES, *kinds: str) -> Bug:
    return Bug(id_, plant, says, seeds, seconds=8.0, world=world, kinds=kinds)


def delays_half_as_long(patch: Patch) -> None:
    """A message with a delay level waits for half of its time, and its row says so."""
    patch.set(
        store.message.scheduled_topics,
        "DELAYS_MS",
        tuple(delay // 2 for delay in store.message.scheduled_topics.DELAYS_MS),
    )


def named_queue_left_after_a_failed_try(patch: Patch) -> None:
    """A message for a named queue goes to any queue after a failed try."""

    @patch.around(QueueSelector, "search")
    async def anywhere(
        search: Original[Awaitable[Target]],
        choice: QueueSelector,
        topic: str,
        _pinned: MessageQueue | None,
        avoid: Collection[str],
    ) -> Target:
        return await search(choice, topic, None, avoid)


def newest_file_of_keys_alone(patch: Patch) -> None:
    """A query by key searches only the newest file of the index."""
    lookup_file = KeyIndex._lookup_file

    @patch.instead(KeyIndex, "_lookup_file")
    def newest(index: KeyIndex, file: IndexFile, key_hash: int, first: int, last: int) -> list[int]:
        return lookup_file(index, file, key_hash, first, last) if file is index.files[-1] else []


HAND_OVER = ("leader hands over",)

BUGS = (
    _bug("K1x", newest_file_of_keys_alone, "does not give", 10, LOOKUPS),
    Bug(
        "K2x",
        new_voters_alone_count_where_several_change,
        "only the disks of | by a majority, only by",
        25,
        nodes=5,
        seconds=12.0,
        kinds=("several members change", "partial partition", "slow disk"),
    ),
    _bug(
        "K3x",
        named_queue_left_after_a_failed_try,
        "has named the queue",
        10,
        GROUPS,
        "crash",
        "pause",
    ),
    _bug("K4x", key_lost_until_the_scrub_comes, "after it was healed", 20, BROKERS),
    _bug("K5x", new_leader_registered_late, "names no leader | as the leader of", 5, BROKERS),
    _bug("K5bx", forgotten_broker_keeps_silent, "names no leader", 10, BROKERS, "NameServer crash"),
    _bug("K5cx", first_leader_of_a_name_kept, "as the leader of", 10, BROKERS),
    _bug("K6x", proposals_taken_during_a_hand_over, "to campaign", 40, NODES, *HAND_OVER),
    _bug("K6bx", campaign_ordered_before_all_is_there, "to campaign", 40, NODES, *HAND_OVER),
    _bug("K7x", one_entry_too_many_committed, "committed for ever: ", 5),
    _bug("K8x", delays_half_as_long, "as if it were due", 5, WAITING),
)
