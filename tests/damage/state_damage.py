"""Damages of the files in ``state/`` and of the manifest, with right checksums.

A checksum finds a flipped bit. These files have right checksums but wrong contents. The finding
must follow from the log, from the other files or from the other replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import msgpack

from store.io.atomic_file import replace_file
from store.io.two_slot_file import SLOT_COUNT, SLOT_SIZE, decode_slot, encode_slot
from store.state.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from store.state.hard_state import DurableMark, HardState
from store.state.machine_state import MachineState, decode_machine_state, encode_machine_state
from store.state.snapshot_manifest import Manifest, decode_manifest, encode_manifest
from store.verify import FindingKind
from tests.damage.planted_damage import AnyIndex, Planted, Planter
from tests.damage.replica_groups import Group, Member

FAR = 1 << 40


def state_of(member: Member) -> str:
    return f"{member.directory}/state"


def _planted(
    what: str, member: Member, kind: FindingKind, path: str, *also: FindingKind
) -> Planted:
    return AnyIndex(what, member, frozenset({kind}), None, path, also=frozenset(also))


def write_slots(group: Group, member: Member, name: str, payload: bytes) -> None:
    replace_file(group.fs, state_of(member), name, encode_slot(1 << 20, payload) * SLOT_COUNT)


def record_of(group: Group, member: Member, name: str) -> bytes:
    slot = decode_slot(group.fs.visible_bytes(f"{state_of(member)}/{name}")[:SLOT_SIZE])
    assert slot is not None
    return slot[1]


def mark_of(group: Group, member: Member) -> DurableMark:
    return DurableMark.unpack(record_of(group, member, "mark"), "mark")


def checkpoint_path(member: Member) -> str:
    return f"{state_of(member)}/checkpoint-{member.checkpoint_index:020d}"


def checkpoint_of(group: Group, member: Member) -> tuple[Checkpoint, MachineState]:
    path = checkpoint_path(member)
    found = decode_checkpoint(group.fs.visible_bytes(path), path)
    return found, decode_machine_state(found.state)


def save_checkpoint(group: Group, member: Member, checkpoint: Checkpoint) -> None:
    name = checkpoint_path(member).rpartition("/")[2]
    replace_file(group.fs, state_of(member), name, encode_checkpoint(checkpoint))


def save_machine(group: Group, member: Member, **fields: object) -> None:
    checkpoint, machine = checkpoint_of(group, member)
    state = encode_machine_state(machine._replace(**fields))  # type: ignore[arg-type]  # fields by name
    save_checkpoint(group, member, replace(checkpoint, state=state))


def _of_checkpoint(what: str, member: Member, *also: FindingKind) -> Planted:
    return _planted(what, member, FindingKind.CHECKPOINT, checkpoint_path(member), *also)


# --- vote and held


def flip_in_slot(group: Group, member: Member, rng: Random) -> Planted:
    name, kind = rng.choice((("vote", FindingKind.VOTE), ("mark", FindingKind.MARK)))
    path = f"{state_of(member)}/{name}"
    group.fs.flip_bit(path, rng.choice((0, SLOT_SIZE)) + rng.randrange(20), rng.randrange(8))
    return _planted("bit flipped in vote or mark", member, kind, path)


def forget_term(group: Group, member: Member, rng: Random) -> Planted | None:
    term = max(entry.term for entry in group.entries[: member.known_index + 1])
    write_slots(group, member, "vote", HardState(rng.randrange(-1, term), "n0").pack())
    return _planted("term below the log's", member, FindingKind.VOTE, f"{state_of(member)}/vote")


def nonsense_vote(group: Group, member: Member, rng: Random) -> Planted:
    nonsense = rng.choice(([None, "n0"], [7], [1, 2], {"term": 7}, [1.5, "n0"], [True, "n0"]))
    write_slots(group, member, "vote", msgpack.packb(nonsense))
    return _planted("vote of nonsense", member, FindingKind.VOTE, f"{state_of(member)}/vote")


def nonsense_held(group: Group, member: Member, rng: Random) -> Planted | None:
    if member.is_snapshot:
        return None  # where the file itself is too much
    nonsense = rng.choice(([["n0", None, 4]], [["n0", 1]], [[1, 2, 3]], [["n0", 1, -7]], 7))
    write_slots(group, member, "held", msgpack.packb(nonsense))
    return _planted("held of nonsense", member, FindingKind.HELD, f"{state_of(member)}/held")


# --- the mark


def raise_mark(group: Group, member: Member, rng: Random) -> Planted:
    """It vouches for entries that are not there."""
    mark = mark_of(group, member)
    index = len(group.entries) + rng.choice((0, 1, 1000, FAR))
    known = rng.choice((mark.commit_index, index))
    write_slots(group, member, "mark", replace(mark, index=index, commit_index=known).pack())
    path = f"{state_of(member)}/mark"
    return _planted("mark that vouches for too much", member, FindingKind.MARK, path)


def commit_beyond_mark(group: Group, member: Member, rng: Random) -> Planted:
    mark = mark_of(group, member)
    wrong = replace(mark, commit_index=mark.index + rng.choice((1, FAR)))
    write_slots(group, member, "mark", wrong.pack())
    path = f"{state_of(member)}/mark"
    return _planted("mark committed further than durable", member, FindingKind.MARK, path)


def begin_later(group: Group, member: Member, rng: Random) -> Planted | None:
    """It hides the beginning of the log, of which nothing was given up."""
    mark = mark_of(group, member)
    entry = rng.choice(group.entries[1 : mark.index + 1])
    wrong = replace(mark, first_index=entry.index, first_position=entry.position)
    write_slots(group, member, "mark", wrong.pack())
    path = f"{state_of(member)}/mark"
    also = (FindingKind.FORMAT,) if member.is_snapshot else ()
    return _planted("mark that hides the beginning", member, FindingKind.MARK, path, *also)


# --- checkpoints


def remove_checkpoint(group: Group, member: Member, _rng: Random) -> Planted | None:
    """A node's own one is made again from the log; a snapshot is as of it."""
    if not member.is_snapshot:
        return None
    group.fs.vanish(checkpoint_path(member))
    return _of_checkpoint("checkpoint removed", member)


