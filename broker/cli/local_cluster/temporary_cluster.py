"""Clusters for measurements, in a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from broker.cli.local_cluster.local_cluster import LocalCluster, design_cluster
from broker.cli.local_cluster.managed_processes import end_processes
from broker.cli.local_cluster.port_layout import Ports
from broker.cli.local_cluster.readiness import wait_until_serving
from broker.cli.local_cluster.secured_cluster import secure
from broker.command_error import UsageError


@contextmanager
def temporary_cluster(
    parent: Path | None,
    nodes: int,
    flush: str,
    *,
    secured: bool = False,
    log_size_max: int = 0,
) -> Iterator[LocalCluster]:
    """A cluster of one group with ``nodes`` brokers, which serves. It is deleted at the end.
    ``secured``: with enforced TLS and access control. ``log_size_max``: the setting of that name.

    Raises :class:`UsageError` if ``parent`` cannot be used.
    """
    try:
        temporary = TemporaryDirectory(prefix="dledger-bench-", dir=parent)
    except OSError as error:
        raise UsageError(
            f"no directory can be made in {parent or gettempdir()}: {error.strerror}; "
            "choose another with --dir"
        ) from error
    with temporary as directory:
        cluster = design_cluster(
            Path(directory), nodes=nodes, flush=flush, ports=Ports(namesrv=0, remoting=0, http=0)
        )
        if log_size_max:
            configs = [
                replace(node.config, log_size_max=log_size_max) for node in cluster.nodes.values()
            ]
            cluster = LocalCluster(cluster.directory, configs)
        if secured:
            cluster = secure(cluster)
        cluster.write()
        try:
            cluster.start()
            wait_until_serving(cluster)
            yield cluster
        finally:
            end_processes(cluster.processes, kill=True)


def server_pids(cluster: LocalCluster) -> tuple[int, ...]:
    """The pids of all running processes of the cluster, with the NameServer's."""
    return tuple(pid for process in cluster.processes if (pid := process.pid) is not None)
