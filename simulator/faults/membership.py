"""Members that leave and come back, leadership transfers, and voters that lose their disk.

A minority of the hosts is away at most, and in a group of brokers one alone. So a majority of the
hosts, as the checks there count it, is a majority of the voters too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dledger.errors import ProposeError
from dledger.node.membership_changes import Membership
from dledger.raft.configuration import MemberAddress
from simulator.faults.actions import HostName, action
from simulator.faults.injector import Fault, FaultInjector, at_a_host

if TYPE_CHECKING:
    from simulator.faults.target import FaultTarget
    from simulator.hosts.host import Host


def _ask(cluster: FaultTarget, action: str, request: Callable[[Membership], None]) -> None:
    """An operator asks the leader; the trace notes the outcome, and nobody else hears of it."""
    leader = cluster.leader()
    if leader is not None:
        _ask_at(leader, action, request)


def _ask_at(leader: Host, action: str, request: Callable[[Membership], None]) -> None:
    if leader.process is None:
        return

    def ask() -> None:
        assert leader.node is not None  # noqa: S101 - an event of its process
        membership = leader.node.membership
        if membership.busy:
            return
        try:
            request(membership)
        except ProposeError as error:
            leader.note(f"{action} is refused: {error}")

    leader.process.run(ask)


def _report_done(leader: Host | None, action: str) -> Callable[[Exception | None], None]:
    def done(error: Exception | None) -> None:
        if leader is not None:
            leader.note(f"{action}: {error or 'done'}")
            if error is None:
                leader.coverage_mark(action.split(" of ", maxsplit=1)[0])

    return done


def _address(cluster: FaultTarget, host: str) -> MemberAddress:
    return MemberAddress(*cluster.host(host).addresses)


@action(HostName)
def hand_over(cluster: FaultTarget, host: str) -> None:
    """Asks the leader to transfer leadership to that host."""
    done = _report_done(cluster.leader(), f"handing over of the leadership to {host}")
    _ask(cluster, f"handing over to {host}", lambda members: members.transfer(host, done))


@action(HostName)
def remove_member(cluster: FaultTarget, host: str) -> None:
    """Removes a member, unless too many are away, or another one may refuse to run, or has an empty
    disk that the log does not count yet: a group of two voters cannot lose one disk."""
    leader = cluster.leader()
    if leader is not None and _may_leave(cluster, leader, host):
        _ask_to_remove(cluster, leader, host)


@action(HostName, HostName)
def remove_member_at(cluster: FaultTarget, leader: str, host: str) -> None:
    """Asks exactly that node, if it believes to be the leader."""
    asked = cluster.host(leader)
    if _may_leave(cluster, asked, host):
        assert asked.node is not None  # noqa: S101 - it has members
        if asked.node.core.commit_index < asked.node.core.term_first_index:
            asked.coverage_mark("asked for a change before the first entry of a term")
        _ask_to_remove(cluster, asked, host)


def _ask_to_remove(cluster: FaultTarget, asked: Host, host: str) -> None:
    action = f"removal of {host}"

    def remove(members: Membership) -> None:
        # A paused process gets this late, and then too many may be away.
        if _may_leave(cluster, asked, host):
            members.remove(host, _report_done(asked, action))

    _ask_at(asked, action, remove)


def _may_leave(cluster: FaultTarget, leader: Host, host: str) -> bool:
    others = [each for each in cluster.hosts if each.name != host]
    if leader.node is None or any(each.damaged for each in others):
        return False
    if not all(_disk_counts(leader, each) for each in others):
        return False
    found = leader.node.core.configuration
    away = len(cluster.hosts) - len(found.voters)
    return not found.is_joint and away < cluster.members_away_max


@action(str)
def replace_members(cluster: FaultTarget, voters: str) -> None:
    """From now on the voters are these names, between commas: all in one step. No operator's
    command does it; the core does."""
    leader = cluster.leader()
    if leader is None or leader.process is None:
        return
    wanted = voters.split(",")

    def replace() -> None:
        node = leader.node
        assert node is not None  # noqa: S101 - an event of its process
        if node.membership.busy or not _may_replace(cluster, leader, wanted):
            return
        try:
            node.driver.core.replace_voters(wanted, leader.own_time)
        except ProposeError as error:
            leader.note(f"change to {voters} is refused: {error}")
            return
        node.driver.advance()

    leader.process.run(replace)


def _may_replace(cluster: FaultTarget, leader: Host, wanted: Sequence[str]) -> bool:
    """Unless too many would be away, or one that stays may refuse to run or has another disk than
    the log says."""
    hosts = [each for each in cluster.hosts if each.name in wanted]
    away = len(cluster.hosts) - len(hosts)
    return away <= cluster.members_away_max and all(
        not each.damaged and _disk_counts(leader, each) for each in hosts
    )


@action(HostName)
def add_member(cluster: FaultTarget, host: str) -> None:
    """Comes back as a learner, and is promoted at the next try.

    With the program of the others. While it was away they wrote commands that an earlier program
    does not know, and it would stop (``docs/safety.md``).
    """
    leader = cluster.leader()
    if leader is None or leader.node is None:
        return
    found = leader.node.core.configuration
    if host in found.learners:
        done = _report_done(leader, f"promotion of {host}")
        _ask(cluster, f"promotion of {host}", lambda members: members.promote(host, done))
    elif host not in found.voters:
        cluster.host(host).upgrade()
        done = _report_done(leader, f"addition of {host}")
        address = _address(cluster, host)
        _ask(
            cluster, f"addition of {host}", lambda members: members.add_learner(host, address, done)
        )


def _disk_counts(leader: Host, host: Host) -> bool:
    """Whether the leader has noted this machine's present disk; one that was never lost is
    noted."""
    if not host.has_lost_disk:
        return True
    if leader.node is None or host.node is None:
        return False
    core = leader.node.core
    noted = core.configurations.at(core.commit_index).incarnations.get(host.name)
    core = host.node.core
    return noted == core.incarnation and core.durable_index >= host.lost_index


def bring_back(cluster: FaultTarget) -> bool:
    """Whether every host that must run is a voter. Adds those that are not."""
    leader = cluster.leader()
    if leader is None or leader.node is None:
        return False
    found = leader.node.core.configuration
    for host in cluster.hosts_that_must_run():
        if host.name not in found.voters:
            add_member(cluster, host.name)
            return False
    return not found.is_joint


# --- faults, in the sense of this package


def _member_returns(injector: FaultInjector) -> None:
    for host in injector.names():
        injector.do("add-member", host)


MEMBER_KINDS: dict[str, Fault] = {
    "leader hands over": at_a_host("hand-over"),
    "member leaves": at_a_host("remove-member"),
    "member returns": Fault(_member_returns),
    "disk wiped": at_a_host("wipe-disk"),
}
