"""Damages of files of slots: vote, mark, held and floor, in and around their records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import msgpack

from store.io.atomic_file import replace_file
from store.io.two_slot_file import SLOT_SIZE, decode_slot, encode_slot
from store.state.hard_state import HardState
from store.state.replication_evidence_file import SavedEvidence
from store.verify import FindingKind
from tests.damage.planted_damage import GroupFinding, Planted, Planter
from tests.damage.replica_groups import Group, Member
from tests.damage.state_damage import mark_of, state_of

FAR = 1 << 40
FIRST, SECOND = 0, SLOT_SIZE
KINDS = {
    "vote": FindingKind.VOTE,
    "mark": FindingKind.MARK,
    "held": FindingKind.HELD,
    "floor": FindingKind.FORMAT,
}


def told(
    what: str, member: Member, *names: str, kinds: tuple[FindingKind, ...] = ()
) -> GroupFinding:
    """There must be a finding about each of these files of one replica."""
    paths = tuple(f"{member.directory}/{name}" for name in names)
    return GroupFinding(what, member, frozenset(kinds), None, paths=paths, culprits=(member,))


def _slots(group: Group, member: Member, name: str) -> bytes:
    """The contents of the file. Not every replica has held and floor: then right contents."""
    path = f"{state_of(member)}/{name}"
    if group.fs.exists(path):
        return group.fs.visible_bytes(path)
    if member.is_snapshot:
        return b""
    record: object = [["n9", 5, 1]] if name == "held" else [0]
    count = 2 if name == "held" else 1
    return encode_slot(3, msgpack.packb(record), member.name if count == 2 else "") * count


Alter = Callable[[bytes, Random], bytes]


def _saved(data: bytes) -> tuple[int, bytes]:
    slot = decode_slot(data[:SLOT_SIZE])
    assert slot is not None
    return slot


def other_owner(data: bytes, rng: Random) -> bytes:
    """A file that another node wrote."""
    owner = rng.choice(("broker-a/n9", "broker-b/n0", "n0", "x"))
    return encode_slot(*_saved(data), owner) * 2


def garbage_behind(data: bytes, rng: Random) -> bytes:
    """Bytes behind the record, which no CRC covers."""
    slot = bytearray(data)
    slot[rng.choice(range(0, len(data), SLOT_SIZE)) + rng.randint(200, 400)] ^= rng.randint(1, 255)
    return bytes(slot)


def rotten_owner(data: bytes, rng: Random) -> bytes:
    slot = bytearray(data)
    slot[SLOT_SIZE - 1 - rng.randrange(12)] ^= 1 << rng.randrange(8)
    return bytes(slot)


def sequence_of_none(data: bytes, rng: Random) -> bytes:
    """A sequence number that no save has, or the largest that fits."""
    sequence = rng.choice((0, (1 << 64) - 1))
    return encode_slot(sequence, _saved(data)[1]) * 2


def one_save_two_records(data: bytes, rng: Random) -> bytes:
    sequence, payload = _saved(data)
    other = payload[:-1] + bytes((payload[-1] ^ 1,))
    pair = [encode_slot(sequence, payload), encode_slot(sequence, other)]
    rng.shuffle(pair)
    return b"".join(pair)


def second_ahead(data: bytes, rng: Random) -> bytes:
    """Swaps two slots of different saves."""
    sequence, payload = _saved(data)
    return encode_slot(sequence, payload) + encode_slot(sequence + rng.choice((1, FAR)), payload)


def far_apart(data: bytes, rng: Random) -> bytes:
    sequence, payload = _saved(data)
    return encode_slot(sequence + rng.choice((2, FAR)), payload) + encode_slot(sequence, payload)


def longer_file(data: bytes, rng: Random) -> bytes:
    return data + rng.choice((b"\0", data, rng.randbytes(100)))


def one_slot_left(data: bytes, rng: Random) -> bytes:
    return data[: rng.randint(SLOT_SIZE, 2 * SLOT_SIZE - 1)]


def nothing_left(data: bytes, rng: Random) -> bytes:
    return b""


def only_zeros(data: bytes, rng: Random) -> bytes:
    """As a hole in a sparse file reads."""
    return bytes(len(data))


def one_field_more(data: bytes, rng: Random) -> bytes:
    fields = msgpack.unpackb(_saved(data)[1])
    return encode_slot(_saved(data)[0], msgpack.packb([*fields, rng.choice((0, None, "more"))])) * 2


def one_field_less(data: bytes, rng: Random) -> bytes:
    fields = msgpack.unpackb(_saved(data)[1])
    del fields[rng.randrange(len(fields))]
    return encode_slot(_saved(data)[0], msgpack.packb(fields or 7)) * 2


def other_types(data: bytes, rng: Random) -> bytes:
    """Text in the place of numbers, no number at all, or numbers that no field has."""
    fields = msgpack.unpackb(_saved(data)[1])
    wrong: object = rng.choice(
        ("7", math.nan, math.inf, 1.0, True, None, [], {}, b"7", (1 << 64) - 1)
    )
    place = rng.randrange(len(fields))
    fields[place] = b"text" if isinstance(fields[place], str) and wrong == "7" else wrong
    return encode_slot(_saved(data)[0], msgpack.packb(fields)) * 2


def longer_encoding(data: bytes, rng: Random) -> bytes:
    """The same record in another encoding: an array of a long length."""
    sequence, payload = _saved(data)
    count = payload[0] & 0x0F
    return encode_slot(sequence, b"\xdc" + count.to_bytes(2, "big") + payload[1:]) * 2


def bytes_behind_record(data: bytes, rng: Random) -> bytes:
    """More than one MessagePack value, under one CRC."""
    sequence, payload = _saved(data)
    return encode_slot(sequence, payload + b"\xc0") * 2


ALTERATIONS: tuple[Alter, ...] = (
    other_owner, garbage_behind, rotten_owner, sequence_of_none, one_save_two_records,
    second_ahead, far_apart, longer_file, one_slot_left, nothing_left, only_zeros, one_field_more,
    one_field_less, other_types, longer_encoding, bytes_behind_record,
)  # fmt: skip
OF_TWO = frozenset(
    {other_owner, rotten_owner, one_save_two_records, second_ahead, far_apart, one_slot_left,
     sequence_of_none}
)  # fmt: skip
"""Damages that need two slots; the floor has one."""


def alter_slots(
    name: str, alter: Alter, group: Group, member: Member, rng: Random
) -> Planted | None:
    data = _slots(group, member, name)
    if not data or (name == "floor" and alter in OF_TWO):
        return None
    altered = alter(data, rng)
    if name == "floor" and alter not in {longer_file, garbage_behind, nothing_left, only_zeros}:
        altered = altered[:SLOT_SIZE]
    if altered == data:
        return None
    replace_file(group.fs, state_of(member), name, altered)
    what = f"{name}: {alter.__name__.replace('_', ' ')}"
    return told(what, member, f"state/{name}", kinds=(KINDS[name],))


def held_in_snapshot(group: Group, member: Member, rng: Random) -> Planted | None:
    """A snapshot has no replication evidence."""
    if not member.is_snapshot:
        return None
    name = rng.choice(("held", "floor", "rebuild", f"putback-{7:020d}-48"))
    replace_file(group.fs, state_of(member), name, b"")
    return told("file of a node in a snapshot", member, f"state/{name}")


# --- single fields of records that are whole


def save_vote(group: Group, member: Member, vote: HardState) -> None:
    data = encode_slot(9, vote.pack(), member.name) * 2
    replace_file(group.fs, state_of(member), "vote", data)


def vote_for_no_name(group: Group, member: Member, rng: Random) -> Planted:
    vote = rng.choice(("../n1", "n" * 65, "n 1", "n1\n", "\u0661"))
    save_vote(group, member, HardState(1 << 20, vote))
    return told("vote for what can be no node", member, "state/vote")


def vote_of_no_term(group: Group, member: Member, rng: Random) -> Planted:
    save_vote(group, member, HardState(rng.choice((0, -1, -FAR)), "n1"))
    return told("vote in a term that is none", member, "state/vote")


def alter_mark(field: str, group: Group, member: Member, rng: Random) -> Planted | None:
    mark = mark_of(group, member)
    entry = group.entries[rng.randint(1, mark.index)]
    changes: dict[str, dict[str, int]] = {
        "position": {"position": mark.position + rng.choice((-1, 1, 48))},
        "chain CRC": {"chain_crc": mark.chain_crc ^ 1},
        "index": {"index": mark.index - 1, "commit_index": mark.commit_index - 1},
        "negative commit index": {"commit_index": -rng.choice((2, 5, FAR))},
        "first index alone": {"first_index": entry.index},
        "first position alone": {"first_position": entry.position or 48},
        "position of an empty log": {"index": -1, "commit_index": -1},
        "huge position": {"position": (1 << 63) - 1},
    }
    wrong = replace(mark, **changes[field])
    data = encode_slot(9, wrong.pack(), member.name) * 2
    replace_file(group.fs, state_of(member), "mark", data)
    return told(f"mark: {field}", member, "state/mark")


def twice_in_held(group: Group, member: Member, rng: Random) -> Planted | None:
    if member.is_snapshot:
        return None
    other = rng.choice((SavedEvidence("n1", 9, 2), SavedEvidence("n1", 8, 3)))
    return _save_held(group, member, "member twice in held", SavedEvidence("n1", 8, 2), other)


def no_name_in_held(group: Group, member: Member, rng: Random) -> Planted | None:
    if member.is_snapshot:
        return None
    name = rng.choice(("", "n" * 65, "a/b", "n1 "))
    return _save_held(group, member, "name of nonsense in held", SavedEvidence(name, 8, 2))


def _save_held(group: Group, member: Member, what: str, *held: SavedEvidence) -> GroupFinding:
    data = encode_slot(9, msgpack.packb(held), member.name) * 2
    replace_file(group.fs, state_of(member), "held", data)
    return told(what, member, "state/held", kinds=(FindingKind.HELD,))


def held_beyond(group: Group, member: Member, rng: Random) -> Planted | None:
    """The evidence says that another disk holds an entry that its log lacks: the evidence is wrong,
    or the disk is an old copy."""
    place = rng.randrange(len(group.members))
    other = group.members[place]
    if member.is_snapshot or other.is_snapshot or other is member:
        return None
    claim = SavedEvidence(other.node, 7 + place, len(group.entries) + rng.choice((0, 3, FAR)))
    planted = _save_held(group, member, "held beyond the other's log", claim)
    planted.kinds, planted.differ = frozenset({FindingKind.DIVERGENCE}), True
    return planted


def swap_vote_and_mark(group: Group, member: Member, _rng: Random) -> Planted:
    group.fs.swap(f"{state_of(member)}/vote", f"{state_of(member)}/mark")
    return told("vote and mark swapped", member, "state/vote", "state/mark")


def remove_slots(group: Group, member: Member, rng: Random) -> Planted:
    name = rng.choice(("vote", "mark"))
    group.fs.vanish(f"{state_of(member)}/{name}")
    return told("vote or mark removed", member, f"state/{name}")


def files_of_another(group: Group, member: Member, rng: Random) -> Planted:
    """Copies the file of another replica."""
    name = rng.choice(("vote", "mark"))
    other = rng.choice([each for each in group.members if each is not member])
    data = group.fs.visible_bytes(f"{state_of(other)}/{name}")
    replace_file(group.fs, state_of(member), name, data)
    return told("vote or mark of another", member, f"state/{name}")


MARK_FIELDS = (
    "position", "chain CRC", "index", "negative commit index", "first index alone",
    "first position alone", "position of an empty log", "huge position",
)  # fmt: skip
SLOT_PLANTERS: dict[str, Planter] = {
    **{
        f"{name}-{alter.__name__.replace('_', '-')}": partial(alter_slots, name, alter)
        for name in KINDS
        for alter in ALTERATIONS
        if name != "floor" or alter not in OF_TWO
    },
    **{f"mark-{field.replace(' ', '-')}": partial(alter_mark, field) for field in MARK_FIELDS},
    **{
        planter.__name__.replace("_", "-"): planter
        for planter in (
            held_in_snapshot, vote_for_no_name, vote_of_no_term, twice_in_held, no_name_in_held,
            held_beyond, swap_vote_and_mark, remove_slots, files_of_another,
        )
    },
}  # fmt: skip
