"""Reads ``state/tails``."""

from __future__ import annotations

from store.errors import DamagedError
from store.index.block_seals import Tail
from store.index.queue_tails import TAILS_NAME, decode_tails
from store.io.filesystem import ReadableFileSystem
from store.verify.files.audit_files import listed_names
from store.verify.files.small_files import read_head
from store.verify.findings import FindingKind, FindingLog

TAILS_SIZE_MAX = 256 << 20
ADVICE = "the node makes it again from the log while it runs; or remove the file"


def read_queue_tails(
    fs: ReadableFileSystem, state_directory: str, log: FindingLog
) -> dict[tuple[str, int], Tail]:
    """The tails of ConsumeQueues, by topic and queue id. The file may be absent."""
    path = f"{state_directory}/{TAILS_NAME}"
    if TAILS_NAME not in listed_names(fs, state_directory):
        return {}
    try:
        return decode_tails(read_head(fs, path, TAILS_SIZE_MAX), path)
    except FileNotFoundError:
        return {}
    except DamagedError as error:
        log.add_damage(FindingKind.CONSUME_QUEUE, error, "the tails of ConsumeQueues", ADVICE)
        return {}
