"""Locks replicas during a check, so that no node can open them."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import ExitStack

from store.errors import DataLockedError
from store.io.filesystem import FileSystem
from store.verify.files.audit_files import DANGLING, listed_names, may_be_right, reason
from store.verify.findings import Finding, FindingKind, FindingLog
from store.verify.state.stray_files import LOCK_NAME

UNLOCKED = "make sure that no node has this data open while it is checked"


def lock_replicas(fs: FileSystem, directories: Sequence[str], locks: ExitStack) -> list[Finding]:
    """Locks each directory until ``locks`` are released. Returns findings about lock files that
    cannot be locked.

    A snapshot has no lock file, and gets none. A read-only file system needs no lock. Raises
    :class:`~store.errors.DataLockedError` if a process has the data open.
    """
    findings = []
    for directory in directories:
        path = f"{directory}/{LOCK_NAME}"
        try:
            if fs.exists(path):
                locks.callback(fs.lock(path).release)
            elif LOCK_NAME in listed_names(fs, directory):
                raise FileNotFoundError(errno.ENOENT, DANGLING, path)
        except BlockingIOError as error:
            raise DataLockedError(
                f"{directory}: a running node has this data open; stop it, or check a snapshot"
            ) from error
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) == errno.EROFS:
                continue
            log = FindingLog(directory)
            log.add(
                FindingKind.FORMAT,
                path,
                0,
                "the lock file of a node's directory",
                f"cannot be locked: {reason(error)}",
                UNLOCKED,
                unread=may_be_right(error),
            )
            findings += log.findings
    return findings


def without_unlocked(planned: Sequence[Finding], unlocked: Sequence[Finding]) -> list[Finding]:
    """The findings of a plan without those that :func:`lock_replicas` has reported."""
    reported = {finding.path for finding in unlocked}
    return [finding for finding in planned if finding.path not in reported]
