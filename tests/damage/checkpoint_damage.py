"""Damages of checkpoints, manifest and format file, each with a right CRC."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import msgpack
from crc32c import crc32c

from store.io.atomic_file import replace_file
from store.state.checkpoint import CHECKPOINT_HEADER, CHECKPOINT_MAGIC, encode_checkpoint
from store.state.format_file import encode_format
from store.verify import FindingKind
from store.verify.state.state_reader import read_identity
from tests.damage.planted_damage import Planted, Planter
from tests.damage.replica_groups import Group, Member
from tests.damage.state_damage import checkpoint_of, checkpoint_path, state_of
from tests.damage.two_slot_file_damage import FAR, told

WRONG_TYPES: tuple[object, ...] = (
    "7",
    math.nan,
    math.inf,
    1.5,
    True,
    None,
    [],
    {},
    b"7",
    -1,
    (1 << 64) - 1,
)
"""Where a whole number from 0 up must be."""


def _told(what: str, member: Member) -> Planted:
    name = checkpoint_path(member).removeprefix(f"{member.directory}/")
    return told(what, member, name, kinds=(FindingKind.CHECKPOINT,))


def write_checkpoint(group: Group, path: str, payload: bytes, version: int = 1) -> None:
    covered = len(payload).to_bytes(4, "big") + payload
    header = CHECKPOINT_HEADER.pack(CHECKPOINT_MAGIC, version, crc32c(covered), len(payload))
    directory, _slash, name = path.rpartition("/")
    replace_file(group.fs, directory, name, header + payload)


def _fields(group: Group, path: str) -> list[Any]:
    fields = msgpack.unpackb(group.fs.visible_bytes(path)[CHECKPOINT_HEADER.size :])
    assert isinstance(fields, list)
    return fields


# --- the checkpoint itself


def alter_field(place: int, group: Group, member: Member, rng: Random) -> Planted:
    """Gives one field a wrong type or size."""
    fields = _fields(group, checkpoint_path(member))
    fields[place] = rng.choice(
        [one for one in WRONG_TYPES if place != 6 or not isinstance(one, bytes)]
    )
    write_checkpoint(group, checkpoint_path(member), msgpack.packb(fields))
    return _told(f"checkpoint: type of field {place}", member)


def alter_checkpoint(name: str, group: Group, member: Member, rng: Random) -> Planted:
    found, _machine = checkpoint_of(group, member)
    far = rng.choice((1, 48, FAR))
    changes: dict[str, dict[str, Any]] = {
        "end position": {"end_position": found.end_position + far},
        "chain CRC": {"chain_crc": found.chain_crc ^ 1},
        "term": {"term": found.term + far},
        "commit index below": {"commit_index": found.index - 1},
        "no members": {"configuration": b'{"voters":["n9"],"version":1}'},
        "no term starts": {"term_starts": ()},
    }
    wrong = encode_checkpoint(replace(found, **changes[name]))
    replace_file(group.fs, state_of(member), checkpoint_path(member).rpartition("/")[2], wrong)
    return _told(f"checkpoint: {name}", member)


def commit_far_ahead(group: Group, member: Member, rng: Random) -> Planted | None:
    """It says that entries are committed that no log has: it is wrong, or all logs are old."""
    if any(each.is_snapshot for each in group.members):
        return None
    found, _machine = checkpoint_of(group, member)
    wrong = encode_checkpoint(
        replace(found, commit_index=len(group.entries) + rng.choice((0, FAR)))
    )
    name = checkpoint_path(member).rpartition("/")[2]
    replace_file(group.fs, state_of(member), name, wrong)
    planted = told("checkpoint: committed what nobody has", member, f"state/{name}")
    planted.differ = True
    return planted


def whole_file(name: str, group: Group, member: Member, rng: Random) -> Planted | None:
    path = checkpoint_path(member)
    data = group.fs.visible_bytes(path)
    fields = _fields(group, path)
    if name == "future version":
        write_checkpoint(group, path, msgpack.packb(fields), rng.choice((0, 2, 9)))
    elif name == "one field more":
        if len(fields) == 7:
            fields.append(b"")
        write_checkpoint(group, path, msgpack.packb([*fields, 0]))
    elif name == "another encoding":
        payload = msgpack.packb(fields)
        longer = b"\xdc" + len(fields).to_bytes(2, "big") + payload[1:]
        write_checkpoint(group, path, longer)
    elif name == "under another name":
        older = (
            f"{state_of(member)}/checkpoint-{member.checkpoint_index + rng.choice((1, -1)):020d}"
        )
        replace_file(group.fs, state_of(member), older.rpartition("/")[2], data)
        other = older.removeprefix(f"{member.directory}/")
        return told("checkpoint: under another name", member, other)
    else:
        altered = {
            "empty": b"",
            "cut": data[: rng.randrange(len(data))],
            "zeros": bytes(len(data)),
            "longer": data + b"\0",
        }
        replace_file(group.fs, state_of(member), path.rpartition("/")[2], altered[name])
    return _told(f"checkpoint: {name}", member)


# --- the state in it


def _write_machine(group: Group, path: str, change: Callable[[list[Any]], None]) -> bool:
    """Changes the machine state. Returns whether it differs now."""
    fields = _fields(group, path)
    machine = msgpack.unpackb(fields[6])
    change(machine)
    packed = msgpack.packb(machine)
    if packed == fields[6]:
        return False
    fields[6] = packed
    write_checkpoint(group, path, msgpack.packb(fields))
    return True


def alter_machine(name: str, group: Group, member: Member, rng: Random) -> Planted | None:
    def change(machine: list[Any]) -> None:
        queues = machine[2]
        if name == "future version":
            machine[0] = 2
        elif name == "one field more":
            machine.append(0)
        elif name == "queue twice":
            queues.append(list(queues[0]))
        elif name == "queues out of order":
            queues.reverse()
        elif name == "queue of nobody":
            queues.append(["strangers", 0, 0, rng.choice((0, 3))])
        elif name == "queue left out":
            del queues[rng.randrange(len(queues))]
        elif name == "type in a queue":
            queues[0][rng.randrange(1, 4)] = rng.choice(WRONG_TYPES)
        elif name == "path as a topic":
            queues[0][0] = rng.choice(("../../x", "", "a/b", "\0", 7))
        elif name == "segment time of text":
            machine[3][0][1] = "7"
        elif name == "applied position":
            machine[5] += rng.choice((-1, 1))
        elif name == "type of the applied position":
            machine[5] = rng.choice(WRONG_TYPES)
        elif name == "broker no binary":
            machine[1] = rng.choice(("text", 7, None, [1]))

    if not _write_machine(group, checkpoint_path(member), change):
        return None
    return _told(f"machine state: {name}", member)


def alter_broker(
    name: str, group: Group, member: Member, rng: Random, *, path: str = ""
) -> Planted | None:
    """Changes a field of the broker's state. Its parts are written in order, as a broker does."""

    def change_state(state: list[Any]) -> list[Any]:
        _version, topics, groups, offsets, topics_version, _groups_version, _ms, parts = state
        if name == "topic of nobody":
            topics.append(["zzz", 4, 4, 6, 0, False])
        elif name == "topic left out":
            topics.pop()
        elif name == "queues of a topic":
            topics[0][1] += 1
        elif name == "type in a topic":
            topics[0][5] = rng.choice((0, None, "", 1))
        elif name == "group of nobody":
            groups.append(["zzz", True, True, True, 1, 16, 0, 1, True])
        elif name == "groups left out":
            groups.clear()
        elif name == "consumer offset":
            if offsets:
                offsets[0][2][0][1] += rng.choice((1, -1, FAR))
        elif name == "consumer offset of text":
            if offsets:
                offsets[0][2][0][1] = "7"
        elif name == "consumer offsets of nobody":
            offsets.append(["zzz", "orders", [[0, 3]]])
        elif name == "counter of the topics":
            topics_version[0] += 1
        elif name == "stored time":
            state[6] += rng.choice((1, -1, FAR))
        elif name == "stored time not a number":
            state[6] = math.nan
        elif name == "part unknown":
            parts["unknown"] = 7
        elif name == "settings":
            parts["settings"] = [["maxMessageSize", "1"]]
        elif name == "delay level":
            parts["schedule"] = [[17, 1 << 30]]
        elif name == "timer":
            parts["timer"] = [7, 0, 3]
        elif name == "recalled message of nobody":
            parts["recalled"] = [[1 << 50, 0]]
        elif name == "transaction of nobody":
            parts["transactions"] = [[0, [48, "g", 1, -1, 0, 0]]]
        elif name == "requests":
            data = bytearray(parts.get("requests", b""))
            if data:
                data[rng.randrange(len(data))] ^= 1
                parts["requests"] = bytes(data)
        elif name == "future version":
            state[0] = 3
        elif name == "one field more":
            state.append(0)
        state[7] = dict(sorted(parts.items()))
        return state

    def change(machine: list[Any]) -> None:
        if name == "empty":
            machine[1] = b""
        elif name == "nonsense":
            machine[1] = rng.choice((b"\xc1", b"nonsense", msgpack.packb([2]), msgpack.packb(None)))
        else:
            machine[1] = msgpack.packb(change_state(msgpack.unpackb(machine[1])))

    path = path or checkpoint_path(member)
    if not _write_machine(group, path, change):
        return None
    file = path.removeprefix(f"{member.directory}/")
    return told(f"broker: {name}", member, file, kinds=(FindingKind.CHECKPOINT,))


