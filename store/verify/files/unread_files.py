"""Tells wrong from unread.

If a file cannot be read, a comparison misses its contents. Such a finding only repeats that the
file is unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from store.errors import UnreadableError
from store.io.filesystem import ReadableFileSystem
from store.log.entry import HEADER_SIZE, PADDING, PADDING_SIZE
from store.log.log_reader import read_segment
from store.verify.findings import Finding, FindingKind

EXIT_CONSISTENT = 0
EXIT_FOUND = 1
EXIT_UNREAD = 2

ROW_SIZE_MAX = 32
"""Bytes of the largest row."""


def exit_code(findings: Sequence[Finding]) -> int:
    """The exit code of a check: 1 if something is wrong; else 2 if something is unread; else 0."""
    if any(not finding.unread for finding in findings):
        return EXIT_FOUND
    return EXIT_UNREAD if findings else EXIT_CONSISTENT


def mark_unread(
    fs: ReadableFileSystem, findings: Sequence[Finding], others: Sequence[Finding] = ()
) -> list[Finding]:
    """The findings; those that only miss the contents of an unread file are marked as unread.

    ``others``: more findings about unread files.
    """
    hidden = {(one.replica, one.path, one.position) for one in (*findings, *others) if one.unread}
    return [
        replace(finding, unread=True)
        if not finding.unread and any(_lacks_bytes(fs, finding, *each) for each in hidden)
        else finding
        for finding in findings
    ]


def _lacks_bytes(
    fs: ReadableFileSystem, finding: Finding, replica: str, path: str, byte: int
) -> bool:
    """Whether the finding misses bytes of ``path``, which cannot be read from ``byte`` on."""
    if finding.replica != replica:
        return False
    if finding.path != path:
        return finding.path.startswith(f"{path}/")
    if finding.position > byte - ROW_SIZE_MAX:
        return True
    return finding.kind is FindingKind.ENTRY and _entry_end(fs, finding) > byte


def _entry_end(fs: ReadableFileSystem, finding: Finding) -> int:
    """The end of an entry in its file, by its header."""
    try:
        with closing(fs.open(finding.path, writable=False)) as file:
            head, _missing = read_segment(file, PADDING_SIZE, finding.position)
    except (OSError, ValueError, UnreadableError):
        head = b""
    size = PADDING.unpack(head)[1] if len(head) == PADDING_SIZE else 0
    return finding.position + max(size, HEADER_SIZE)
