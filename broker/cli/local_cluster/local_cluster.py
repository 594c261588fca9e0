"""A cluster of `dledger up` on this machine: its directory, its ports, its processes.

::

    <data>/namesrv/pid, log/namesrv.log          the NameServer
    <data>/<group>/<node>/node.toml              the settings of a node
    <data>/<group>/<node>/pid, log/node.log      its process; the rest is the replica's
    <data>/<group>/<node>/removed                marks a node that is no longer a member; `up` does
                                                 not start it

A cluster is found by its directory alone: the files have everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from broker.cli.local_cluster.atomic_file import write_atomically
from broker.cli.local_cluster.managed_processes import (
    DLEDGER,
    PID_FILE,
    ManagedProcess,
    Starter,
    end_processes,
    execute,
)
from broker.cli.local_cluster.port_layout import (
    Ports,
    change_ports,
    group_names,
    plan_cluster,
    why_taken,
)
from broker.cli.terminal.options import data_hint
from broker.command_error import CommandError, UsageError
from broker.config.config_file import read_config
from broker.config.config_text import node_toml
from broker.config.node_config import NodeConfig
from broker.config.setting_checks import ConfigError
from dledger.wire.endpoint import Endpoint
from store.counted import counted


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One broker of a local cluster."""

    config: NodeConfig
    process: ManagedProcess


REMOVED_FILE = "removed"
"""Marks the directory of a node that `dledger member remove` took out of its group."""

NAMESRV = "namesrv"
"""The name of the NameServer in commands that take a node."""


class LocalCluster:
    """See the module. Made by :func:`design_cluster` or :func:`open_cluster`."""

    def __init__(
        self, directory: Path, configs: Sequence[NodeConfig], removed: Sequence[NodeConfig] = ()
    ) -> None:
        """``removed`` are nodes with files that are no longer members."""
        self.directory = directory
        self.removed = {config.name: local_node(config) for config in removed}
        self.nodes = {config.name: local_node(config) for config in configs}
        self.namesrv = Endpoint.parse(configs[0].namesrv[0])
        home = directory / NAMESRV
        settings = home / f"{NAMESRV}.toml"
        self.namesrv_process = ManagedProcess(
            NAMESRV,
            home,
            [
                *DLEDGER,
                NAMESRV,
                *(["--config", str(settings)] if settings.exists() else []),
                *("--host", self.namesrv.host, "--port", str(self.namesrv.port)),
            ],
            home / "log/namesrv.log",
        )

    @property
    def groups(self) -> list[str]:
        """The names of the broker groups, in order."""
        return sorted({node.config.group for node in self.nodes.values()})

    @property
    def processes(self) -> list[ManagedProcess]:
        """The processes. The NameServer is first, because brokers register with it at their
        start."""
        return [self.namesrv_process, *(node.process for node in self.nodes.values())]

    def node(self, name: str) -> LocalNode:
        """A node by its name ``group/node``, or only ``node`` if there is one group."""
        full = _full_name(name, [*self.nodes, *self.removed], self.directory)
        if full in self.removed:
            address = self.removed[full].config.own.address
            raise CommandError(restart_hint(full, self.directory, str(address)))
        return self.nodes[full]

    def process(self, name: str) -> ManagedProcess:
        """The process of a node or of the NameServer."""
        return self.namesrv_process if name == NAMESRV else self.node(name).process

    @property
    def running(self) -> list[str]:
        """The names of the processes that run."""
        return [process.name for process in self._all_processes() if process.pid is not None]

    def require_stopped(self) -> None:
        """Raises :class:`CommandError` if any process of the cluster runs."""
        if running := self.running:
            raise CommandError(
                f"the cluster in {self.directory} is running already ({', '.join(running)}); "
                f"`dledger status` shows it, `dledger down{data_hint(self.directory)}` stops it"
            )

    def require_startable(self) -> None:
        """Raises :class:`CommandError` if a process runs or a port is taken."""
        self.require_stopped()
        self._check_ports()

    def write(self) -> LocalCluster:
        """Writes every ``node.toml``; returns the cluster.

        Raises :class:`CommandError` if a process runs, and :class:`UsageError` if a file
        cannot be written.
        """
        self.require_stopped()
        for node in self.nodes.values():
            write_config(node.config)
        return self

    def start(self, starter: Starter = execute) -> None:
        """Starts all processes; none, if one runs or a port is taken."""
        self.require_startable()
        for process in self.processes:
            process.start(starter)

    def stop(self) -> dict[str, int]:
        """Stops the running processes, the NameServer last. Returns the pids by name."""
        return stop_processes(self._all_processes())

    def _all_processes(self) -> list[ManagedProcess]:
        """All processes, also of nodes that were added since the cluster was opened."""
        known = {process.name: process for process in self.processes}
        with suppress(UsageError):  # not written yet, or removed
            known = find_processes(self.directory) | known
        return [*known.values()]

    def _check_ports(self) -> None:
        wanted = {self.namesrv: ("the NameServer", "--namesrv-port")}
        for node in self.nodes.values():
            member = node.config.listening
            wanted[member.address] = (node.config.name, "--port")
            wanted[member.peer] = (f"Raft of {node.config.name}", "--port")
            if member.grpc is not None:
                wanted[member.grpc] = (f"gRPC of {node.config.name}", "--grpc-port")
            wanted[member.http] = (f"HTTP of {node.config.name}", "--http-port")
        for endpoint, (user, option) in wanted.items():
            why = why_taken(endpoint)
            if why is not None:
                raise CommandError(
                    f"{endpoint}, meant for {user}, cannot be used ({why}): "
                    f"stop what uses it, or choose another with {option}"
                )


