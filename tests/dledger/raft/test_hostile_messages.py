"""Random messages that look right, of members and others: no node stops, and a group recovers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import PeerError
from dledger.raft.configuration import Configuration
from dledger.raft.core import Raft
from dledger.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    RaftMessage,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.replication_evidence import MemberEvidence
from dledger.raft.term_bound import JUMP_MAX, TERM_MAX
from dledger.wire.codec import MessageEncoder, decode_message
from dledger.wire.service_messages import ServiceMessage
from store.log.entry import Entry, EntryKind, build_entry
from tests.dledger.raft.core_cluster import Cluster
from tests.dledger.raft.invariants import Invariants, check_converged
from tests.dledger.raft.observer import Observer
from tests.support.search_effort import searching

T = TypeVar("T")
NAMES = ("n0", "n1", "n2")
STRANGERS = ("n8", "n9")
STEPS = 120
HEALS_SECONDS = 40.0


class NoStops(Observer):
    """Of lies told by a member no more can be asked."""

    def stops(self, node: str, error: Exception) -> None:
        raise AssertionError(f"{node} stops: {error}")


class Liar:
    """Says what could be right, of what it can see from outside, and what is not."""

    def __init__(self, cluster: Cluster, rng: Random, *, knows_the_log: bool) -> None:
        self._cluster = cluster
        self._rng = rng
        self._knows = knows_the_log

    def _one(self, *values: T) -> T:
        return self._rng.choice(values)

    def _term(self, core: Raft) -> int:
        near = core.term + self._rng.randint(-1, 3)
        far = self._one(core.term + JUMP_MAX, 1 << 40, 1 << 62, TERM_MAX)
        return self._one(near, near, near, core.term, far)

    def _index(self, core: Raft) -> int:
        near = self._one(core.commit_index, core.entry_cache.last_index, core.match_index)
        return max(-1, self._one(near, near, near + 1, near - 1, -1, 1 << 40, TERM_MAX))

    def _entries(self, core: Raft, first: int, term: int) -> tuple[Entry, ...]:
        chain, position = self._rng.getrandbits(32), max(0, core.entry_cache.end_position)
        if self._knows and first == core.entry_cache.last_index + 1:
            chain, position = core.entry_cache.chain_crc, core.raft_log.next_position(48)
        found: list[Entry] = []
        for index in range(first, first + self._rng.randint(0, 2)):
            held = core.entry_cache.entry(index)
            if held is not None and self._knows and self._rng.random() < 0.5:
                found.append(held)
                continue
            kind = self._one(EntryKind.DATA, EntryKind.NO_OP, EntryKind.CONFIGURATION)
            body = self._one(b"", b"{", b"[" * 5000, Configuration(NAMES).pack())
            terms = (term, min(term, core.entry_cache.last_term), 0)
            entry = build_entry(kind, max(0, index), self._one(*terms), position, chain, (body,))
            chain, position = entry.chain_crc, entry.end
            found.append(entry)
        return tuple(found)

    def message(self, core: Raft) -> RaftMessage:
        """Of any kind, to that node."""
        term, index, other = self._term(core), self._index(core), self._index(core)
        low = max(0, self._one(term, core.entry_cache.last_term, 0, TERM_MAX))
        disk = self._one(0, 1, core.incarnation, 77)
        held = tuple(
            MemberEvidence(name, self._one(0, disk, core.incarnation), other)
            for name in (*NAMES, "n9")
        )
        term = max(0, term)
        match self._rng.randrange(10):
            case 0:
                return VoteRequest(term, index, low, self._one(True, False), False, disk)
            case 1:
                return VoteResponse(term, self._one(True, False), self._one(True, False), disk)
            case 2:
                entries = self._entries(core, index + 1, term) if index < 1 << 40 else ()
                prev = core.entry_cache.term_at(index)
                prev_term = low if prev is None or self._rng.random() < 0.2 else prev
                return AppendRequest(term, index, prev_term, other, entries)
            case 3:
                return AppendAccepted(term, index, disk)
            case 4:
                return AppendRejected(term, index, other, low)
            case 5:
                number = self._one(0, 1, 5, TERM_MAX)
                return Heartbeat(term, index, number, self._one((), held))
            case 6:
                number = self._one(0, 1, 5, TERM_MAX)
                return HeartbeatResponse(term, index, other, number, disk, self._index(core))
            case 7:
                return TimeoutNow(term)
            case 8:
                return ReadRequest(term, self._rng.randrange(5))
            case _:
                return ReadResponse(term, self._rng.randrange(5), index)

    def tells(self, sender: str, to: str) -> None:
        """One message; a :class:`PeerError` is all that may come of it."""
        core = self._cluster.cores[to]
        try:
            message = over_the_wire(self.message(core))
        except PeerError:
            return
        before = (core.term, core.commit_index)
        told: list[str] = []

        def hear(core: Raft) -> None:
            try:
                core.receive(sender, message, self._cluster.now)
            except PeerError as error:
                told.append(str(error))

        self._cluster._event(to, hear)
        assert all(len(each) < 400 for each in told)
        if to in self._cluster.cores:
            assert core.term >= before[0]
            assert core.commit_index >= before[1]
            assert core.term <= before[0] + JUMP_MAX


def over_the_wire(message: RaftMessage) -> RaftMessage:
    """What arrives of it."""
    found = decode_message(b"".join(bytes(part) for part in MessageEncoder().encode(message)))
    assert not isinstance(found, ServiceMessage)
    return found


def attacked(
    seed: int, observer: Observer, senders: tuple[str, ...], *, knows_the_log: bool
) -> Cluster:
    """A group that works, and stumbles, while those say things."""
    rng = Random(seed)
    incarnations = {name: 50 + place for place, name in enumerate(NAMES)}
    cluster = Cluster(NAMES, [observer], incarnations=incarnations, seed=seed)
    if isinstance(observer, Invariants):
        observer.cluster = cluster
    cluster.run(2.0)
    liar = Liar(cluster, rng, knows_the_log=knows_the_log)
    for _ in range(STEPS):
        up = list(cluster.cores)
        match rng.randrange(12):
            case 0 if len(up) > 1:
                cluster.crash(rng.choice(up))
            case 1 if len(up) < len(NAMES):
                cluster.restart(next(name for name in NAMES if name not in up))
            case 2:
                cluster.run(rng.choice((0.01, 0.1, 1.0, 3.0)))
            case 3:
                for name in up:
                    core = cluster.cores[name]
                    if core.leads and core.transfer_target is None:
                        cluster.propose(name, b"x")
            case 4:
                cluster.deliver_all()
            case _:
                to = rng.choice(up)
                sender = rng.choice([each for each in senders if each != to])
                liar.tells(sender, to)
    for name in NAMES:
        if name not in cluster.cores:
            cluster.restart(name)
    return cluster


def shows_its_seed(test: Callable[[int], None]) -> Callable[[int], None]:
    """Hypothesis draws the seeds, and prints the one that failed."""
    return searching(60)(given(st.integers(0, 1 << 30))(test))


@shows_its_seed
def test_strangers_break_no_promise_and_the_group_goes_on(seed: int) -> None:
    cluster = attacked(seed, Invariants(), STRANGERS, knows_the_log=False)
    cluster.run(HEALS_SECONDS)
    check_converged(cluster)
    [leader] = [name for name, core in cluster.cores.items() if core.leads]
    before = cluster.cores[leader].commit_index
    cluster.propose(leader, b"goes on")
    cluster.run(1.0)
    assert all(core.commit_index > before for core in cluster.cores.values())


@shows_its_seed
def test_whatever_a_member_says_no_node_stops(seed: int) -> None:
    attacked(seed, NoStops(), (*NAMES, *STRANGERS), knows_the_log=True).run(3.0)


class SaysNothingOfTheLog(Liar):
    """A member that lies about terms, votes asked for, what others hold, and who leads."""

    def message(self, core: Raft) -> RaftMessage:
        while True:
            message = super().message(core)
            match message:
                case VoteResponse(granted=True) | AppendAccepted() | HeartbeatResponse():
                    continue  # to count it is what a majority is made of
                case Heartbeat(commit_index=index) if index > core.commit_index:
                    continue
                case AppendRequest():
                    continue
                case _:
                    return message


@shows_its_seed
def test_a_member_that_lies_without_the_log_leaves_a_group_that_elects(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.dledger.raft.test_hostile_messages.Liar", SaysNothingOfTheLog)
        cluster = attacked(seed, NoStops(), (*NAMES, *STRANGERS), knows_the_log=False)
    cluster.run(HEALS_SECONDS)
    check_converged(cluster)
