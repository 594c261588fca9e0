"""The directory that a restore makes: complete, or not there at all.

The data is made in ``<directory>.restoring`` and renamed at the end. An interrupted restore leaves
only that directory, and the next restore starts it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from broker.command_error import CommandError
from broker.config.config_text import node_toml
from broker.config.node_config import NodeConfig
from dledger.raft.configuration import FIRST_INCARNATION, Configuration
from store.errors import StoreError
from store.io.os_filesystem import OsFileSystem
from store.recovery.opening import StoreConfig
from store.restore import SnapshotSource, restore_replica

STAGING_SUFFIX = ".restoring"
LOCK_NAME = "restore.lock"


@dataclass(frozen=True, slots=True)
class RestoredReplica:
    """A member to restore. ``place`` is its directory below the restored one; ``.``: the restored
    one itself."""

    source: SnapshotSource
    config: NodeConfig
    place: str

    @property
    def store_config(self) -> StoreConfig:
        return StoreConfig(
            self.config.group,
            self.config.node,
            segment_size=self.config.segment_size,
            incarnation=SystemRandom().randrange(FIRST_INCARNATION, 1 << 62),
        )

    @property
    def configuration(self) -> bytes:
        """The configuration entry with the voters of the new group. Their incarnations are added
        later."""
        return Configuration(tuple(sorted(self.config.members))).pack()


def require_empty(directory: Path) -> None:
    """Raises :class:`CommandError` unless ``directory`` is empty or absent."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror}; name a new directory") from error
    if names:
        held = ", ".join(names[:3])
        raise CommandError(f"{directory} holds data ({held}); name a new or an empty directory")
    if os.path.ismount(directory):
        raise CommandError(f"{directory} is a mount point; name a new directory below it")


def restore_data(
    directory: Path,
    replicas: Sequence[RestoredReplica],
    progress: Callable[[int], None],
    *,
    with_settings: bool,
) -> None:
    """Makes ``directory`` with these replicas, each with its ``node.toml`` if ``with_settings``.

    ``progress`` gets the bytes that were copied. Raises :class:`CommandError`, and then
    ``directory`` is unchanged.
    """
    fs = OsFileSystem()
    staging = Path(f"{directory}{STAGING_SUFFIX}")
    try:
        fs.make_directories(str(staging))
        lock = fs.lock(str(staging / LOCK_NAME))
    except BlockingIOError as error:
        raise CommandError(f"{staging}: another restore is making it") from error
    except OSError as error:
        raise CommandError(f"{staging} cannot be made: {error.strerror}") from error
    try:
        _clear(fs, staging)
        for replica in replicas:
            home = staging / replica.place
            for copied in restore_replica(
                replica.source, fs, str(home), replica.store_config, replica.configuration
            ):
                progress(copied)
            if with_settings:
                (home / "node.toml").write_text(node_toml(replica.config), encoding="utf-8")
        (staging / LOCK_NAME).unlink(missing_ok=True)
        fs.sync_all(str(staging))
        require_empty(directory)
        staging.rename(directory)
        fs.sync_directory(str(directory.parent))
    except (StoreError, OSError) as error:
        raise CommandError(f"{directory} could not be restored: {error}") from error
    finally:
        lock.release()


def _clear(fs: OsFileSystem, staging: Path) -> None:
    """Removes the files of an interrupted restore."""
    for path in staging.iterdir():
        if path.name == LOCK_NAME:
            continue
        if path.is_dir():
            fs.remove_tree(str(path))
        else:
            path.unlink()
