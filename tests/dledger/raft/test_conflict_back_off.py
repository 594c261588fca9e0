"""How a leader finds where a follower's log parts from its own, against walking entry by entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dledger.raft.messages import AppendAccepted, AppendRejected, AppendRequest
from store.log.entry import Entry
from tests.dledger.raft.core_cluster import Cluster, Disk
from tests.dledger.raft.observer import Observer, Packet
from tests.dledger.raft.written_log import written_log
from tests.support.search_effort import searching


class Probes(Observer):
    """The appends that n0 sent to n2 until the first was accepted, and how that was."""

    def __init__(self) -> None:
        self.rejected = 0
        self.met_at: int | None = None
        self._last_prev = -1

    def delivered(self, packet: Packet) -> None:
        if self.met_at is not None:
            return
        match packet:
            case ("n0", "n2", AppendRequest(prev_index=prev)):
                self._last_prev = prev
            case ("n2", "n0", AppendRejected()):
                self.rejected += 1
            case ("n2", "n0", AppendAccepted()):
                self.met_at = self._last_prev


@st.composite
def parted_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """The terms of two logs that were one up to some index. No term had two leaders, so behind it
    the leader's terms are odd and the follower's even; either may be behind."""

    def suffix(first: int) -> list[int]:
        steps = draw(st.lists(st.sampled_from((0, 0, 2, 4)), max_size=12))
        terms = []
        for step in steps:
            first += step
            terms.append(first)
        return terms

    shared = sorted(draw(st.lists(st.integers(1, 6), max_size=8)))
    return shared + suffix(7), shared + suffix(8)


def walked_meeting(leader: list[Entry], follower: list[Entry]) -> int:
    """The last index up to which the logs are equal, tried from the beginning."""
    meeting = -1
    for ours, theirs in zip(leader, follower, strict=False):
        if ours != theirs:
            break
        meeting = ours.index
    return meeting


@given(parted_logs())
@searching(300)
def test_the_logs_meet_where_walking_says_after_few_probes(
    logs: tuple[list[int], list[int]],
) -> None:
    leader_terms, follower_terms = logs
    probes = Probes()
    cluster = Cluster(("n0", "n1", "n2"), [probes])
    for name, terms in (("n0", leader_terms), ("n1", leader_terms), ("n2", follower_terms)):
        cluster.reboot(name, Disk(term=100, entries=written_log(terms)))
    meeting = walked_meeting(cluster.disks["n0"].entries, cluster.disks["n2"].entries)

    cluster.tick("n0")
    cluster.deliver_all(lambda packet: "n2" not in packet[:2])
    cluster.deliver_all()

    assert probes.met_at == meeting
    assert probes.rejected <= min(len(set(leader_terms)), len(set(follower_terms))) + 2
    assert cluster.disks["n2"].entries == cluster.disks["n0"].entries