def older_checkpoint(group: Group, member: Member, _rng: Random) -> Planted | None:
    """The state of another moment, under the name of the newest."""
    older = sorted(
        path
        for path in group.older.files()
        if path.startswith(f"{member.live_directory}/state/checkpoint-")
    )
    if not older:
        return None
    name = checkpoint_path(member).rpartition("/")[2]
    replace_file(group.fs, state_of(member), name, group.older.visible_bytes(older[-1]))
    return _of_checkpoint("checkpoint of another moment", member)


def other_queue_end(group: Group, member: Member, rng: Random) -> Planted:
    queues = list(checkpoint_of(group, member)[1].queues)
    place = rng.randrange(len(queues))
    queues[place] = queues[place]._replace(end_offset=queues[place].end_offset + rng.randint(1, 9))
    save_machine(group, member, queues=queues)
    return _of_checkpoint("offset of a queue in a checkpoint", member, FindingKind.CONSUME_QUEUE)


def other_segment_time(group: Group, member: Member, rng: Random) -> Planted:
    times = dict(checkpoint_of(group, member)[1].segment_times)
    start = rng.choice(sorted(times))
    if rng.random() < 0.5:
        del times[start]
    else:
        times[start] += rng.choice((-1, 1, FAR))
    save_machine(group, member, segment_times=times)
    return _of_checkpoint("time of a segment in a checkpoint", member)


def expire_more(group: Group, member: Member, rng: Random) -> Planted:
    end = checkpoint_of(group, member)[0].end_position
    save_machine(group, member, expired_position=rng.randint(1, end))
    return _of_checkpoint("expiry in a checkpoint", member)


def other_members(group: Group, member: Member, rng: Random) -> Planted:
    checkpoint, _machine = checkpoint_of(group, member)
    wrong = rng.choice((b'{"version":1,"voters":["n0"]}', b"nonsense", b"[]"))
    save_checkpoint(group, member, replace(checkpoint, configuration=wrong))
    return _of_checkpoint("members in a checkpoint", member)


def other_term_starts(group: Group, member: Member, rng: Random) -> Planted:
    checkpoint, _machine = checkpoint_of(group, member)
    starts = [list(start) for start in checkpoint.term_starts]
    starts[rng.randrange(len(starts))][rng.randrange(2)] += rng.choice((1, FAR))
    wrong = tuple((term, index) for term, index in starts)
    save_checkpoint(group, member, replace(checkpoint, term_starts=wrong))
    return _of_checkpoint("term starts in a checkpoint", member)


def other_broker_state(group: Group, member: Member, _rng: Random) -> Planted | None:
    """Found where two others have a checkpoint of the same entry."""
    alike = [each for each in group.members if each.checkpoint_index == member.checkpoint_index]
    if len(alike) < 3:
        return None
    save_machine(group, member, broker=b"another state")
    return _of_checkpoint("state of the broker in a checkpoint", member)


def nonsense_state(group: Group, member: Member, rng: Random) -> Planted:
    checkpoint, _machine = checkpoint_of(group, member)
    nonsense = rng.choice(([1, b"", [], [], "x", 0], [2], [1, b"", [["t", 0, 5, 1]], [], 0, 0], 7))
    save_checkpoint(group, member, replace(checkpoint, state=msgpack.packb(nonsense)))
    return _of_checkpoint("nonsense in a checkpoint", member)


# --- the manifest


def rewrite_manifest(group: Group, member: Member, change: Callable[[Manifest], Manifest]) -> None:
    path = f"{member.directory}/manifest.json"
    found = decode_manifest(group.fs.visible_bytes(path), path)
    replace_file(group.fs, member.directory, "manifest.json", encode_manifest(change(found)))


def raise_manifest(group: Group, member: Member, rng: Random) -> Planted | None:
    """It vouches for entries that are not there."""
    if not member.is_snapshot:
        return None
    more = rng.choice((1, 5, FAR))
    rewrite_manifest(group, member, lambda one: replace(one, commit_index=one.commit_index + more))
    path = f"{member.directory}/manifest.json"
    also = (FindingKind.MARK, FindingKind.ENTRY)
    return _planted("manifest that vouches for too much", member, FindingKind.FORMAT, path, *also)


def other_manifest_term(group: Group, member: Member, rng: Random) -> Planted | None:
    if not member.is_snapshot:
        return None
    more = rng.choice((1, 7))
    rewrite_manifest(group, member, lambda one: replace(one, term=one.term + more))
    path = f"{member.directory}/manifest.json"
    return _planted("term in a manifest", member, FindingKind.FORMAT, path)


STATE_PLANTERS: dict[str, Planter] = {
    planter.__name__.replace("_", "-"): planter
    for planter in (
        flip_in_slot, forget_term, nonsense_vote, nonsense_held, raise_mark, commit_beyond_mark,
        begin_later, remove_checkpoint, older_checkpoint, other_queue_end, other_segment_time,
        expire_more, other_members, other_term_starts, other_broker_state, nonsense_state,
        raise_manifest, other_manifest_term,
    )
}  # fmt: skip