def alter_older(group: Group, member: Member, rng: Random) -> Planted | None:
    """Changes the older checkpoint, which no start reads while the newest is intact."""
    names = [
        path
        for path in group.fs.files()
        if path.startswith(f"{state_of(member)}/checkpoint-") and path != checkpoint_path(member)
    ]
    if not names:
        return None
    name = rng.choice([one for one in BROKER if one not in {"empty", "nonsense"}])
    planted = alter_broker(name, group, member, rng, path=names[0])
    if planted is not None:
        planted.what = "broker in the older checkpoint"
    return planted


# --- manifest and format


def alter_manifest(name: str, group: Group, member: Member, rng: Random) -> Planted | None:
    path = f"{member.directory}/manifest.json"
    if not member.is_snapshot:
        return None
    document = json.loads(group.fs.visible_bytes(path))
    del document["crc32c"]
    field = rng.choice(("term", "first_index", "commit_index", "end_position", "chain_crc"))
    other = rng.choice([each for each in group.members if each is not member])
    changes: dict[str, dict[str, object]] = {
        "one field more": {"more": 1},
        "text for a number": {field: str(document[field])},
        "no whole number": {field: float(document[field])},
        "not a number": {field: math.nan},
        "negative number": {field: -7},
        "future version": {"format_version": 3},
        "another group": {"group": "broker-b"},
        "another node": {"node": other.node},
        "later beginning": {"first_index": 1},
        "end position": {"end_position": document["end_position"] + 1},
        "chain CRC": {"chain_crc": document["chain_crc"] ^ 1},
        "time of text": {"time_ms": "now"},
        "earlier end": {"commit_index": document["commit_index"] - 1},
    }
    document.update(changes[name])
    compact = json.dumps(document, sort_keys=True, separators=(",", ":"))
    document["crc32c"] = f"{crc32c(compact.encode()):08x}"
    replace_file(group.fs, member.directory, "manifest.json", json.dumps(document).encode())
    return told(f"manifest: {name}", member, "manifest.json", kinds=(FindingKind.FORMAT,))


