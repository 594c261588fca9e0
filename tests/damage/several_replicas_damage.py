"""Damages of several replicas, forged majorities, and copies that are given as replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

from store.io.atomic_file import replace_file
from store.io.two_slot_file import decode_slot, encode_slot
from store.log.entry import HEADER_SIZE, build_entry
from store.log.layout import segment_name, segment_start
from store.message.batch import decode_batch
from store.state.checkpoint import decode_checkpoint, encode_checkpoint
from store.state.format_file import Identity, encode_format
from store.state.hard_state import DurableMark
from store.state.snapshot_manifest import decode_manifest, encode_manifest
from store.verify import Finding
from store.verify.state.state_reader import read_identity
from tests.damage.checkpoint_damage import alter_broker
from tests.damage.planted_damage import GroupFinding, Planted, Planter
from tests.damage.replica_groups import Group, Member
from tests.damage.state_damage import mark_of, state_of
from tests.damage.two_slot_file_damage import told
from tests.store.sample_replica import SEGMENT_SIZE


def _of(
    what: str, culprits: Sequence[Member], paths: Sequence[str], *, differ: bool = False
) -> GroupFinding:
    return GroupFinding(
        what,
        culprits[0],
        frozenset(),
        None,
        paths=tuple(paths),
        culprits=tuple(culprits),
        may_differ=True,
    )


def _most(group: Group, rng: Random) -> list[Member]:
    """More than half of the replicas, and not all of them."""
    count = len(group.members) // 2 + 1
    return [] if count == len(group.members) else rng.sample(group.members, count)


def _position(group: Group, members: Sequence[Member], rng: Random) -> int:
    """The index of an entry with messages that all of them know."""
    last = min(member.known_index for member in members)
    return rng.choice([one.index for one in group.entries[: last + 1] if one.size > HEADER_SIZE])


def _path(member: Member, position: int) -> tuple[str, int]:
    start = segment_start(position, SEGMENT_SIZE)
    return f"{member.directory}/commitlog/{segment_name(start)}", position - start


def rot_of_many(where: str, group: Group, _member: Member, rng: Random) -> Planted | None:
    """Flips the same bit in most, other bits in each, or the same bit in all."""
    members = list(group.members) if where == "everywhere" else _most(group, rng)
    if not members:
        return None
    entry = group.entries[_position(group, members, rng)]
    byte, bit = rng.randrange(entry.size), rng.randrange(8)
    paths = []
    for member in members:
        if where != "one place":
            entry = group.entries[_position(group, members, rng)]
            byte, bit = rng.randrange(entry.size), rng.randrange(8)
        path, at = _path(member, entry.position)
        group.fs.flip_bit(path, at + byte, bit)
        paths.append(path)
    return _of(f"rot in many: {where}", members, paths)


def cut_all(group: Group, _member: Member, rng: Random) -> Planted:
    """All logs end at one place, before the durable mark."""
    entry = group.entries[_position(group, group.members, rng)]
    paths = []
    for member in group.members:
        path, at = _path(member, entry.position)
        group.fs.cut(path, at)
        paths.append(path)
    return _of("all logs cut at one place", group.members, paths)


def lose_in_all(group: Group, _member: Member, rng: Random) -> Planted:
    name = rng.choice(("vote", "mark"))
    for member in group.members:
        group.fs.vanish(f"{state_of(member)}/{name}")
    paths = [f"{state_of(member)}/{name}" for member in group.members]
    return _of("vote or mark lost in all", group.members, paths)


def one_of_each(group: Group, _member: Member, rng: Random) -> Planted | None:
    """Plants another damage in each of three replicas."""
    if len(group.members) < 3:
        return None
    first, second, third = rng.sample(group.members, 3)
    group.fs.vanish(f"{state_of(first)}/vote")
    broker = alter_broker("topic of nobody", group, second, rng)
    entry = group.entries[_position(group, [third], rng)]
    path, at = _path(third, entry.position)
    group.fs.overwrite(path, bytes(entry.size), at)
    assert isinstance(broker, GroupFinding)
    paths = [f"{state_of(first)}/vote", *broker.paths, path]
    return _of("another damage in each", [first, second, third], paths)


# --- forged majorities


def forge_log(members: Sequence[Member], group: Group, index: int, bit: int) -> None:
    """Replaces an entry in each of them, and makes all CRCs behind it fit."""
    entry = group.entries[index]
    body = bytearray(entry.body)
    # A flag of the producer: no CRC of a record covers it, and no derived row has it.
    body[16 + bit // 8] ^= 1 << bit % 8
    chain = group.entries[index - 1].chain_crc if index else 0
    for original in group.entries[index:]:
        parts = [body] if original is entry else [original.body]
        forged = build_entry(
            original.kind, original.index, original.term, original.position, chain, parts
        )
        chain = forged.chain_crc
        for member in members:
            path, at = _path(member, original.position)
            if not group.fs.exists(path):
                continue
            there = group.fs.visible_bytes(path)[at : at + original.size]
            if there == bytes(original.data):
                group.fs.overwrite(path, bytes(forged.data), at)


def _fit_names(group: Group, member: Member) -> None:
    """Makes mark, checkpoints and manifest name the entries that are in the log now."""
    data = group.fs.visible_bytes

    def chain_at(index: int) -> int:
        path, at = _path(member, group.entries[index].position)
        return int.from_bytes(data(path)[at + 36 : at + 40], "big")

    mark = mark_of(group, member)
    fitted = replace(mark, chain_crc=chain_at(mark.index))
    replace_file(group.fs, state_of(member), "mark", encode_slot(7, fitted.pack(), member.name) * 2)
    for path in group.fs.files():
        if path.startswith(f"{state_of(member)}/checkpoint-"):
            found = decode_checkpoint(data(path), path)
            right = encode_checkpoint(replace(found, chain_crc=chain_at(found.index)))
            replace_file(group.fs, state_of(member), path.rpartition("/")[2], right)
    if member.is_snapshot:
        path = f"{member.directory}/manifest.json"
        manifest = decode_manifest(data(path), path)
        manifest = replace(manifest, chain_crc=chain_at(manifest.commit_index))
        replace_file(group.fs, member.directory, "manifest.json", encode_manifest(manifest))


def _forge(
    what: str, group: Group, members: Sequence[Member], rng: Random, *, fitted: bool
) -> Planted | None:
    honest = [member for member in group.members if member not in members]
    if not members or not honest:
        return None
    index = _position(group, group.members, rng)
    if not len(decode_batch(group.entries[index].body).records):
        return None
    forge_log(members, group, index, rng.randrange(32))
    if fitted:
        for member in members:
            _fit_names(group, member)
        # Each is consistent by itself, so nothing says which is right.
        return GroupFinding(what, members[0], frozenset(), None, differ=True)
    paths = [f"{state_of(member)}/mark" for member in members]
    return _of(what, members, paths)


def forge_most(group: Group, _member: Member, rng: Random) -> Planted | None:
    return _forge("log forged alike in most", group, _most(group, rng), rng, fitted=False)


def forge_most_wholly(group: Group, _member: Member, rng: Random) -> Planted | None:
    members = _most(group, rng)
    return _forge("log and its names forged alike in most", group, members, rng, fitted=True)


def forge_one_wholly(group: Group, member: Member, rng: Random) -> Planted | None:
    return _forge("log and its names forged in one", group, [member], rng, fitted=True)


def forge_state_of_most(name: str, group: Group, _member: Member, rng: Random) -> Planted | None:
    """The same wrong state in most replicas. Nothing else is wrong."""
    members = _most(group, rng)
    seed = rng.random()
    planted = [alter_broker(name, group, member, Random(seed)) for member in members]
    paths = [path for one in planted if isinstance(one, GroupFinding) for path in one.paths]
    done = [m for m, one in zip(members, planted, strict=True) if one is not None]
    return _of(f"state forged in most: {name}", done, paths) if done else None


def same_mark_in_most(group: Group, _member: Member, rng: Random) -> Planted | None:
    """A consistent mark of an entry that no replica has."""
    members = _most(group, rng)
    if not members:
        return None
    far = DurableMark(1 << 30, 1 << 40, 7, 1 << 30, 0, 0)
    for member in members:
        data = encode_slot(7, far.pack(), member.name) * 2
        replace_file(group.fs, state_of(member), "mark", data)
    return _of("one forged mark in most", members, [one.directory for one in members])


# --- copies


def _copy(group: Group, source: Member, target: Member, names: Sequence[str]) -> None:
    """Replaces some directories of one replica by those of another."""
    for name in names:
        group.fs.remove_tree(f"{target.directory}/{name}")
        for path in group.fs.files():
            inner = path.removeprefix(f"{source.directory}/")
            if inner == path or not f"{inner}/".startswith(f"{name}/"):
                continue
            copied = f"{target.directory}/{inner}"
            group.fs.make_directories(copied.rpartition("/")[0])
            file = group.fs.open(copied, create=True)
            file.truncate(0)
            file.pwrite(group.fs.visible_bytes(path), 0)
            file.close()


DIRECTORIES = ("state", "commitlog", "index", "consumequeue", "keyindex")


def copy_of(what: str, group: Group, member: Member, rng: Random) -> Planted | None:
    source = rng.choice([one for one in group.members if one is not member])
    own = read_identity(group.fs, member.directory)
    if source.is_snapshot != member.is_snapshot:
        return None
    _copy(group, source, member, ("state",) if what == "state alone" else DIRECTORIES)
    if member.is_snapshot and what != "state alone":
        _copy(group, source, member, ("manifest.json",))
    theirs = read_identity(group.fs, source.directory)
    if what == "under another name":
        _rename(group, member, theirs._replace(node=own.node))
    elif what == "under another name, slots as they were":
        _write_format(group, member, theirs._replace(node=own.node, incarnation=99))
    # Nothing says which of the two is the copy.
    return _Twice(
        f"copy of another replica: {what}",
        member,
        frozenset(),
        None,
        paths=(state_of(member),) if "slots" in what else (),
        culprits=(member, source),
        may_differ=True,
    )


def _write_format(group: Group, member: Member, identity: Identity) -> None:
    replace_file(group.fs, state_of(member), "format", encode_format(identity))


def _rename(group: Group, member: Member, identity: Identity) -> None:
    """Changes the owner in all files, but not the incarnation."""
    _write_format(group, member, identity)
    for name in ("vote", "mark"):
        slot = decode_slot(group.fs.visible_bytes(f"{state_of(member)}/{name}")[:512])
        assert slot is not None
        replace_file(group.fs, state_of(member), name, encode_slot(*slot, identity.owner) * 2)
    if member.is_snapshot:
        path = f"{member.directory}/manifest.json"
        manifest = replace(decode_manifest(group.fs.visible_bytes(path), path), node=identity.node)
        replace_file(group.fs, member.directory, "manifest.json", encode_manifest(manifest))


class _Twice(GroupFinding):
    """A finding must name one of two replicas; either is right."""

    def explain(self, findings: list[Finding]) -> str | None:
        """See :class:`Planted`."""
        if not findings:
            return "nothing is told"
        return super().explain(findings)


def checkpoint_of_another(group: Group, member: Member, rng: Random) -> Planted | None:
    """An intact checkpoint, of an entry that this replica does not have."""
    others = [one for one in group.members if one.checkpoint_index > member.known_index]
    if not others:
        return None
    name = f"checkpoint-{others[0].checkpoint_index:020d}"
    data = group.fs.visible_bytes(f"{state_of(others[0])}/{name}")
    path, at = _path(member, group.entries[others[0].checkpoint_index].position)
    if group.fs.exists(path) and any(group.fs.visible_bytes(path)[at : at + 48]):
        return None  # the replica has the entry, but did not know it to be committed
    replace_file(group.fs, state_of(member), name, data)
    return told("checkpoint of another, of an entry that is not there", member)


def swap_manifests(group: Group, member: Member, rng: Random) -> Planted | None:
    others = [one for one in group.members if one.is_snapshot and one is not member]
    if not member.is_snapshot or not others:
        return None
    other = rng.choice(others)
    group.fs.swap(f"{member.directory}/manifest.json", f"{other.directory}/manifest.json")
    paths = [f"{one.directory}/manifest.json" for one in (member, other)]
    return _of("manifests swapped", [member, other], paths)


FORGED = ("topic of nobody", "consumer offset", "stored time", "settings", "groups left out")
COPIES = ("whole", "state alone", "under another name", "under another name, slots as they were")
SEVERAL_PLANTERS: dict[str, Planter] = {
    **{f"rot-in-many-{where.replace(' ', '-')}": partial(rot_of_many, where)
       for where in ("one place", "other places", "everywhere")},
    **{f"forged-state-{name.replace(' ', '-')}": partial(forge_state_of_most, name)
       for name in FORGED},
    **{f"copy-{what.replace(', ', '-').replace(' ', '-')}": partial(copy_of, what)
       for what in COPIES},
    **{planter.__name__.replace("_", "-"): planter for planter in (
        cut_all, lose_in_all, one_of_each, forge_most, forge_most_wholly, forge_one_wholly,
        same_mark_in_most, checkpoint_of_another, swap_manifests,
    )},
}  # fmt: skip
