"""Members whose states differ, in whole simulated clusters: who says so, and what comes of it.

The simulator's own comparison of the states is off here, and what the shipped brokers find out by
themselves is looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest

from broker.state.broker_state import BrokerState
from broker.state.commands import Command, PutTopic
from broker.state.state_machine import BrokerStateMachine
from dledger.wire.features import FEATURES
from simulator.bugs.broker.state_divergence import ONE, obeys_otherwise
from simulator.bugs.planted_bug import Patch
from simulator.engine.disk import SimulatedFileSystem
from simulator.faults.injector import FaultPlan
from simulator.hosts.broker_host import BrokerHost
from simulator.hosts.disk_host import DIRECTORY
from simulator.hosts.observed_host import GroupConfig
from simulator.invariants import Invariant
from simulator.invariants.broker.state_proof import StateProofs
from simulator.invariants.raft.state_machine_safety import StateMachineSafety
from simulator.worlds.brokers import WHOLE_BROKERS
from simulator.worlds.cluster import Cluster, World
from simulator.worlds.registry import BROKERS, WORLDS
from simulator.worlds.runner import play
from store.io.atomic_file import read_checked_file, replace_file
from store.state.checkpoint import decode_checkpoint, encode_checkpoint
from store.state.machine_state import decode_machine_state, encode_machine_state
from store.verify import Finding, FindingKind, verify_replica

SEED = 7
NO_FAULTS = FaultPlan((), 1.0)


def _unwatched(hosts: Sequence[BrokerHost], config: GroupConfig) -> Sequence[Invariant]:
    """States may differ here."""
    unwanted = (StateMachineSafety, StateProofs)
    made = WHOLE_BROKERS.invariants(hosts, config)
    return [each for each in made if not isinstance(each, unwanted)]


UNWATCHED: World[BrokerHost] = replace(
    WORLDS[BROKERS], kind=replace(WHOLE_BROKERS, invariants=_unwatched)
)
Unwatched: TypeAlias = "Cluster[BrokerHost]"

Script = Callable[[Unwatched], Awaitable[None]]


def run(script: Script, *, heals: bool = False, earlier: str = "") -> Unwatched:
    """A cluster without faults that serves clients, and what ``script`` does to it. The member
    ``earlier`` has an earlier program, which announces no feature."""
    cluster = Cluster(UNWATCHED, SEED, plan=NO_FAULTS)
    for host in cluster.hosts:
        if host.name == earlier:
            host.features = ()

    async def scripted(made: Unwatched) -> None:
        for host in made.hosts:
            host.start()
        made.start_clients()
        await made.pass_time(2.0)
        await script(made)
        if heals:
            made.stop_clients()
            await made.heal()
            node = made.hosts[0].node
            assert node is not None
            node.checkpointer.checkpoint()
            await made.pass_time(0.5)

    outcome = play(cluster, scripted)
    assert outcome.violation is None
    return cluster


def leader_and_follower(cluster: Unwatched) -> tuple[BrokerHost, BrokerHost]:
    leader = cluster.leader()
    assert isinstance(leader, BrokerHost)
    return leader, next(host for host in cluster.hosts if host is not leader)


def forget_an_offset(host: BrokerHost) -> None:
    """Its state goes wrong in memory, and no command was about that."""
    host.state_machine.state.offsets["nobody", "orders"] = {0: 1}


def wrong(host: BrokerHost) -> str:
    return "" if host.node is None else host.node.state_divergence.wrong


def proved(host: BrokerHost) -> int:
    return -1 if host.node is None else host.node.state_divergence.proved


async def is_proved_again(cluster: Unwatched, host: BrokerHost, boot: int) -> None:
    """Another process, whose state is the group's."""
    await cluster.until(lambda: host.boot > boot and proved(host) >= 0, "it is proved again")
    assert not wrong(host)


@pytest.mark.minutes
def test_who_has_a_wrong_state_says_so_within_a_second_and_takes_it_again_leaders_too() -> None:
    async def script(cluster: Unwatched) -> None:
        leader, follower = leader_and_follower(cluster)
        boot = follower.boot
        forget_an_offset(follower)
        since = cluster.loop.time()
        await cluster.until(lambda: bool(wrong(follower)), "a follower says so")
        assert cluster.loop.time() - since < 1.0
        assert wrong(follower) == "offsets"
        assert not wrong(leader)
        assert leader.broker.context.proofs.differing == {follower.name: ("offsets",)}
        await is_proved_again(cluster, follower, boot)
        assert cluster.leader() is leader

        boot = leader.boot
        forget_an_offset(leader)
        # It hands over at once, and may have stopped to take its state again before this looks.
        await cluster.until(lambda: bool(wrong(leader)) or leader.boot > boot, "the leader says so")
        await cluster.pass_time(0.001)
        assert leader.node is None or not leader.node.serving
        await is_proved_again(cluster, leader, boot)
        assert cluster.leader() not in {leader, None}

    cluster = run(script, heals=True)
    assert len({host.state_machine.digest() for host in cluster.hosts}) == 1
    assert cluster.trace.marks["state taken again"] == 2
    check_that_the_last_checkpoint_is_proved(cluster.hosts[0].fs.copy())


