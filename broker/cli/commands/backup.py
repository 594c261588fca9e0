"""``dledger backup``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from broker.cli.backup.backup_index import BackupIndex, BackupReplica, backup_name
from broker.cli.backup.backup_store import BackupStore, snapshot_files
from broker.cli.backup.local_snapshots import LocalSnapshots, local_snapshots
from broker.cli.backup.snapshot_choice import find_snapshots, newest_of_each_group
from broker.cli.terminal.numbers import WholeRange
from broker.cli.terminal.options import (
    DIRECTORY,
    ask_first,
    cluster_options,
    dry_run_option,
    json_option,
    yes_option,
)
from broker.cli.terminal.output import Output, print_table, unregistered_groups
from broker.cli.terminal.program import Group
from broker.cli.terminal.progress import Progress
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.broker_names import unregistered
from broker.cluster_admin.cluster_view import GroupView, view_groups
from broker.command_error import CommandError, UsageError
from broker.exit_codes import EXIT_FAILED
from broker.system.wall_clock import system_clock_ms
from store.errors import DamagedError
from store.io.os_filesystem import OsFileSystem
from store.restore import SnapshotSource

NOTES = """\
URL is one that fsspec or Arrow opens: s3://bucket/path, gs://bucket/path, abfs:// (with adlfs),
file:///path. The store's own variables hold the credentials, such as $AWS_ACCESS_KEY_ID;
$AWS_ENDPOINT_URL names another S3 server. It needs `pip install dledger[backup]`.
`dledger restore URL` makes a cluster from a backup.
"""

command = Group(notes=NOTES)
url_argument = click.argument("url", metavar="URL")


@command.command(
    examples="""\
  dledger backup create s3://backups/dledger
  dledger backup create file:///mnt/nas/dledger --snapshot /backup/today
