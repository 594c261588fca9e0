"""The group of brokers of a soak, and faults of its processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from broker.cli.local_cluster.local_cluster import LocalCluster, LocalNode, local_node, write_config
from broker.cli.local_cluster.managed_processes import end_processes
from broker.cluster_admin.admin_client import AdminClient, run_admin
from broker.cluster_admin.cluster_view import GroupView, view_groups
from broker.cluster_admin.member_changes import GroupMembers
from broker.command_error import CommandError
from broker.config.node_config import NodeConfig
from tests.soak.network import Network

Change = Callable[[GroupMembers], Awaitable[None]]

GROUP = "broker-a"
SEGMENT_SIZE = 4 << 20
SETTINGS = {
    "insecure": True,  # it listens in a network namespace of its own
    "segment_size": SEGMENT_SIZE,
    "max_message_size": SEGMENT_SIZE // 4,
    "checkpoint_seconds": 5,
    "scrub_pass_seconds": 5,
    # Messages are compared at the end, so none may expire, even on a full disk.
    "file_reserved_hours": 0,
    "disk_enough_bytes": 0,
    # The broker soon asks about an open transaction, and never gives it up.
    "transaction_timeout_ms": 2_000,
    "transaction_check_interval_ms": 1_000,
    "transaction_check_max": 1_000,
}
HEALTHY_SECONDS = 90.0
LOOK_AGAIN_SECONDS = 0.2
KEPT_WHEN_WIPED = ("node.toml", "log")
ROOM_BYTES = 64 << 30
"""Size of a disk with room. Only what is used takes memory."""

FILL_TRIES = 100
SIGNS_OF_A_DEFECT = ("Traceback", "InvariantError")


class SoakCluster:
    """Nodes are numbered from 0. A number is not used again."""

    def __init__(self, directory: Path, network: Network, *, nodes: int) -> None:
        self.directory = directory
        self.network = network
        self.nodes: dict[int, LocalNode] = {}
        self.running: set[int] = set()
        """The nodes whose process should run."""
        self._target: int | None = None
        self._members = {f"n{number}": network.member(number) for number in range(nodes)}
        self._numbers = iter(range(nodes, 10_000))
        configs = [self._config(number) for number in range(nodes)]
        # Each namespace is like a machine of its own, which nothing else reaches.
        settings = directory / "namesrv" / "namesrv.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("insecure = true\n")
        self._raft_log = LocalCluster(directory, configs)
        self.namesrv = str(self._raft_log.namesrv)
        for number, config in enumerate(configs):
            write_config(config)
            self.nodes[number] = local_node(config)

    def _config(self, number: int) -> NodeConfig:
        node = f"n{number}"
        return NodeConfig(
            group=GROUP,
            node=node,
            data=str(self.directory.absolute() / GROUP / node),
            members={**self._members, node: self.network.member(number)},
            namesrv=(str(self.network.namesrv()),),
            **SETTINGS,  # type: ignore[arg-type]  # mypy takes the values of a dict for one type
        )

    # --- processes

    def start_all(self) -> None:
        """Starts the NameServer, and all nodes that do not run."""
        if self._raft_log.namesrv_process.pid is None:
            self._raft_log.namesrv_process.start()
        for number in self.nodes:
            self.start(number)

    def start(self, number: int) -> None:
        """Starts a node that does not run. Returns at once."""
        if number in self.nodes and number not in self.running:
            self.nodes[number].process.start(self.network.starter(number))
            self.running.add(number)

    def end(self, *numbers: int, kill: bool) -> None:
        """Ends nodes, by SIGKILL or in order, and waits until they are gone."""
        self.running -= set(numbers)
        end_processes([self.nodes[number].process for number in numbers], kill=kill)

    def restart_namesrv(self) -> None:
        """Kills the NameServer, which forgets all routes, and starts it again."""
        end_processes([self._raft_log.namesrv_process], kill=True)
        self._raft_log.namesrv_process.start()

    def signal(self, number: int, sig: signal.Signals) -> None:
        """Sends a signal to the node's process, if it runs."""
        pid = self.nodes[number].process.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, sig)

    def wipe(self, number: int) -> None:
        """Removes the data of a node that does not run. Its settings and its log file stay."""
        for path in Path(self.nodes[number].config.data).iterdir():
            if path.name in KEPT_WHEN_WIPED:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def stop(self) -> None:
        """Ends every process."""
        for number in self.nodes:
            self.signal(number, signal.SIGCONT)
        end_processes([node.process for node in self.nodes.values()], kill=False)
        end_processes([self._raft_log.namesrv_process], kill=True)
        self.running.clear()

    # --- members

    def leader(self) -> int | None:
        """The number of the leader, as far as the nodes say."""
        with suppress(CommandError):
            leader = self.view().leader
            return None if leader is None else int(leader.rpartition("n")[2])
        return None

    def transfer(self, number: int) -> None:
        """Asks the leader to hand over. Raises :class:`CommandError`."""

        async def transfer(group: GroupMembers) -> None:
            await group.transfer(f"n{number}")

        self._change(transfer)

    def exchange(self, old: int) -> int:
        """Makes a voter of a new node and then takes ``old`` out; its files stay. Operations that
        faults make fail are repeated. Raises :class:`CommandError` if it cannot be done in
        time."""
        number = next(self._numbers)
        config = replace(self._config(number), join=True)
        write_config(config)
        self.nodes[number] = local_node(config)
        self.start(number)
        leaving = f"n{old}"

        async def join(group: GroupMembers) -> None:
            members = await group.members()
            if config.node not in {*members["voters"], *members["learners"]}:
                await group.add(config.node, str(config.own.address))
            await group.promote(config.node)

        async def leave(group: GroupMembers) -> None:
            if leaving in (await group.members())["members"]:
                await group.remove(leaving)

        self._insist(join)
        self._members[config.node] = config.own
        self._insist(leave)
        self.end(old, kill=False)
        del self.nodes[old]
        del self._members[leaving]
        return number

    def _insist(self, work: Change) -> None:
        ends_at = time.monotonic() + HEALTHY_SECONDS
        while True:
            try:
                self._change(work)
            except CommandError:
                if time.monotonic() >= ends_at:
                    raise
                time.sleep(LOOK_AGAIN_SECONDS)
            else:
                return

    def _change(self, work: Change) -> None:
        async def change(admin: AdminClient) -> None:
            await work(GroupMembers(admin, GROUP))

        run_admin(self.namesrv, change)

    # --- health

    def view(self) -> GroupView:
        """The group as `dledger status` shows it. Raises :class:`CommandError`."""
        groups = run_admin(self.namesrv, view_groups)
        found = next((group for group in groups if group.group == GROUP), None)
        if found is None:
            raise CommandError(f"no NameServer knows {GROUP}")
        return found

    def _obstacle(self) -> str | None:
        """Why the group is not healthy; ``None`` if every node serves, and has applied what the log
        held at the first look. Clients go on, so two nodes are never equal."""
        for number in self.running:
            if self.nodes[number].process.pid is None:
                return f"n{number} does not run"
        try:
            group = self.view()
        except CommandError as error:
            return str(error)
        if not group.serves:
            return "there is no leader that serves"
        nodes = {f"{GROUP}/n{number}" for number in self.nodes}
        members = [node for node in group.nodes if node.node in nodes]
        if len(members) != len(nodes):
            return f"the group knows {[node.node for node in group.nodes]}"
        for node in members:
            if node.pid is None or node.refilling or node.member != "voter":
                return f"{node.node} is not whole: {node}"
        if self._target is None:
            self._target = max(node.last_index or 0 for node in members)
        for node in members:
            if (node.applied_index or 0) < self._target:
                return f"{node.node} has applied {node.applied_index}, not yet {self._target}"
        return None

    def wait_until_healthy(self) -> float:
        """Waits until the group is healthy. Returns the seconds. Raises :class:`CommandError`."""
        began = time.monotonic()
        self._target = None
        while (obstacle := self._obstacle()) is not None:
            if time.monotonic() - began > HEALTHY_SECONDS:
                raise CommandError(f"not whole after {HEALTHY_SECONDS:g} s: {obstacle}")
            time.sleep(LOOK_AGAIN_SECONDS)
        return time.monotonic() - began

    def ended_by_themselves(self) -> list[str]:
        """The processes that ended by themselves, and how."""
        gone = [number for number in sorted(self.running) if self.nodes[number].process.pid is None]
        self.running -= set(gone)
        return [self.nodes[number].process.describe_end() for number in gone]

    def defects_logged(self) -> list[str]:
        """Lines of the nodes' logs that mean a defect."""
        return [
            f"{path.parent.parent.name} logged: {line:.200}"
            for path in sorted(self.directory.glob("*/*/log/*.log*"))
            for line in path.read_text(errors="replace").splitlines()
            if any(sign in line for sign in SIGNS_OF_A_DEFECT)
        ]

    def replicas(self) -> list[Path]:
        """The directories of the present members."""
        return [Path(node.config.data) for node in self.nodes.values()]

    # --- a disk that fills

    def mount_disk(self, number: int) -> str | None:
        """Puts a node that has not run yet on a file system of its own; returns why not."""
        home = self.nodes[number].config.data
        done = _mount("-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "dledger-soak", home)
        if done.returncode != 0:
            return f"a file system cannot be mounted here: {done.stderr.strip()}"
        write_config(self.nodes[number].config)
        return None

    def unmount_disks(self) -> None:
        """Unmounts the disks that are still mounted."""
        for home in self.directory.glob("*/*"):
            if home.is_mount():
                subprocess.run(["umount", "-l", str(home)], check=True)

    @contextmanager
    def full_disk(self, number: int) -> Iterator[None]:
        """While it is open, the node's disk is full: its size is what is on it."""
        home = self.nodes[number].config.data
        for _ in range(FILL_TRIES):
            space = os.statvfs(home)
            used = (space.f_blocks - space.f_bfree) * space.f_frsize
            # The node may write in between, and the size cannot be less than what is used.
            done = _mount("-o", f"remount,size={used}", home)
            if done.returncode == 0:
                break
        done.check_returncode()
        try:
            yield
        finally:
            _mount("-o", f"remount,size={ROOM_BYTES}", home).check_returncode()


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
