"""What a leader sends beside entries: commit notices, heartbeats, and one in place of the other."""

from __future__ import annotations

from dledger.config import RaftConfig
from dledger.raft.messages import NOTICE, Heartbeat, HeartbeatResponse
from tests.dledger.raft.core_cluster import Cluster
from tests.dledger.raft.observer import Observer, Packet

INCARNATIONS = {"n0": 11, "n1": 12, "n2": 13}
BEAT = RaftConfig().heartbeat_seconds
NOTICE_AFTER = RaftConfig().commit_notice_seconds


class Beats(Observer):
    """The heartbeats and notices that were sent, and the answers."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.beats: list[str] = []
        self.evidence: list[int] = []
        self.answers = 0

    def sent(self, packet: Packet) -> None:
        match packet.message:
            case Heartbeat(round=number, evidence=evidence):
                (self.notices if number == NOTICE else self.beats).append(packet.to)
                if number != NOTICE:
                    self.evidence.append(len(evidence))
            case HeartbeatResponse():
                self.answers += 1
            case _:
                pass

    def clear(self) -> None:
        self.notices.clear()
        self.beats.clear()
        self.evidence.clear()
        self.answers = 0


def led() -> tuple[Cluster, Beats]:
    """A group that n0 leads, right after a heartbeat."""
    beats = Beats()
    cluster = Cluster(("n0", "n1", "n2"), [beats], incarnations=INCARNATIONS)
    cluster.tick("n0")
    cluster.deliver_all()
    cluster.run(0.5)
    while not beats.beats or not beats.evidence[-1]:
        beats.clear()
        cluster.tick("n0")
        cluster.deliver_all()
    beats.clear()
    assert cluster.cores["n0"].deadline() > cluster.now + 0.9 * BEAT
    return cluster, beats


def assert_all_know_what_is_committed(cluster: Cluster) -> None:
    last_index = cluster.cores["n0"].entry_cache.last_index
    assert [core.commit_index for core in cluster.cores.values()] == [last_index] * 3


def test_what_is_committed_soon_after_a_heartbeat_is_told_in_notices_without_answers() -> None:
    cluster, beats = led()
    cluster.propose("n0", b"x")
    cluster.run(BEAT / 2)
    assert (beats.notices, beats.beats, beats.answers) == (["n1", "n2"], [], 0)
    assert_all_know_what_is_committed(cluster)


def test_what_is_committed_when_a_heartbeat_is_near_is_told_by_that_and_the_next_is_later() -> None:
    cluster, beats = led()
    cluster.run(0.6 * BEAT)
    cluster.propose("n0", b"x")
    cluster.run(2 * NOTICE_AFTER)
    assert (beats.notices, beats.beats, beats.answers) == ([], ["n1", "n2"], 2)
    assert beats.evidence == [3, 3]
    assert_all_know_what_is_committed(cluster)
    beats.clear()
    cluster.run(BEAT - 2 * NOTICE_AFTER)
    assert not beats.beats
    cluster.run(2 * NOTICE_AFTER)
    assert beats.beats == ["n1", "n2"]


def test_who_has_confirmed_nothing_new_gets_no_notice() -> None:
    cluster, beats = led()
    cluster.hold("n2")
    cluster.propose("n0", b"x")
    cluster.run(BEAT / 2)
    assert (beats.notices, beats.beats) == (["n1"], [])
    leader = cluster.cores["n0"]
    assert leader.commit_index == leader.entry_cache.last_index


def test_a_notice_that_the_next_entry_made_needless_brings_no_heartbeat() -> None:
    cluster, beats = led()
    cluster.run(0.6 * BEAT)
    cluster.propose("n0", b"x")
    cluster.run(NOTICE_AFTER / 2)
    cluster.propose("n0", b"y")
    cluster.run(0.7 * NOTICE_AFTER)
    assert (beats.notices, beats.beats) == ([], [])


def test_a_read_that_is_asked_when_a_heartbeat_is_near_brings_it_at_once() -> None:
    cluster, beats = led()
    cluster.run(0.6 * BEAT)
    cluster.ask("n0", lambda core: core.read_index(1, cluster.now))
    assert (beats.beats, beats.evidence) == (["n1", "n2"], [3, 3])
    beats.clear()
    cluster.run(0.9 * BEAT)
    assert not beats.beats
    cluster.run(0.2 * BEAT)
    assert beats.beats == ["n1", "n2"]


def test_a_read_that_is_asked_soon_after_a_heartbeat_leaves_the_next_where_it_was() -> None:
    cluster, beats = led()
    cluster.run(0.3 * BEAT)
    cluster.ask("n0", lambda core: core.read_index(1, cluster.now))
    assert (beats.beats, beats.evidence) == (["n1", "n2"], [0, 0])
    beats.clear()
    cluster.run(0.8 * BEAT)
    assert beats.evidence == [3, 3]