def alter_format(name: str, group: Group, member: Member, rng: Random) -> Planted | None:
    identity = read_identity(group.fs, member.directory)
    other = rng.choice([each for each in group.members if each is not member])
    theirs = read_identity(group.fs, other.directory)
    if name in {"segment size", "another group"} and len(group.members) < 3:
        return None  # nothing proves which of two is right
    lines = encode_format(identity).rpartition(b"crc32c")[0]
    written: dict[str, Callable[[], bytes]] = {
        "one line more": lambda: _signed(lines + b"a 1\n"),
        "another node": lambda: encode_format(identity._replace(node="n9")),
        "another group": lambda: encode_format(identity._replace(group="broker-b")),
        "segment size": lambda: encode_format(identity._replace(segment_size=16384)),
        "disk of another": lambda: encode_format(identity._replace(incarnation=theirs.incarnation)),
        "of another": lambda: encode_format(theirs),
        "changed version": lambda: encode_format(identity).replace(b"format 2", b"format 3", 1),
        "future version": lambda: _signed(b"dledger data format 3\nwhatever comes\n"),
        "empty": lambda: b"",
        "zeros": lambda: bytes(100),
        "no number": lambda: _signed(lines.replace(b"8192", b"8k")),
    }
    replace_file(group.fs, state_of(member), "format", written[name]())
    planted = told(f"format: {name}", member, "state/format")
    if name in {"another group", "another node", "segment size"}:
        planted.paths = (member.directory,)
    elif name in {"disk of another", "of another"}:
        # Of two with the same number, either may be the copy.
        planted.paths, planted.culprits = (), (member, other)
    return planted


