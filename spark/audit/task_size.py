"""The default size of a task: how much of the log it checks.

A task takes 0.05 to 0.1 s besides its check: as long as the check of 100 to 200 MB of replicas. So
few large tasks cost least. But each core needs a task, and after a failure or a damaged entry the
whole range is checked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark.sql import SparkSession

from store.io.filesystem import FileSystem
from store.log.layout import parse_segment_name, segment_name
from store.verify.files.audit_files import AuditFiles

RANGE_BYTES_MIN = 64 << 20
RANGE_BYTES_MAX = 1 << 30
REQUESTS_AT_ONCE = 16
"""Requests that the driver sends at the same time, because an object store answers slowly."""
UNKNOWN_CORES = 64
"""Assumed for a Connect server, which does not say it. Small tasks cost little on few cores."""


def range_bytes_for(log_bytes: int, cores: int) -> int:
    """Bytes of log in a range: an equal number of ranges for each core, none above the maximum."""
    rounds = -(-log_bytes // (cores * RANGE_BYTES_MAX))
    return max(RANGE_BYTES_MIN, -(-log_bytes // max(cores * rounds, 1)))


def count_cores(session: SparkSession) -> int:
    """How many tasks run at once."""
    try:
        return max(1, session.sparkContext.defaultParallelism)
    except AttributeError:  # PySpark's error for a session of Connect is one
        return UNKNOWN_CORES


def log_bytes(fs: FileSystem, directories: Sequence[str]) -> int:
    """Bytes from the first segment to the end of the last, in the longest replica."""
    paths = [f"{directory}/commitlog" for directory in directories]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        return max(pool.map(partial(_log_bytes, fs), paths))


def _log_bytes(fs: FileSystem, directory: str) -> int:
    files = AuditFiles(fs)
    names = files.list_directory(directory) if files.exists(directory) else []
    starts = sorted(start for name in names if (start := parse_segment_name(name)) is not None)
    if not starts:
        return 0
    last = files.open(f"{directory}/{segment_name(starts[-1])}", writable=False)
    try:
        return starts[-1] + last.size() - starts[0]
    finally:
        last.close()
