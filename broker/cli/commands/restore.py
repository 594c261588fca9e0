"""``dledger restore``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from broker.cli.backup.backup_store import fetched_backup
from broker.cli.backup.restored_data import RestoredReplica, require_empty, restore_data
from broker.cli.backup.snapshot_choice import check_whole, find_snapshots, newest_of_each_group
from broker.cli.local_cluster.port_layout import NODES_MAX, Ports, plan_cluster
from broker.cli.local_cluster.port_options import port_options
from broker.cli.terminal.numbers import WholeRange
from broker.cli.terminal.options import DIRECTORY, PATH, data_hint, json_option
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from broker.command_error import UsageError
from broker.config.config_file import read_config
from broker.config.node_config import GROUP_NAME, NodeConfig
from broker.config.setting_checks import ConfigError
from store.io.os_filesystem import OsFileSystem
from store.restore import SnapshotSource

EXAMPLES = """\
  dledger restore /backup/today --to data              three nodes a group; `dledger up` starts it
  dledger restore /backup/today --to /tmp/trial --nodes 1 --namesrv-port 0 --port 0 --http-port 0
  dledger restore /backup/today --config /etc/dledger/broker-a.toml      on each of its machines
  dledger restore s3://backups/dledger --to data       the newest backup there
"""
NOTES = """\
The snapshots are checked as by `dledger verify` before anything is written. The snapshot of a group
with most entries is used. The new cluster has all messages, offsets, topics, groups and accounts
of that moment; accounts need the cluster-secret of the old cluster. An interrupted restore
can be repeated.
"""


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or GROUP_NAME.fullmatch(new) is None:
        raise ValueError(f"{text!r} is not OLD=NEW, where NEW has letters, digits, - and _")
    return old, new


@click.command(cls=Command, examples=EXAMPLES, notes=NOTES)
@click.argument(
    "snapshots",
    metavar="SNAPSHOT...|URL",
    nargs=-1,
    required=True,
    help="The directory of `dledger snapshot`, or those of single replicas in it; or the "
    "URL of `dledger backup`.",
)
@click.option(
    "--backup", metavar="NAME", help="The name of a backup at the URL (default: the newest)."
)
@click.option(
    "--to",
    "directory",
    metavar="DIR",
    type=DIRECTORY,
    help="A new directory for a cluster on this machine, as `dledger up` makes it.",
)
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=PATH,
    help="Restore only the data of the node with this node.toml; its members become "
    "the voters. Do this for each member, from the same snapshot, before the first one starts.",
)
@click.option(
    "--rename",
    "renamed",
    metavar="OLD=NEW",
    type=_renaming,
    multiple=True,
    help="Give a group of the snapshot another name.",
)
@click.option(
    "--nodes",
    type=WholeRange(1, NODES_MAX),
    metavar="N",
    help="Nodes of each group (default: 3).",
)
@port_options
@json_option
def command(
    *,
    snapshots: tuple[str, ...],
    backup: str | None,
    directory: Path | None,
    config_path: str | None,
    renamed: tuple[tuple[str, str], ...],
    nodes: int | None,
    output: Output,
    **ports: int | None,
) -> None:
    if (directory is None) == (config_path is None):
        raise UsageError("say where to restore: either --to DIR or --config FILE")
    given = Ports(**ports)
    if config_path is not None and (nodes is not None or given != Ports()):
        raise UsageError("with --config the file gives the number of nodes and their addresses")
    config = None if config_path is None else _read(config_path)
    # The data is renamed to its place, which a symbolic link would refuse.
    target = Path(os.path.realpath(directory or (config.data if config else "")))
    require_empty(target)
    names = dict(renamed)
    wanted = None if config is None else [old for old in names if names[old] == config.group]
    with ExitStack() as fetched:
        places = [Path(each) for each in snapshots]
        if url := _url(snapshots, backup):
            only = wanted or (None if config is None else [config.group])
            places = [fetched.enter_context(fetched_backup(url, backup, target, only))]
        fs = OsFileSystem()
        found = find_snapshots(fs, places)
        groups = _rename(newest_of_each_group(found), names)
        if config is None:
            replicas = _new_cluster(target, groups, nodes or 3, given)
        else:
            replicas = [_configured(config, groups)]
        check_whole(fs, found)
        total = sum(size for each in replicas for _name, size in each.source.files())
        with Progress("bytes restored", total=total) as progress:
            restore_data(target, replicas, progress.add, with_settings=config is None)
    _print(target, replicas, output, is_cluster=config is None)


def _url(snapshots: Sequence[str], backup: str | None) -> str | None:
    """The URL of backups, if one is given."""
    urls = [each for each in snapshots if "://" in each]
    if urls and len(snapshots) > 1:
        raise UsageError("name one URL, or directories of snapshots")
    if backup is not None and not urls:
        raise UsageError("--backup names one of the backups of a URL")
    return urls[0] if urls else None


def _read(path: str) -> NodeConfig:
    with UsageError.instead_of(ConfigError):
        config: NodeConfig = read_config(path, os.environ)
    if config.join:
        raise UsageError(f"{path}: join = true: such a node gets its data from its group")
    return config


def _rename(
    found: Mapping[str, SnapshotSource], names: Mapping[str, str]
) -> dict[str, SnapshotSource]:
    if unknown := sorted(names.keys() - found.keys()):
        raise UsageError(f"the snapshot has no group {unknown[0]}; it has {', '.join(found)}")
    renamed = {names.get(group, group): source for group, source in found.items()}
    if len(renamed) < len(found):
        raise UsageError("two groups would have the same name")
    return dict(sorted(renamed.items()))


@UsageError.instead_of(ConfigError)
def _new_cluster(
    directory: Path, groups: Mapping[str, SnapshotSource], nodes: int, ports: Ports
) -> list[RestoredReplica]:
    made = []
    for config in plan_cluster(directory, nodes, list(groups), ports):
        source = groups[config.group]
        size = source.identity.segment_size
        body = min(config.max_message_size, size // 2)
        fitting = replace(config, segment_size=size, max_message_size=body)
        made.append(RestoredReplica(source, fitting, f"{config.group}/{config.node}"))
    return made


def _configured(config: NodeConfig, groups: Mapping[str, SnapshotSource]) -> RestoredReplica:
    if config.group not in groups:
        known = ", ".join(groups)
        raise UsageError(
            f"{config.name} belongs to the group {config.group}, but the snapshot has {known}; "
            f"--rename OLD={config.group} gives one of them this name"
        )
    source = groups[config.group]
    if config.segment_size != source.identity.segment_size:
        raise UsageError(
            f"{config.name}: segment_size must be {source.identity.segment_size}, as in the "
            "snapshot"
        )
    return RestoredReplica(source, config, ".")


def _print(
    directory: Path, replicas: Sequence[RestoredReplica], output: Output, *, is_cluster: bool
) -> None:
    document: dict[str, Any] = {
        "directory": str(directory),
        "replicas": [
            {
                "replica": each.config.name,
                "source": each.source.directory,
                "source_replica": each.source.identity.owner,
                "first_index": each.source.manifest.first_index,
                "commit_index": each.source.manifest.commit_index,
                "time_ms": each.source.manifest.time_ms,
            }
            for each in replicas
        ],
    }
    if output.document(document):
        return
    print_table(
        ("REPLICA", "ENTRIES", "FROM"),
        [
            (each["replica"], f"{each['first_index']} to {each['commit_index']}", each["source"])
            for each in document["replicas"]
        ],
    )
    if is_cluster:
        print(f"\n`dledger up{data_hint(directory)}` starts it")
