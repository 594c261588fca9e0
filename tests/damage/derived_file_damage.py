"""Damages of entry index, ConsumeQueues and key index, and of the bytes of a manifest."""

from __future__ import annotations

from random import Random

from store.index.block_seals import SEAL_SIZE, SEAL_SUFFIX
from store.index.queue_tails import TAILS_NAME
from store.io.atomic_file import replace_file
from store.log.entry import HEADER_SIZE
from store.log.layout import segment_name
from store.message.batch import decode_batch
from store.verify import FindingKind
from tests.damage.planted_damage import AnyIndex, Planted, Planter
from tests.damage.replica_groups import Group, Member

INDEX_ROW = 32
QUEUE_ROW = 20


def _index_rows(group: Group, member: Member, rng: Random) -> tuple[str, int, int]:
    index = rng.randrange(member.checkpoint_index + 1)
    start = index - index % 8
    name = segment_name(start * INDEX_ROW)
    return f"{member.directory}/index/{name}", (index - start) * INDEX_ROW, index


def _index(member: Member, what: str, index: int, path: str) -> Planted:
    return Planted(what, member, frozenset({FindingKind.ENTRY_INDEX}), index, path)


def flip_in_index(group: Group, member: Member, rng: Random) -> Planted:
    path, byte, index = _index_rows(group, member, rng)
    group.fs.flip_bit(path, byte + rng.randrange(INDEX_ROW), rng.randrange(8))
    return _index(member, "bit flipped in the entry index", index, path)


def truncate_index(group: Group, member: Member, rng: Random) -> Planted:
    path, byte, index = _index_rows(group, member, rng)
    group.fs.cut(path, byte + rng.randrange(INDEX_ROW))
    return _index(member, "entry index truncated", index, path)


