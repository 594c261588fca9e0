"""Selects the snapshots to restore: complete ones, of each group the one with most entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from broker.cli.terminal.progress import Progress
from broker.command_error import CommandError, UsageError
from store.counted import counted
from store.errors import DataFormatError, DataLockedError, StoreError
from store.io.filesystem import FileSystem
from store.restore import SnapshotSource
from store.verify import log_size, verify_replicas
from store.verify.plan.targets import find_replicas


@UsageError.instead_of(StoreError, OSError)
def find_snapshots(fs: FileSystem, directories: Iterable[Path]) -> list[SnapshotSource]:
    """The snapshots of replicas in these directories and below.

    Raises :class:`UsageError` if one of them has no snapshot.
    """
    return [
        SnapshotSource.open(fs, replica)
        for directory in directories
        for replica in find_replicas(fs, str(directory.absolute()))
    ]


def check_whole(fs: FileSystem, snapshots: Sequence[SnapshotSource]) -> None:
    """Checks them as ``dledger verify`` does, each group by itself: one whole replica is enough.
    Raises :class:`CommandError` for any finding."""
    groups: dict[str, list[str]] = {}
    for each in snapshots:
        groups.setdefault(each.identity.group, []).append(each.directory)
    total = sum(log_size(fs, snapshot.directory) for snapshot in snapshots)
    try:
        with Progress("bytes of log checked", total=total) as progress:
            checks = [verify_replicas(fs, group, progress.add) for group in groups.values()]
    except (DataLockedError, DataFormatError) as error:
        raise UsageError(str(error)) from error
    except (StoreError, OSError) as error:
        raise CommandError(f"the check could not be finished: {error}") from error
    if found := [finding for check in checks for finding in check.findings]:
        raise CommandError(
            f"nothing is restored: {found[0]} ({counted(len(found), 'finding')}; `dledger verify` "
            "shows them; name only directories of complete replicas)"
        )


def newest_of_each_group(snapshots: Iterable[SnapshotSource]) -> dict[str, SnapshotSource]:
    """For each group the snapshot with most entries. All entries of a snapshot are committed."""
    newest: dict[str, SnapshotSource] = {}
    for snapshot in sorted(snapshots, key=lambda each: each.directory):
        group = snapshot.identity.group
        known = newest.get(group)
        if known is None or snapshot.manifest.commit_index > known.manifest.commit_index:
            newest[group] = snapshot
    return dict(sorted(newest.items()))
