"""Planted bugs A, B and C of membership: changes of members and leaders, and lost disks."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from dledger.errors import ChangeRefusedError
from dledger.raft.configuration import Configuration, Configurations
from dledger.raft.configuration_change import ConfigurationChanger
from dledger.raft.election import Elections
from dledger.raft.leadership_transfer import LeadershipTransfer
from dledger.raft.replication_evidence import ReplicationEvidence
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.faults.membership import MEMBER_KINDS
from store.io.filesystem import FileSystem
from store.state.replication_evidence_file import ReplicationEvidenceFile

bug = BugsOf(seconds=12.0)


@bug("A8", "that it is no voter", 40, *MEMBER_KINDS)
def removed_leader_goes_on(patch: Patch) -> None:
    """A leader does not check whether it is still a member."""

    @patch.around(ConfigurationChanger, "advance_change")
    def staying(advance_change: Original[bool], changes: ConfigurationChanger, now: float) -> bool:
        advance_change(changes, now)
        return True


@bug(
    "A11",
    "not within",
    40,
    # Twice: a transfer has to meet a link that is cut at that moment.
    "leader hands over",
    "leader hands over",
    "partial partition",
    "one-way link",
)
def transfer_without_an_end(patch: Patch) -> None:
    """A leader whose transfer fails refuses proposals for ever."""

    @patch.around(LeadershipTransfer, "begin")
    def for_ever(
        begin: Original[None], leadership_transfer: LeadershipTransfer, target: str, now: float
    ) -> None:
        begin(leadership_transfer, target, now)
        leadership_transfer.ends_at = inf


@bug("B9", "for the voters after", 40, *MEMBER_KINDS, "crash")
def configuration_forgotten_at_a_restart(patch: Patch) -> None:
    """A restarted node has the voters with which the group began."""

    def forgetful(
        cls: type[Configurations], voters: Any, _index: int, _packed: bytes, _entries: object
    ) -> Configurations:
        return cls(Configuration(tuple(voters)))

    patch.set(Configurations, "recovered", classmethod(forgetful))


@bug("B9b", "for the voters after", 200, *MEMBER_KINDS, "crash", "partition")
def configuration_of_a_cut_entry_kept(patch: Patch) -> None:
    """The membership of an entry that another leader overwrote stays in effect."""
    patch.set(Configurations, "truncate", lambda _configurations, _first_index: None)


@bug(
    "B8",
    "lacks the committed entry | commits another entry",
    20,
    "rival changes",
    seconds=20.0,
    nodes=5,
)
def one_server_at_a_time_at_once(patch: Patch) -> None:
    """Voters change in one step, before an entry of the leader's own term, and without any
    check."""

    @patch.instead(ConfigurationChanger, "changeable")
    def at_once(changes: ConfigurationChanger) -> Configuration:
        configurations = changes._raft_log.configurations
        if configurations.index > changes._raft_log.commit_index:
            raise ChangeRefusedError("another change of the members is under way")
        return configurations.current

    @patch.instead(ConfigurationChanger, "_change_voters")
    def in_one_step(changes: ConfigurationChanger, voters: Sequence[str], now: float) -> int:
        found = changes._raft_log.configurations.current.with_voters(voters)
        return changes._change(found.completed(), now)


@bug(
    "C11",
    "lacks the committed entry | both lead",
    100,
    "disk wiped",
    "crash",
    "one-way link",
    "partial partition",
)
def every_disk_counts(patch: Patch) -> None:
    """A wiped node confirms and votes as if it still held what it lost."""
    patch.set(ReplicationEvidence, "counts", lambda *_who: True)
    patch.set(Elections, "_may_vote", lambda _elections, _sender, _request: True)


@bug(
    "C11b",
    "lacks what it held | lacks the committed entry",
    80,
    "old copy put back",
    "crash",
    "power loss of all",
    "partial partition",
)
def old_copy_not_recognised(patch: Patch) -> None:
    """What is known of the members' disks is learned and saved, but not used."""
    patch.set(
        ReplicationEvidence, "lacks", lambda _evidence, _node, _incarnation, _last_index: False
    )


@bug(
    "C11c",
    "lacks what it held | lacks the committed entry",
    80,
    "old copy put back",
    "power loss of all",
    "partial partition",
)
def what_disks_held_is_forgotten_at_a_restart(patch: Patch) -> None:
    """What was saved of the members' disks is not read at a start."""

    @patch.around(ReplicationEvidenceFile, "__init__")
    def forgetful(
        begin: Original[None],
        file: ReplicationEvidenceFile,
        fs: FileSystem,
        state: str,
        owner: str = "",
    ) -> None:
        begin(file, fs, state, owner)
        file.held = ()
