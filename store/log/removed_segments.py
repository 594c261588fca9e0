"""Segment files whose names were removed while the log has them open.

Their bytes are there until the last descriptor is closed. So reads find nothing wrong, and all of
it would be lost at the end of the process. The scrub gives such bytes a name again.
"""

from __future__ import annotations

from store.io.atomic_file import TEMPORARY_SUFFIX
from store.io.filesystem import FileSystem
from store.log.commit_log import CommitLog
from store.log.log_reader import read_segment
from store.log.segment import Segment

COPIED_SIZE = 4 << 20
"""Bytes that are copied at once."""


def restore_removed(fs: FileSystem, log: CommitLog) -> list[str]:
    """Writes closed segments again whose files are open and have lost their names. Returns what
    was done. On the background thread.

    A segment that cannot be read stays as it is. Raises ``OSError``.
    """
    told = []
    for start, segment in sorted(log.segments.items()):
        if start + log.segment_size > log.synced_end:
            break
        if segment.opened is not None and not fs.exists(segment.path) and _copy(fs, log, segment):
            told.append(f"{segment.path}: the segment file was removed, and is written again")
    return told


def _copy(fs: FileSystem, log: CommitLog, segment: Segment) -> bool:
    file, temporary = segment.file, segment.path + TEMPORARY_SUFFIX
    size, at = file.size(), 0
    copy = fs.open(temporary, create=True)
    try:
        copy.truncate(0)
        while at < size:
            piece = read_segment(file, min(COPIED_SIZE, size - at), at)
            if piece.missing is not None:
                fs.remove(temporary)
                return False
            copy.pwrite(piece.data, at)
            at += len(piece.data)
        copy.datasync()
    except OSError:
        fs.remove(temporary)
        raise
    finally:
        copy.close()
    fs.rename(temporary, segment.path)
    log.sync_directory()
    segment.release_file()
    return True