def proof_finding(fs: SimulatedFileSystem) -> Finding:
    """What is found by the proof in the log; what the commands in it make of the state is found
    beside that, as far as the log begins early enough."""
    (found,) = [
        each
        for each in verify_replica(fs, DIRECTORY).findings
        if "a majority of the voters" in each.expected
    ]
    return found


def check_that_the_last_checkpoint_is_proved(fs: SimulatedFileSystem) -> None:
    """Nothing happened behind it: the log says what its state must be, to one replica alone too."""
    assert verify_replica(fs, DIRECTORY).findings == []
    name = max(name for name in fs.list_directory(f"{DIRECTORY}/state") if "checkpoint" in name)
    path = f"{DIRECTORY}/state/{name}"
    checkpoint = decode_checkpoint(read_checked_file(fs, path), path)
    machine = decode_machine_state(checkpoint.state)
    state = BrokerState.from_bytes(machine.broker)
    state.settings["a"] = "b"
    forged = encode_machine_state(machine._replace(broker=state.to_bytes()))
    data = encode_checkpoint(replace(checkpoint, state=forged))
    replace_file(fs, f"{DIRECTORY}/state", name, data)
    found = proof_finding(fs)
    assert found.path == path
    assert found.expected.endswith("as the log says, in: settings")


def test_without_a_majority_all_say_so_and_go_on() -> None:
    async def script(cluster: Unwatched) -> None:
        for place, host in enumerate(cluster.hosts):
            host.state_machine.state.offsets["nobody", "orders"] = {0: place}
        await cluster.pass_time(1.5)
        for host in cluster.hosts:
            assert not wrong(host)
            assert host.boot == 1
            assert host.broker.context.proofs.contested == ("offsets",)
            assert "without a majority" in host.broker.context.proofs.problems[0]

    run(script)


def test_a_wrong_checkpoint_is_given_up_for_what_was_before() -> None:
    async def script(cluster: Unwatched) -> None:
        _, follower = leader_and_follower(cluster)
        node = follower.node
        assert node is not None
        forget_an_offset(follower)
        node.checkpointer.checkpoint()
        await cluster.pass_time(0.1)
        assert wrong(follower) == ""
        boot = follower.boot
        follower.crash()  # and is started again
        await is_proved_again(cluster, follower, boot + 1)

    run(script)


def test_no_proof_is_written_before_all_members_announced_that_they_know_it() -> None:
    async def script(cluster: Unwatched) -> None:
        points = [host.broker.context.proofs.point for host in cluster.hosts]
        assert points == [-1, -1, -1]
        assert cluster.leader() is not cluster.hosts[0]
        one = cluster.hosts[0]
        one.features = FEATURES
        one.stop()
        await is_proved_again(cluster, one, one.boot)
        leader, _ = leader_and_follower(cluster)
        # Whoever leads next need not have heard of it: a proof is in the log.
        leader.crash()
        await cluster.until(lambda: cluster.leader() not in {leader, None}, "another leads")
        later, _ = leader_and_follower(cluster)
        point = proved(later)
        await cluster.until(lambda: proved(later) > point, "it goes on")

    run(script, earlier="n0")


def test_verify_finds_a_checkpoint_that_is_not_what_the_log_proves() -> None:
    async def script(cluster: Unwatched) -> None:
        _, follower = leader_and_follower(cluster)
        node = follower.node
        assert node is not None
        proofs = follower.broker.context.proofs
        while not 0 < proofs.point == node.applied_index == node.core.durable_index:
            await cluster.pass_time(0.002)
        point = proofs.point
        forget_an_offset(follower)
        node.checkpointer.checkpoint()
        del follower.state_machine.state.offsets["nobody", "orders"]
        while proofs.judged < point:
            await cluster.pass_time(0.01)
        assert not wrong(follower)
        assert point in node.store.checkpoints.indexes
        found = proof_finding(follower.fs.copy())
        assert found.index_first == point
        assert found.kind is FindingKind.CHECKPOINT
        assert found.expected.endswith("in: offsets")

    run(script)


@pytest.mark.minutes
def test_who_cannot_apply_the_log_rightly_gets_the_state_of_a_peer() -> None:
    patch = Patch()
    ends: list[int] = []

    def change(machine: BrokerStateMachine, commands: Sequence[Command]) -> Sequence[Command]:
        if ends and machine.applied_end > ends[0]:
            return commands
        return [each for each in commands if not isinstance(each, PutTopic)]

    async def script(cluster: Unwatched) -> None:
        one = next(host for host in cluster.hosts if host.name == ONE)
        ends.append(one.state_machine.applied_end)
        for host in cluster.hosts:
            assert host.node is not None
            if host is not one:
                host.node.checkpointer.checkpoint()
        await is_proved_again(cluster, one, one.boot)
        assert cluster.trace.marks["state taken again"] == 2
        assert one.node is not None
        assert one.node.store.first_index == 0

    obeys_otherwise(patch, change)
    try:
        run(script)
    finally:
        patch.undo()