def restart_hint(name: str, directory: Path, address: str = "ADDR") -> str:
    """The message about a node that was removed from its group."""
    group, _, node = name.partition("/")
    return (
        f"{name} was removed from its group; `dledger member add {group} {node} {address}"
        f"{data_hint(directory)}` adds it again"
    )


def find_processes(directory: Path) -> dict[str, ManagedProcess]:
    """The processes of the cluster in ``directory`` by name, to be stopped.

    It reads no settings, so that a mistake in them does not prevent the stop of a cluster. Raises
    :class:`UsageError` if there is no cluster.
    """
    files = (path for name in ("node.toml", PID_FILE) for path in directory.glob(f"*/*/{name}"))
    homes = {f"{path.parts[-3]}/{path.parts[-2]}": path.parent for path in files}
    if not homes:
        raise _no_cluster(directory)
    homes = {NAMESRV: directory / NAMESRV, **dict(sorted(homes.items()))}
    return {name: ManagedProcess(name, home, (), home / "log") for name, home in homes.items()}


def find_process(directory: Path, name: str) -> ManagedProcess:
    """One of :func:`find_processes`, named as for :meth:`LocalCluster.process`."""
    processes = find_processes(directory)
    nodes = [known for known in processes if known != NAMESRV]
    return processes[name if name == NAMESRV else _full_name(name, nodes, directory)]


def stop_processes(processes: Iterable[ManagedProcess]) -> dict[str, int]:
    """Stops running processes, the NameServer last. Returns the pids by name."""
    nodes: list[ManagedProcess] = []
    namesrv: list[ManagedProcess] = []
    for process in processes:
        (namesrv if process.name == NAMESRV else nodes).append(process)
    return {**end_processes(nodes, kill=False), **end_processes(namesrv, kill=False)}


def _no_cluster(directory: Path) -> UsageError:
    return UsageError(
        f"{directory} holds no cluster; `dledger up{data_hint(directory)}` makes one there"
    )


def _full_name(name: str, nodes: Collection[str], directory: Path) -> str:
    groups = {node.partition("/")[0] for node in nodes}
    full = name if "/" in name or len(groups) > 1 else f"{groups.pop()}/{name}"
    if full not in nodes:
        known = ", ".join([*nodes, NAMESRV])
        raise UsageError(f"{directory} has no node {name}; it has {known}")
    return full


def open_cluster(directory: Path) -> LocalCluster:
    """The cluster whose files are in ``directory``."""
    configs, removed = _read_configs(directory)
    if not configs:
        raise _no_cluster(directory)
    return LocalCluster(directory, configs, removed)


def design_cluster(
    directory: Path,
    *,
    nodes: int | None = None,
    groups: int | None = None,
    flush: str | None = None,
    ports: Ports | None = None,
) -> LocalCluster:
    """The cluster in ``directory``, or a new one; given settings replace old ones.

    Nothing is written yet. The numbers of nodes and groups cannot change, because members change
    only through the log. Raises :class:`UsageError`.
    """
    found, removed = _read_configs(directory)
    with UsageError.instead_of(ConfigError):
        if found:
            configs = _adapt(found, directory, nodes, groups, ports)
        else:
            configs = plan_cluster(
                directory, nodes or 3, group_names(groups or 1), ports or Ports()
            )
        if flush is not None:
            configs = [replace(config, flush=flush) for config in configs]
    return LocalCluster(directory, configs, removed)


def _adapt(
    found: list[NodeConfig],
    directory: Path,
    nodes: int | None,
    groups: int | None,
    ports: Ports | None,
) -> list[NodeConfig]:
    known_groups = len({config.group for config in found})
    known_nodes = len(found[0].members)
    if (nodes or known_nodes, groups or known_groups) != (known_nodes, known_groups):
        raise UsageError(
            f"{directory} holds {counted(known_groups, 'group')} of "
            f"{counted(known_nodes, 'node')}, which `up` "
            "cannot change; leave --nodes and --groups out, or give another --data"
        )
    return found if ports is None else change_ports(directory, found, ports)


def _read_configs(directory: Path) -> tuple[list[NodeConfig], list[NodeConfig]]:
    """The settings of members, and of removed nodes. A directory of removed nodes alone is refused:
    a new cluster there would begin with their data."""
    members: list[NodeConfig] = []
    removed: list[NodeConfig] = []
    with UsageError.instead_of(ConfigError):
        for path in sorted(directory.glob("*/*/node.toml")):
            kind = removed if path.with_name(REMOVED_FILE).exists() else members
            kind.append(read_config(str(path)))
    if removed and not members:
        raise UsageError(
            f"{directory} has only nodes that were removed from their groups; "
            "move it away, or give another --data"
        )
    return members, removed


def write_config(config: NodeConfig) -> None:
    """Writes the node's ``node.toml``. Raises :class:`UsageError` if that cannot be done."""
    home = Path(config.data)
    try:
        home.mkdir(parents=True, exist_ok=True)
        write_atomically(home / "node.toml", node_toml(config))
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be written: {error.strerror}; --data must name a "
            "directory where files can be made"
        ) from error


def local_node(config: NodeConfig) -> LocalNode:
    """The node of these settings, running or not."""
    home = Path(config.data)
    arguments = [*DLEDGER, "node", "--config", str(home / "node.toml")]
    return LocalNode(config, ManagedProcess(config.name, home, arguments, home / "log/node.log"))