def _signed(lines: bytes) -> bytes:
    return lines + b"crc32c %08x\n" % crc32c(lines)


CHECKPOINT = (
    "end position", "chain CRC", "term", "commit index below", "no members", "no term starts",
)  # fmt: skip
FILE = (
    "future version", "one field more", "another encoding", "under another name", "empty", "cut",
    "zeros", "longer",
)  # fmt: skip
MACHINE = (
    "future version", "one field more", "queue twice", "queues out of order", "queue of nobody",
    "queue left out", "type in a queue", "path as a topic", "segment time of text",
    "applied position", "type of the applied position", "broker no binary",
)  # fmt: skip
BROKER = (
    "topic of nobody", "topic left out", "queues of a topic", "type in a topic", "group of nobody",
    "groups left out", "consumer offset", "consumer offset of text", "consumer offsets of nobody",
    "counter of the topics", "stored time", "stored time not a number", "part unknown", "settings",
    "delay level", "timer", "recalled message of nobody", "transaction of nobody", "requests",
    "future version", "one field more", "empty", "nonsense",
)  # fmt: skip
MANIFEST = (
    "one field more", "text for a number", "no whole number", "not a number", "negative number",
    "future version", "another group", "another node", "later beginning", "end position",
    "chain CRC", "time of text", "earlier end",
)  # fmt: skip
FORMAT = (
    "one line more", "another node", "another group", "segment size", "disk of another",
    "of another", "changed version", "future version", "empty", "zeros", "no number",
)  # fmt: skip


def _named(prefix: str, names: tuple[str, ...], planter: Callable[..., Any]) -> dict[str, Planter]:
    return {f"{prefix}-{name.replace(' ', '-')}": partial(planter, name) for name in names}


CHECKPOINT_PLANTERS: dict[str, Planter] = {
    **{f"checkpoint-type-of-field-{place}": partial(alter_field, place) for place in range(7)},
    **_named("checkpoint", CHECKPOINT, alter_checkpoint),
    **_named("checkpoint-file", FILE, whole_file),
    **_named("machine", MACHINE, alter_machine),
    **_named("broker", BROKER, alter_broker),
    **_named("manifest", MANIFEST, alter_manifest),
    **_named("format", FORMAT, alter_format),
    "commit-far-ahead": commit_far_ahead,
    "older-checkpoint-broker": alter_older,
}