"""
)
@url_argument
@click.option(
    "--group",
    "names",
    metavar="GROUP",
    multiple=True,
    help="Only this broker group; may be given several times (default: all).",
)
@click.option(
    "--snapshot",
    metavar="DIR",
    type=DIRECTORY,
    help="Back up this snapshot of `dledger snapshot`, not a running node of this machine.",
)
@cluster_options
def create(
    *, url: str, names: tuple[str, ...], snapshot: Path | None, namesrv: str, output: Output
) -> int:
    """Back up one replica of each group. Files that the store has are not sent again.

    Exits 1 if a group has no running node, because the backup lacks it, and if a snapshot that was
    made for the backup cannot be removed.
    """
    store = BackupStore(url)
    gone: list[str] = []
    with ExitStack() as taken:
        if snapshot is None:
            groups, gone = _chosen(run_admin(namesrv, view_groups), names)
            made = taken.enter_context(local_snapshots(groups))
        else:
            made = LocalSnapshots([snapshot])
        found = newest_of_each_group(find_snapshots(OsFileSystem(), made.directories))
        if unknown := sorted(set(names) - found.keys()):
            raise UsageError(f"{snapshot} has no group {unknown[0]}; it has {', '.join(found)}")
        sources = [source for group, source in found.items() if not names or group in names]
        index, sent = _send(store, sources)
    document = {**_described(index), "sent_bytes": sent, **unregistered_groups(gone)}
    if not output.document(document):
        print(f"{index.name}: {index.size:,} bytes, {sent:,} of them sent")
    if gone:
        print(
            f"dledger backup: {unregistered(gone)}: the backup lacks it; name the other groups "
            "with --group if that is right",
            file=sys.stderr,
        )
    return EXIT_FAILED if gone or made.left else 0


def _chosen(
    groups: Sequence[GroupView], names: tuple[str, ...]
) -> tuple[list[GroupView], list[str]]:
    """The running groups to back up, and the names of those that should be in the backup and have
    no registered node."""
    known = [group.group for group in groups]
    if unknown := sorted(set(names) - set(known)):
        raise UsageError(f"there is no group {unknown[0]}; known are: {', '.join(known)}")
    chosen = [group for group in groups if not names or group.group in names]
    gone = [group.group for group in chosen if group.unregistered_seconds is not None]
    running = [group for group in chosen if group.unregistered_seconds is None]
    if not running:
        raise CommandError(unregistered(gone) if gone else "no broker is registered")
    return running, gone


def _send(store: BackupStore, sources: Sequence[SnapshotSource]) -> tuple[BackupIndex, int]:
    """Sends the files, then the list. Returns the backup and the bytes that were sent."""
    replicas = [
        BackupReplica(
            source.identity.group,
            source.identity.node,
            source.manifest.commit_index,
            source.manifest.time_ms,
            snapshot_files(Path(source.directory)),
        )
        for source in sources
    ]
    index = BackupIndex(backup_name(system_clock_ms()), tuple(replicas))
    sent = 0
    with Progress("bytes backed up", total=index.size) as progress:
        for source, replica in zip(sources, replicas, strict=True):
            for file in replica.files:
                if store.put(Path(source.directory, file.name), file, progress.add):
                    sent += file.size
        store.write(index)
    return index, sent


@command.command("list", examples="  dledger backup list s3://backups/dledger\n")
@url_argument
@json_option
def list_backups(*, url: str, output: Output) -> None:
    """The backups, oldest first."""
    store = BackupStore(url)
    found = [_read(store, name) for name in store.names()]
    if output.document({"url": store.url, "backups": found}):
        return
    rows: list[tuple[object, ...]] = []
    for each in found:
        if "error" in each:
            rows.append((each["backup"], None, None, None, each["error"]))
        for replica in each.get("replicas", ()):
            taken = datetime.fromtimestamp(replica["time_ms"] / 1000, UTC)
            shown = f"{replica['group']}/{replica['node']}"
            rows.append(
                (each["backup"], f"{taken:%FT%TZ}", shown, f"{replica['bytes']:,}", "whole")
            )
    print_table(("BACKUP", "TAKEN", "REPLICA", "BYTES", "STATE"), rows)


def _read(store: BackupStore, name: str) -> dict[str, Any]:
    try:
        return _described(store.read(name))
    except DamagedError as error:
        return {"backup": name, "error": str(error)}


def _described(index: BackupIndex) -> dict[str, Any]:
    return {
        "backup": index.name,
        "bytes": index.size,
        "replicas": [
            {
                "group": replica.group,
                "node": replica.node,
                "commit_index": replica.commit_index,
                "time_ms": replica.time_ms,
                "bytes": replica.size,
            }
            for replica in index.replicas
        ],
    }


@command.command(examples="  dledger backup prune s3://backups/dledger --keep 14\n")
@url_argument
@click.option(
    "--keep", type=WholeRange(1), metavar="N", required=True, help="How many of the newest to keep."
)
@dry_run_option
@yes_option
@json_option
def prune(*, url: str, keep: int, dry_run: bool, yes: bool, output: Output) -> None:
    """Remove old backups, and files that no other backup needs. Make no backup meanwhile."""
    store = BackupStore(url)
    names = store.names()
    old, kept = names[:-keep], names[-keep:]
    try:
        indexes = [store.read(name) for name in kept]
    except DamagedError as error:
        raise CommandError(
            f"nothing is removed, because a backup cannot be read: {error}"
        ) from error
    freed = 0
    if not dry_run:
        if old:
            ask_first(f"Remove {len(old)} backups from {store.url}", yes=yes)
        for name in old:
            store.remove_backup(name)
        used = {
            file.object_name
            for index in indexes
            for replica in index.replicas
            for file in replica.files
        }
        freed = store.remove_unused(frozenset(used))
    if not output.document(
        {"removed": old, "kept": kept, "freed_bytes": freed, "dry_run": dry_run}
    ):
        for name in old:
            print(f"{name}: {'would be removed' if dry_run else 'removed'}")
        print(f"backups kept: {len(kept)}; {freed:,} bytes freed")
