"""One damage, of a kind and at a place chosen by a seed, and what has to be said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from store.batch import decode_batch
from store.entry import HEADER, HEADER_SIZE, PADDING_SIZE, Entry, build_entry
from store.layout import segment_name, segment_start
from store.verify import Finding, FindingKind
from store.verify.findings import UNKNOWN_REPLICA
from store.wholefile import replace_file
from tests.damage.groups import Group, Member
from tests.store.replicas import SEGMENT_SIZE
from tests.store.test_verify_replicas import collision

INDEX_ROW = 32
QUEUE_ROW = 20


@dataclass(slots=True)
class Planted:
    """What was done, and the finding that must be there.

    ``index`` is the first entry it concerns, ``None`` for none in particular. Of ``also`` kinds
    there may be findings of the same replica: what hangs on the damaged bytes.
    """

    what: str
    member: Member
    kinds: frozenset[FindingKind]
    index: int | None
    path: str | None = None
    also: frozenset[FindingKind] = field(default_factory=frozenset)
    replica: str = ""

    def explain(self, findings: list[Finding]) -> str | None:
        """What is wrong with the findings; ``None`` where they are right."""
        name = self.replica or self.member.name
        if not any(self._is_right(finding, name) for finding in findings):
            return "not found, or at another place"
        for finding in findings:
            hangs_on_it = finding.replica == self.member.name and finding.kind in self.also
            if not hangs_on_it and (finding.replica != name or finding.kind not in self.kinds):
                return f"false alarm: {finding}"
        return None

    def _is_right(self, finding: Finding, name: str) -> bool:
        return (
            finding.kind in self.kinds
            and finding.replica == name
            and finding.index_first == self.index
            and (self.path is None or finding.path == self.path)
        )


Planter = Callable[[Group, Member, Random], Planted | None]


def plant(
    group: Group,
    rng: Random,
    what: str | None = None,
    planters: Mapping[str, Planter] | None = None,
) -> Planted:
    """Damages one replica; kinds that a group has no place for give way to another."""
    planters = planters or PLANTERS
    names = sorted(planters)
    while True:
        name = what or rng.choice(names)
        member = rng.choice(group.members)
        planted = planters[name](group, member, rng)
        if planted is not None:
            return planted
        what = None


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
    """Another entry in its place, and all CRCs behind it made to fit."""
    known = [entry for entry in _known(group, member) if entry.size > HEADER_SIZE]
    entry = rng.choice(known)
    knowing = [each for each in group.members if each.known_index >= entry.index]
    if len(knowing) < 2:
        return None
    body = bytearray(entry.body)
    batch = decode_batch(body)
    if not len(batch.records):
        return None
    # A flag of the producer's: no CRC of a record covers it, and no derived row has it.
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
    decided = len(knowing) > 2
    return Planted(
        "entry forged with fitting CRCs",
        member,
        frozenset({FindingKind.DIVERGENCE}),
        entry.index,
        also=frozenset(named),
        replica="" if decided else UNKNOWN_REPLICA,
    )


def _last_written(group: Group, member: Member) -> int:
    """The last entry that is in the files, committed or not."""
    data = group.fs.visible_bytes
    for entry in reversed(group.entries):
        path, byte = _path(member, entry.position)
        if group.fs.exists(path) and data(path)[byte : byte + entry.size] == bytes(entry.data):
            return entry.index
    raise AssertionError("the replica holds no entry")


def collide_body(group: Group, member: Member, rng: Random) -> Planted | None:
    """Other bytes with the same CRC32C: the chain agrees, the records do not."""
    entries = [entry for entry in _known(group, member) if entry.size > HEADER_SIZE]
    entry = rng.choice(entries)
    knowing = [each for each in group.members if each.known_index >= entry.index]
    if len(knowing) < 3:
        return None
    body = bytes(entry.body)
    at = HEADER.size + rng.randrange(0, 60)
    part = body[at : at + 5]
    # The CRC of the whole stays, as that of its part does.
    path, byte = _path(member, entry.position + HEADER_SIZE + at)
    group.fs.overwrite(path, collision(part), byte)
    kinds = frozenset({FindingKind.DIVERGENCE, FindingKind.BATCH})
    also = frozenset({FindingKind.QUEUE_OFFSET, FindingKind.CONSUME_QUEUE, FindingKind.KEY_INDEX})
    return Planted("other bytes of the same CRC32C", member, kinds, entry.index, also=also)


# --- derived files


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
    planted.path = None  # a file that is not there is told by the one before, if there is one
    return planted


def duplicate_index_row(group: Group, member: Member, rng: Random) -> Planted | None:
    path, byte, index = _index_rows(group, member, rng)
    if not byte:
        return None
    row = group.fs.visible_bytes(path)[byte - INDEX_ROW : byte]
    group.fs.overwrite(path, row, byte)
    return _index(member, "row of the entry index duplicated", index, path)


def _queue_rows(group: Group, member: Member, rng: Random) -> tuple[str, int, int]:
    """File, byte and entry of a row that the checkpoint covers."""
    rows = []
    for entry in group.entries[: member.checkpoint_index + 1]:
        if entry.size == HEADER_SIZE:
            continue
        batch = decode_batch(entry.body)
        for run in batch.runs:
            offsets = range(run.first_offset, run.first_offset + run.count)
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


def _key_file(group: Group, member: Member, rng: Random) -> str | None:
    directory = f"{member.directory}/keyindex"
    if not group.fs.exists(directory):
        return None
    names = group.fs.list_directory(directory)
    return f"{directory}/{rng.choice(names)}" if names else None


class AnyIndex(Planted):
    """A damage of which only kind, replica and file are certain."""

    def _is_right(self, finding: Finding, name: str) -> bool:
        return (
            finding.kind in self.kinds
            and finding.replica == name
            and (self.path is None or finding.path == self.path)
        )


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


PLANTERS: dict[str, Planter] = {
    planter.__name__.replace("_", "-"): planter
    for planter in (
        flip_in_log, flip_in_padding, truncate_log, zero_in_log, swap_entries, duplicate_entry,
        drop_entry, remove_segment, older_segment, forge_entry, collide_body, flip_in_index,
        truncate_index, remove_index_file, duplicate_index_row, flip_in_queue, truncate_queue,
        shift_queue_row, swap_queue_rows, zero_queue_row, older_queue, flip_in_keys,
        truncate_keys, remove_keys, flip_in_manifest, remove_manifest,
    )
}  # fmt: skip
