"""Damages of the log. A seed chooses kind and place."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from store.io.atomic_file import replace_file
from store.log.entry import HEADER, HEADER_SIZE, PADDING_SIZE, Entry, build_entry
from store.log.layout import segment_name, segment_start
from store.message.batch import decode_batch
from store.verify import FindingKind
from tests.damage.planted_damage import Planted, Planter
from tests.damage.replica_groups import Group, Member
from tests.store.sample_replica import SEGMENT_SIZE
from tests.store.verify.test_replica_comparison import collision

# --- the log


def _path(member: Member, position: int) -> tuple[str, int]:
    start = segment_start(position, SEGMENT_SIZE)
    return f"{member.directory}/commitlog/{segment_name(start)}", position - start


def _known(group: Group, member: Member) -> list[Entry]:
    return group.entries[: member.known_index + 1]


def _log(member: Member, what: str, index: int, path: str | None = None) -> Planted:
    return Planted(what, member, frozenset({FindingKind.ENTRY}), index, path)


def flip_in_log(group: Group, member: Member, rng: Random) -> Planted:
    entry = rng.choice(_known(group, member))
    at = rng.choice((rng.randrange(HEADER_SIZE), rng.randrange(entry.size)))
    path, byte = _path(member, entry.position + min(at, entry.size - 1))
    group.fs.flip_bit(path, byte, rng.randrange(8))
    return _log(member, "bit flipped in the log", entry.index, path)


def flip_in_padding(group: Group, member: Member, rng: Random) -> Planted | None:
    known = _known(group, member)
    closing = [
        entry for entry, following in pairwise(known) if following.position % SEGMENT_SIZE == 0
    ]
    if not closing:
        return None
    path, byte = _path(member, rng.choice(closing).end)
    group.fs.flip_bit(path, byte + rng.randrange(PADDING_SIZE), rng.randrange(8))
    kinds = frozenset({FindingKind.PADDING})
    return Planted("bit flipped in a padding", member, kinds, None, path)


def truncate_log(group: Group, member: Member, rng: Random) -> Planted:
    entry = rng.choice(_known(group, member))
    path, byte = _path(member, entry.position)
    group.fs.cut(path, byte + rng.randrange(entry.size))
    return _log(member, "log truncated", entry.index, path)


def zero_in_log(group: Group, member: Member, rng: Random) -> Planted:
    entry = rng.choice(_known(group, member))
    path, byte = _path(member, entry.position)
    group.fs.overwrite(path, bytes(entry.size), byte)
    return _log(member, "entry zeroed", entry.index, path)


def swap_entries(group: Group, member: Member, rng: Random) -> Planted | None:
    known = _known(group, member)
    pairs = [(a, b) for a in known for b in known if a.index < b.index and a.size == b.size]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    for here, other in ((first, second), (second, first)):
        path, byte = _path(member, here.position)
        group.fs.overwrite(path, bytes(other.data), byte)
    return _log(member, "entries swapped", first.index)


def duplicate_entry(group: Group, member: Member, rng: Random) -> Planted | None:
    known = _known(group, member)
    pairs = [(a, b) for a, b in pairwise(known) if a.size <= b.size]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    path, byte = _path(member, second.position)
    group.fs.overwrite(path, bytes(first.data), byte)
    return _log(member, "entry duplicated", second.index, path)


def drop_entry(group: Group, member: Member, rng: Random) -> Planted | None:
    """The rest of the segment moves up."""
    entry = rng.choice(_known(group, member))
    path, byte = _path(member, entry.position)
    data = group.fs.visible_bytes(path)
    rest = data[byte + entry.size :]
    if not rest.strip(b"\0"):
        return None
    group.fs.overwrite(path, rest.ljust(len(data) - byte, b"\0"), byte)
    return _log(member, "entry dropped", entry.index, path)


def remove_segment(group: Group, member: Member, rng: Random) -> Planted:
    entry = rng.choice(_known(group, member))
    path, _byte = _path(member, entry.position)
    start = segment_start(entry.position, SEGMENT_SIZE)
    first = next(each for each in group.entries if each.position >= start)
    group.fs.vanish(path)
    kinds = frozenset({FindingKind.SEGMENT})
    return Planted("segment removed", member, kinds, first.index, path)


def older_segment(group: Group, member: Member, rng: Random) -> Planted | None:
    older = f"{member.live_directory}/commitlog"
    name = group.older.list_directory(older)[-1]
    data = group.older.visible_bytes(f"{older}/{name}")
    path = f"{member.directory}/commitlog/{name}"
    if not group.fs.exists(path):
        return None
    now = group.fs.visible_bytes(path)
    padded = data.ljust(len(now), b"\0")
    differing = next(
        (at for at, (a, b) in enumerate(zip(now, padded, strict=False)) if a != b), None
    )
    if differing is None:
        return None
    entry = next((one for one in group.entries if one.end > int(name) + differing), None)
    if entry is None or entry.index > member.known_index:
        return None
    if segment_start(entry.position, SEGMENT_SIZE) != int(name):
        return None  # only the padding differs
    replace_file(group.fs, f"{member.directory}/commitlog", name, data)
    return _log(member, "segment replaced by an older copy", entry.index, path)


def forge_entry(group: Group, member: Member, rng: Random) -> Planted | None:
    """Replaces an entry, and makes all CRCs behind it fit."""
    known = [entry for entry in _known(group, member) if entry.size > HEADER_SIZE]
    entry = rng.choice(known)
    knowing = [each for each in group.members if each.known_index >= entry.index]
    if len(knowing) < 2:
        return None
    body = bytearray(entry.body)
    batch = decode_batch(body)
    if not len(batch.records):
        return None
    # A flag of the producer: no CRC of a record covers it, and no derived row has it.
    body[16 + rng.randrange(4)] ^= 1 << rng.randrange(8)
    chain = group.entries[entry.index - 1].chain_crc if entry.index else 0
    last = _last_written(group, member)
    for original in group.entries[entry.index : last + 1]:
        parts = [body] if original is entry else [original.body]
        forged = build_entry(
            original.kind, original.index, original.term, original.position, chain, parts
        )
        chain = forged.chain_crc
        path, byte = _path(member, original.position)
        group.fs.overwrite(path, bytes(forged.data), byte)
    named = {FindingKind.MARK, FindingKind.CHECKPOINT, FindingKind.FORMAT}
    return Planted(
        "entry forged with fitting CRCs",
        member,
        frozenset({FindingKind.DIVERGENCE}),
        entry.index,
        also=frozenset(named),
    )


def _last_written(group: Group, member: Member) -> int:
    """The last entry in the files, committed or not."""
    data = group.fs.visible_bytes
    for entry in reversed(group.entries):
        path, byte = _path(member, entry.position)
        if group.fs.exists(path) and data(path)[byte : byte + entry.size] == bytes(entry.data):
            return entry.index
    raise AssertionError("the replica holds no entry")


def collide_body(group: Group, member: Member, rng: Random) -> Planted | None:
    """Other bytes with the same CRC32C: the chain agrees, but the records do not."""
    entries = [entry for entry in _known(group, member) if entry.size > HEADER_SIZE]
    entry = rng.choice(entries)
    knowing = [each for each in group.members if each.known_index >= entry.index]
    if len(knowing) < 3:
        return None
    body = bytes(entry.body)
    at = HEADER.size + rng.randrange(0, 60)
    part = body[at : at + 5]
    # The CRC of the whole stays, because that of the changed part stays.
    path, byte = _path(member, entry.position + HEADER_SIZE + at)
    group.fs.overwrite(path, collision(part), byte)
    kinds = frozenset({FindingKind.DIVERGENCE, FindingKind.BATCH})
    also = frozenset({FindingKind.QUEUE_OFFSET, FindingKind.CONSUME_QUEUE, FindingKind.KEY_INDEX})
    planted = Planted("other bytes of the same CRC32C", member, kinds, entry.index, also=also)
    # A header has no other CRC, so nothing proves which replica is right.
    planted.may_be_unknown = True
    return planted


LOG_PLANTERS: dict[str, Planter] = {
    planter.__name__.replace("_", "-"): planter
    for planter in (
        flip_in_log, flip_in_padding, truncate_log, zero_in_log, swap_entries, duplicate_entry,
        drop_entry, remove_segment, older_segment, forge_entry, collide_body,
    )
}  # fmt: skip
