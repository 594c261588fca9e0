"""Invariants that hold after every step of every run, also after losses, delays and crashes."""

from __future__ import annotations

from dledger.errors import InvariantError, PeerError
from dledger.raft.core import Raft
from dledger.raft.messages import AppendAccepted, AppendRequest, VoteRequest, VoteResponse
from dledger.raft.quorum import majority
from dledger.raft.ready import Read, Write
from tests.dledger.raft.core_cluster import Cluster
from tests.dledger.raft.observer import Observer, Packet, RaftState


class Invariants(Observer):
    """Raft's five properties (thesis, figure 3.2), and that nobody promises what is not durable.

    The chain CRC of an entry stands for the whole log up to it. So log matching is one comparison:
    all entries of one index and term, on all nodes, have the same chain.
    """

    def __init__(self) -> None:
        self.cluster: Cluster  # set when the cluster is made
        self.leaders: dict[int, str] = {}
        self.chains: dict[tuple[int, int], int] = {}
        self.committed: list[tuple[int, int, int]] = []  # (term, chain, term of the committer)
        self.votes: dict[tuple[str, int], str] = {}
        self.promised_terms: dict[str, int] = {}
        self.wiped: dict[str, int] = {}  # nodes that lost their disk and do not count yet
        self.truncations = 0
        self.disk_reads = 0

    def sent(self, packet: Packet) -> None:
        name, to, message = packet
        disk = self.cluster.disks[name]
        match message:
            case VoteRequest(term=term, pre_vote=False):
                assert disk.term >= term, f"{name} asks for votes in {term} before that is durable"
            case VoteResponse(term=term, granted=True, pre_vote=False):
                assert disk.term >= term, f"{name} votes in term {term} before that is durable"
                self._vote(name, term, to)
            case AppendAccepted(term=term, match_index=match):
                assert disk.term >= term, f"{name} confirms in term {term} before that is durable"
                self.promised_terms[name] = max(self.promised_terms.get(name, 0), term)
                assert match < len(disk.entries), f"{name} confirms {match}, not durable"
                leader = self.cluster.cores.get(to)
                leads = leader is not None and leader.term == term and leader.leads
                if match >= 0 and leader is not None and leads:
                    ours = disk.entries[match].term
                    assert leader.entry_cache.term_at(match) == ours, (
                        f"{name} confirms another {match}"
                    )
            case AppendRequest(entries=entries):
                for entry in entries:
                    self._seen(entry.index, entry.term, entry.chain_crc)
            case _:
                pass

    def _vote(self, name: str, term: int, candidate: str) -> None:
        before = self.votes.setdefault((name, term), candidate)
        assert before == candidate, f"{name} votes for {before} and {candidate} in term {term}"
        self.promised_terms[name] = max(self.promised_terms.get(name, 0), term)

    def _seen(self, index: int, term: int, chain: int) -> None:
        known = self.chains.setdefault((index, term), chain)
        assert known == chain, f"two logs with an entry {index} of term {term}"

    def reads(self, node: str, read: Read) -> None:
        self.disk_reads += 1

    def writes(self, node: str, write: Write, held: bool) -> None:
        self.truncations += write.truncate_from is not None
        for entry in write.entries:
            self._seen(entry.index, entry.term, entry.chain_crc)

    def durable(self, node: str, write: Write) -> None:
        if write.hard_state is not None and write.hard_state[1] == node:
            self._vote(node, write.hard_state[0], node)

    def stands(self, node: str, raft_state: RaftState) -> None:
        core = self.cluster.cores[node]
        assert raft_state.term >= self.promised_terms.get(node, 0), f"the term of {node} went back"
        if raft_state.role != "leader":
            return
        leader = self.leaders.setdefault(raft_state.term, node)
        assert leader == node, f"{leader} and {node} lead term {raft_state.term}"
        for index, (term, _, by_term) in enumerate(self.committed):
            if by_term < raft_state.term:
                held = core.entry_cache.term_at(index)
                assert held == term, f"leader {node} of {raft_state.term} lacks {index}/{term}"

    def commits(self, node: str, first: int, last: int) -> None:
        core = self.cluster.cores[node]
        assert first <= last, f"the commit index of {node} went back from {first - 1} to {last}"
        assert last <= core.entry_cache.last_index, f"{node} commits {last}, its log is shorter"
        for index in range(first, last + 1):
            term = core.entry_cache.term_at(index)
            assert term is not None
            chain = self.chains[index, term]
            if index < len(self.committed):
                known = self.committed[index][:2]
                assert known == (term, chain), f"{node} commits {index}/{term}, not {known}"
            else:
                self.committed.append((term, chain, core.term))
        if core.role.value == "leader":
            assert core.entry_cache.term_at(last) == core.term, (
                f"{node} commits {last} of an older term"
            )
            self._held_by_majority(core, last)

    def _held_by_majority(self, core: Raft, index: int) -> None:
        term, chain, _ = self.committed[index]
        for voters in core.configuration.quorums:
            disks = [self.cluster.disks[name] for name in voters]
            held = [disk for disk in disks if len(disk.entries) > index]
            count = sum(disk.entries[index].chain_crc == chain for disk in held)
            # Confirmations of a node before it lost its disk were right.
            count += any(name in voters for name in self.wiped)
            assert count >= majority(len(disks)), (
                f"{index}/{term} is durable on {count} of {voters} only"
            )

    def refuses(self, node: str, error: PeerError) -> None:
        raise AssertionError(f"{node} refuses an honest peer: {error}")

    def stops(self, node: str, error: InvariantError) -> None:
        raise AssertionError(f"{node} stops: {error}")


def check_converged(cluster: Cluster) -> None:
    """Checks liveness once all faults are healed: one leader, one log, all of it committed."""
    leader_state = [core for core in cluster.cores.values() if core.role.value == "leader"]
    assert len(leader_state) == 1, f"{len(leader_state)} leaders"
    leader_state[0].check_may_propose()
    members = leader_state[0].configuration.members
    assert leader_state[0].node in members, f"{leader_state[0].node} leads, and is no member"
    cores = {name: core for name, core in cluster.cores.items() if name in members}
    roles = sorted(core.role.value for core in cores.values())
    assert roles == ["follower"] * (len(roles) - 1) + ["leader"], f"no single leader: {roles}"
    ends = {
        name: (
            core.entry_cache.last_index,
            core.entry_cache.chain_crc,
            core.durable_index,
            core.commit_index,
        )
        for name, core in cores.items()
    }
    last, *_ = next(iter(ends.values()))
    assert all(end[0] == end[2] == end[3] == last for end in ends.values()), f"apart: {ends}"
    assert len({end[1] for end in ends.values()}) == 1, f"different logs: {ends}"
    found = {name: core.configuration for name, core in cores.items()}
    assert len({str(each) for each in found.values()}) == 1, f"different members: {found}"
    assert not leader_state[0].configuration.is_joint, "a change of the members has no end"