def remove_index_file(group: Group, member: Member, rng: Random) -> Planted:
    path, byte, index = _index_rows(group, member, rng)
    group.fs.vanish(path)
    planted = _index(member, "file of the entry index removed", index - byte // INDEX_ROW, path)
    planted.path = None  # a missing file is reported as the end of the one before, if there is one
    return planted


def duplicate_index_row(group: Group, member: Member, rng: Random) -> Planted | None:
    path, byte, index = _index_rows(group, member, rng)
    if not byte:
        return None
    row = group.fs.visible_bytes(path)[byte - INDEX_ROW : byte]
    group.fs.overwrite(path, row, byte)
    return _index(member, "row of the entry index duplicated", index, path)


def _queue_rows(group: Group, member: Member, rng: Random) -> tuple[str, int, int]:
    """Path, byte and entry of a row that the checkpoint covers."""
    rows = []
    for entry in group.entries[: member.checkpoint_index + 1]:
        if entry.size == HEADER_SIZE:
            continue
        batch = decode_batch(entry.body)
        for run in batch.runs:
            offsets = range(run.first_offset, run.first_offset + run.row_count)
            rows += [(run.topic, run.queue_id, offset, entry.index) for offset in offsets]
    topic, queue_id, offset, index = rng.choice(rows)
    start = offset - offset % 20
    directory = f"{member.directory}/consumequeue/{topic}/{queue_id}"
    name = segment_name(start * QUEUE_ROW)
    return f"{directory}/{name}", (offset - start) * QUEUE_ROW, index


def _queue(member: Member, what: str, index: int, path: str) -> Planted:
    return Planted(what, member, frozenset({FindingKind.CONSUME_QUEUE}), index, path)


def flip_in_queue(group: Group, member: Member, rng: Random) -> Planted:
    path, byte, index = _queue_rows(group, member, rng)
    group.fs.flip_bit(path, byte + rng.randrange(QUEUE_ROW), rng.randrange(8))
    return _queue(member, "bit flipped in a ConsumeQueue", index, path)


def truncate_queue(group: Group, member: Member, rng: Random) -> Planted:
    path, byte, index = _queue_rows(group, member, rng)
    group.fs.cut(path, byte + rng.randrange(QUEUE_ROW))
    return _queue(member, "ConsumeQueue truncated", index, path)


def shift_queue_row(group: Group, member: Member, rng: Random) -> Planted:
    path, byte, index = _queue_rows(group, member, rng)
    position = int.from_bytes(group.fs.visible_bytes(path)[byte : byte + 8], "big")
    group.fs.overwrite(path, (position + rng.randint(1, 500)).to_bytes(8, "big"), byte)
    return _queue(member, "ConsumeQueue entry misdirected", index, path)


def swap_queue_rows(group: Group, member: Member, rng: Random) -> Planted | None:
    path, byte, index = _queue_rows(group, member, rng)
    data = group.fs.visible_bytes(path)
    one, other = data[byte : byte + QUEUE_ROW], data[byte + QUEUE_ROW : byte + 2 * QUEUE_ROW]
    if len(other) < QUEUE_ROW or not any(other):
        return None
    group.fs.overwrite(path, other + one, byte)
    return _queue(member, "ConsumeQueue entries swapped", index, path)


def zero_queue_row(group: Group, member: Member, rng: Random) -> Planted:
    path, byte, index = _queue_rows(group, member, rng)
    group.fs.overwrite(path, bytes(QUEUE_ROW), byte)
    return _queue(member, "ConsumeQueue entry zeroed", index, path)


def older_queue(group: Group, member: Member, rng: Random) -> Planted | None:
    path, _byte, _index = _queue_rows(group, member, rng)
    older = path.replace(member.directory, member.live_directory)
    if older not in group.older.files():
        return None
    data, now = group.older.visible_bytes(older), group.fs.visible_bytes(path)
    if len(data) >= len(now):
        return None
    directory, _slash, name = path.rpartition("/")
    position = int.from_bytes(now[len(data) : len(data) + 8], "big")
    entry = next(each for each in group.entries if each.end > position)
    if entry.index > member.checkpoint_index:
        return None
    replace_file(group.fs, directory, name, data)
    return _queue(member, "ConsumeQueue replaced by an older copy", entry.index, path)


def flip_in_seals(group: Group, member: Member, rng: Random) -> Planted | None:
    """Damages a seal of a file of rows that is full, and not the last."""
    path, _byte, _index = _queue_rows(group, member, rng)
    directory, _slash, name = path.rpartition("/")
    following = f"{directory}/{segment_name(int(name) + 20 * QUEUE_ROW)}"
    seals = path + SEAL_SUFFIX
    if not (group.fs.exists(following) and group.fs.exists(seals)):
        return None
    group.fs.flip_bit(seals, rng.randrange(SEAL_SIZE), rng.randrange(8))
    kinds = frozenset({FindingKind.CONSUME_QUEUE})
    return AnyIndex("bit flipped in the seal of a block", member, kinds, None, seals)


def _tails(group: Group, member: Member) -> str | None:
    path = f"{member.directory}/state/{TAILS_NAME}"
    return path if group.fs.exists(path) else None


def flip_in_tails(group: Group, member: Member, rng: Random) -> Planted | None:
    path = _tails(group, member)
    if path is None:
        return None
    size = len(group.fs.visible_bytes(path))
    group.fs.flip_bit(path, rng.randrange(size), rng.randrange(8))
    kinds = frozenset({FindingKind.CONSUME_QUEUE})
    return AnyIndex("bit flipped in the tails of queues", member, kinds, None, path)


def truncate_tails(group: Group, member: Member, rng: Random) -> Planted | None:
    path = _tails(group, member)
    if path is None:
        return None
    group.fs.cut(path, rng.randrange(len(group.fs.visible_bytes(path))))
    kinds = frozenset({FindingKind.CONSUME_QUEUE})
    return AnyIndex("tails of queues truncated", member, kinds, None, path)


def _key_file(group: Group, member: Member, rng: Random) -> str | None:
    directory = f"{member.directory}/keyindex"
    if not group.fs.exists(directory):
        return None
    names = group.fs.list_directory(directory)
    return f"{directory}/{rng.choice(names)}" if names else None


def flip_in_keys(group: Group, member: Member, rng: Random) -> Planted | None:
    path = _key_file(group, member, rng)
    if path is None:
        return None
    size = len(group.fs.visible_bytes(path))
    group.fs.flip_bit(path, rng.randrange(size), rng.randrange(8))
    kinds = frozenset({FindingKind.KEY_INDEX})
    return AnyIndex("bit flipped in the key index", member, kinds, None, path)


def truncate_keys(group: Group, member: Member, rng: Random) -> Planted | None:
    path = _key_file(group, member, rng)
    if path is None:
        return None
    group.fs.cut(path, rng.randrange(len(group.fs.visible_bytes(path))))
    kinds = frozenset({FindingKind.KEY_INDEX})
    return AnyIndex("key index truncated", member, kinds, None, path)


def remove_keys(group: Group, member: Member, rng: Random) -> Planted | None:
    path = _key_file(group, member, rng)
    if path is None:
        return None
    group.fs.vanish(path)
    kinds = frozenset({FindingKind.KEY_INDEX})
    return AnyIndex("file of the key index removed", member, kinds, None)


# --- the manifest


def flip_in_manifest(group: Group, member: Member, rng: Random) -> Planted | None:
    if not member.is_snapshot:
        return None
    path = f"{member.directory}/manifest.json"
    size = len(group.fs.visible_bytes(path))
    group.fs.flip_bit(path, rng.randrange(size - 1), rng.randrange(8))
    kinds = frozenset({FindingKind.FORMAT})
    return AnyIndex("bit flipped in the manifest", member, kinds, None, path)


def remove_manifest(group: Group, member: Member, rng: Random) -> Planted | None:
    if not member.is_snapshot:
        return None
    path = f"{member.directory}/manifest.json"
    group.fs.vanish(path)
    kinds = frozenset({FindingKind.FORMAT})
    return AnyIndex("manifest removed", member, kinds, None, path)


DERIVED_PLANTERS: dict[str, Planter] = {
    planter.__name__.replace("_", "-"): planter
    for planter in (
        flip_in_index, truncate_index, remove_index_file, duplicate_index_row, flip_in_queue,
        truncate_queue, shift_queue_row, swap_queue_rows, zero_queue_row, older_queue,
        flip_in_seals, flip_in_tails, truncate_tails, flip_in_keys, truncate_keys, remove_keys,
        flip_in_manifest, remove_manifest,
    )
}  # fmt: skip
