"""Planted bugs K, for checks that run with the cluster: transfers, changes, routes, files."""

from __future__ import annotations

from collections.abc import Awaitable, Collection

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
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS, GROUPS, LOOKUPS, WAITING
from store.index.key_file import KEY_ROW_SIZE, IndexFile
from store.index.key_index import KeyFlush, KeyIndex

HAND_OVER = ("leader hands over",)
bug = BugsOf(seconds=8.0)


@bug("K6x", "to campaign", 40, *HAND_OVER)
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


@bug("K6bx", "to campaign", 40, *HAND_OVER)
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


@bug("K7x", "committed for ever: ", 5)
def one_entry_too_many_committed(patch: Patch) -> None:
    """A node's commit index is one too high."""
    commit_to = RaftLog.commit_to
    patch.set(RaftLog, "commit_to", lambda raft_log, index: commit_to(raft_log, index + 1))


@bug(
    "K2x",
    "only the disks of | by a majority, only by",
    25,
    "several members change",
    "partial partition",
    "slow disk",
    seconds=12.0,
    nodes=5,
)
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


@bug("K4x", "after it was healed", 20, world=BROKERS)
def key_lost_until_the_scrub_comes(patch: Patch) -> None:
    """A file of the key index lacks its last row until the scrub has rebuilt it."""

    @patch.instead(KeyFlush, "run")
    def lossy(flush: KeyFlush) -> None:
        rows = flush._rows
        flush._file = flush._index.write(rows[:-KEY_ROW_SIZE] or rows)


@bug("K5x", "names no leader | as the leader of", 5, world=BROKERS)
def new_leader_registered_late(patch: Patch) -> None:
    """A new leader registers at its next round, half a minute later."""

    @patch.around(Registrar, "register_now")
    def late(register_now: Original[None], registrar: Registrar) -> None:
        if not registrar._announced:
            register_now(registrar)


@bug("K5bx", "names no leader", 10, "NameServer crash", world=BROKERS)
def forgotten_broker_keeps_silent(patch: Patch) -> None:
    """A broker whose connection to a NameServer ends does not register again at once."""
    patch.set(Registrar, "_connection_lost", lambda _registrar, _nameserver: None)
    patch.set(Registrar, "_retry_soon", lambda _registrar, _nameserver: None)


@bug("K5cx", "as the leader of", 10, world=BROKERS)
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


@bug("K8x", "as if it were due", 5, world=WAITING)
def delays_half_as_long(patch: Patch) -> None:
    """A message with a delay level waits for half of its time, and its row says so."""
    patch.set(
        store.message.scheduled_topics,
        "DELAYS_MS",
        tuple(delay // 2 for delay in store.message.scheduled_topics.DELAYS_MS),
    )


@bug("K3x", "has named the queue", 10, "crash", "pause", world=GROUPS)
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


@bug("K1x", "does not give", 10, world=LOOKUPS)
def newest_file_of_keys_alone(patch: Patch) -> None:
    """A query by key searches only the newest file of the index."""
    lookup_file = KeyIndex._lookup_file

    @patch.instead(KeyIndex, "_lookup_file")
    def newest(index: KeyIndex, file: IndexFile, key_hash: int, first: int, last: int) -> list[int]:
        return lookup_file(index, file, key_hash, first, last) if file is index.files[-1] else []
