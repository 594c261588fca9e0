"""The check of two-slot files: each byte, and the order of the slots.

A save writes the first slot, syncs, and writes the second (:mod:`store.io.two_slot_file`). So the
second slot is never ahead, the first is at most one save ahead, and slots of one save are equal.
"""

from __future__ import annotations

from collections.abc import Callable

from store.errors import DamagedError
from store.field_checks import U64_MAX
from store.io.filesystem import ReadableFileSystem
from store.io.two_slot_file import SLOT_COUNT, SLOT_SIZE, decode_slot, encode_slot, slot_owner
from store.verify.files.first_difference import first_difference
from store.verify.files.small_files import read_head
from store.verify.findings import RESTORE, FindingKind, FindingLog

ONE_SLOT = (
    "the other copy is whole and the next start repairs this one; "
    "unless the power failed while it was written, suspect the disk"
)
FILE_SIZE = SLOT_COUNT * SLOT_SIZE
TWO_COPIES = "two copies of the record"


def read_slots(
    fs: ReadableFileSystem,
    path: str,
    owner: str,
    kind: FindingKind,
    log: FindingLog,
    *,
    advice: str = RESTORE,
) -> bytes | None:
    """The payload of the newest intact slot. The file must be that of ``owner``."""

    def report(at: int, expected: str, found: str, advice: str = advice) -> None:
        log.add(kind, path, at, expected, found, advice)

    try:
        data = read_head(fs, path, FILE_SIZE + 1)
    except FileNotFoundError:
        report(0, "a file", "none")
        return None
    except DamagedError as error:
        log.add_damage(kind, error, TWO_COPIES, advice)
        return None
    if len(data) > FILE_SIZE:
        report(FILE_SIZE, f"a file of {FILE_SIZE} bytes", "a longer one")
    slots = [decode_slot(data[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        report(0, TWO_COPIES, "neither is whole")
        return None
    for at, slot in zip((0, SLOT_SIZE), slots, strict=True):
        if slot is None:
            report(at, "two whole copies", "one", ONE_SLOT)
        elif not _check_slot(data[at : at + SLOT_SIZE], slot, at, owner, report):
            break
    first, second = slots
    if first is not None and second is not None:
        ahead = first[0] - second[0]
        if ahead not in (0, 1) or (ahead == 0 and first[1] != second[1]):
            report(
                SLOT_SIZE,
                "the record of the first slot, or of the save before",
                f"save {second[0]} behind save {first[0]}",
            )
    return max(whole)[1]


def _check_slot(
    data: bytes,
    slot: tuple[int, bytes],
    at: int,
    owner: str,
    report: Callable[[int, str, str], None],
) -> bool:
    """Checks the bytes around an intact record. ``False`` for a file of another node."""
    sequence, payload = slot
    named = slot_owner(data)
    if named not in ("", owner):
        report(at, f"the file of {owner}", f"that of {named}")
        return False
    if not 0 < sequence < U64_MAX:
        report(at + 8, "the number of a save that others can follow", f"{sequence}")
    right = encode_slot(sequence, payload, named)
    if right != data:
        byte = first_difference(data, right)
        report(at + byte, "zeros, and whose file it is, behind the record", f"{data[byte]:02x}")
    return True
