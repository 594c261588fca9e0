"""Files that no replica has, remains of work, holes, and wrong derived files with right CRCs."""

from __future__ import annotations

import struct
from functools import partial
from random import Random

import msgpack
from crc32c import crc32c

from store.index.block_seals import SEAL_SUFFIX
from store.index.key_file import CRC_AT, KEY_ROW_SIZE, pages_of
from store.index.key_file import HEADER as KEY_HEADER
from store.io.atomic_file import replace_file
from store.io.two_slot_file import encode_slot
from store.verify import FindingKind
from tests.damage.planted_damage import Planted, Planter
from tests.damage.replica_groups import Group, Member
from tests.damage.state_damage import checkpoint_path
from tests.damage.two_slot_file_damage import told
from tests.store.sample_replica import SEGMENT_SIZE

STRAYS = {
    "beside": ("notes.txt", "core", "commitlog2", "node.toml"),
    "in state": ("state/votes", "state/checkpoint-7", "state/vote.bak", "state/putback-7-x"),
    "in the log": ("commitlog/abc", f"commitlog/{0:020d}.old", "commitlog/7"),
    "in the entry index": ("index/abc", f"index/{0:020d}~"),
    "in the key index": ("keyindex/abc", "keyindex/7"),
    "among topics": ("consumequeue/strangers/abc/00000000000000000000",),
    "in a queue": (f"consumequeue/orders/0/{0:020d}.old", "consumequeue/orders/0/7"),
}


def write(group: Group, member: Member, name: str, data: bytes) -> str:
    directory, _slash, file = f"{member.directory}/{name}".rpartition("/")
    group.fs.make_directories(directory)
    replace_file(group.fs, directory, file, data)
    return name


def stray_file(where: str, group: Group, member: Member, rng: Random) -> Planted | None:
    name = rng.choice(STRAYS[where])
    if where == "in a queue" and not group.fs.exists(f"{member.directory}/consumequeue/orders/0"):
        return None
    if where == "beside" and not member.is_snapshot:
        return None  # the settings and logs of a node
    name = write(group, member, name, rng.choice((b"", b"notes", bytes(600))))
    if where == "among topics":
        name = name.rpartition("/")[0]
    return told(f"stray file {where}", member, name)


def stray_directory(group: Group, member: Member, rng: Random) -> Planted:
    name = rng.choice(("state/old", "commitlog/old", "keyindex/old", "index/old"))
    write(group, member, f"{name}/file", b"bytes")
    return told("stray directory", member, name)


def rows_of_no_queue(group: Group, member: Member, rng: Random) -> Planted:
    """Rows of a queue that never had a message."""
    name = f"consumequeue/strangers/{rng.randrange(3)}/{0:020d}"
    row = struct.pack(">qiq", rng.randrange(SEGMENT_SIZE), 100, 7)
    write(group, member, name, row * rng.randint(1, 5))
    return told("rows of a queue of nobody", member, name)


def strange_segment(where: str, group: Group, member: Member, rng: Random) -> Planted | None:
    """A copy of a segment behind the end of the log."""
    names = sorted(group.fs.list_directory(f"{member.directory}/commitlog"))
    data = group.fs.visible_bytes(f"{member.directory}/commitlog/{names[0]}")
    following = int(names[-1]) + SEGMENT_SIZE * (1 if where == "next" else rng.randint(3, 9))
    name = write(group, member, f"commitlog/{following:020d}", data)
    return told(f"copy of a segment behind the log: {where}", member, name)


def filled_lock(group: Group, member: Member, _rng: Random) -> Planted | None:
    if member.is_snapshot:
        return None
    write(group, member, "lock", b"4711\n")
    return told("bytes in the lock file", member, "lock")


def remains(name: str, group: Group, member: Member, rng: Random) -> Planted | None:
    """A note of a node for its next start, with nonsense."""
    if member.is_snapshot:
        return None
    checkpoint = group.fs.visible_bytes(checkpoint_path(member))
    right = encode_slot(1, msgpack.packb([0, 0, member.checkpoint_index]))
    complete = encode_slot(1, msgpack.packb([0, 0, member.checkpoint_index, 7]))
    if name in {"state/rebuild", f"state/putback-{48:020d}-100"}:
        write(group, member, name, rng.choice((b"x", bytes(600))))
    elif name == "refill/checkpoint":
        write(group, member, "refill/plan", encode_slot(1, msgpack.packb([0, 0, 1 << 30])))
        write(group, member, name, checkpoint)
    elif name == "refill/plan":
        text = encode_slot(1, msgpack.packb(["7"] * 3))
        wrong = rng.choice((b"", bytes(512), right + b"x", text))
        write(group, member, name, wrong)
    elif name == "refill/complete":
        wrong = rng.choice((complete[:-1], right, encode_slot(1, msgpack.packb([0.5] * 4))))
        write(group, member, "refill/plan", right)
        write(group, member, "refill/checkpoint", checkpoint)
        write(group, member, name, wrong)
    elif name == "refill/stranger":
        write(group, member, "refill/plan", right)
        write(group, member, name, b"")
    return told(f"remains: {name}", member, name)


# --- holes, and files of no bytes


def _files(group: Group, member: Member, below: str) -> list[str]:
    return [
        path
        for path in group.fs.files()
        if path.startswith(f"{member.directory}/{below}")
        and not path.endswith(SEAL_SUFFIX)
        and len(group.fs.visible_bytes(path)) > 0
    ]


BELOW = {
    "log": f"commitlog/{0:020d}",
    "entry index": f"index/{0:020d}",
    "queue": f"consumequeue/orders/0/{0:020d}",
    "key index": "keyindex/",
    "checkpoint": "state/checkpoint-",
}


def emptied(below: str, hole: str, group: Group, member: Member, rng: Random) -> Planted | None:
    paths = _files(group, member, BELOW[below])
    if below == "checkpoint":
        paths = [checkpoint_path(member)]
    if below == "key index":
        paths = paths[:1]
    if not paths:
        return None
    path = rng.choice(paths)
    data = group.fs.visible_bytes(path)
    if hole == "no bytes":
        group.fs.cut(path, 0)
    elif hole == "all zeros":
        group.fs.overwrite(path, bytes(len(data)), 0)
    else:  # the first block of a sparse file
        group.fs.overwrite(path, bytes(min(len(data), 4096)), 0)
    return told(f"{below}: {hole}", member, path.removeprefix(f"{member.directory}/"))


# --- the key index behind a right CRC


def alter_keys(name: str, group: Group, member: Member, rng: Random) -> Planted | None:
    paths = _files(group, member, "keyindex/")
    if not paths:
        return None
    path = rng.choice(paths)
    data = group.fs.visible_bytes(path)
    magic, version, *edges, count, _crc = KEY_HEADER.unpack_from(data)
    rows_end = KEY_HEADER.size + count * KEY_ROW_SIZE
    rows = [data[at : at + KEY_ROW_SIZE] for at in range(KEY_HEADER.size, rows_end, KEY_ROW_SIZE)]
    place = rng.randrange(len(rows))
    if name == "other hash":
        rows[place] = bytes((rows[place][0] ^ 1,)) + rows[place][1:]
    elif name == "other position":
        rows[place] = rows[place][:11] + bytes((rows[place][11] ^ 1,)) + rows[place][12:]
    elif name == "other second":
        rows[place] = rows[place][:15] + bytes((rows[place][15] ^ 1,))
    elif name == "row left out":
        del rows[place]
    elif name == "row twice":
        rows.insert(place, rows[place])
    elif name == "rows out of order":
        rows.reverse()
    elif name == "edges":
        edges[rng.randrange(4)] += 1
    elif name == "future version":
        version = 3
    elif name == "count":
        count += 1
    if name != "count":
        count = len(rows)
    body = b"".join(rows)
    pages = pages_of(body)
    header = KEY_HEADER.pack(magic, version, *edges, count, 0)[:CRC_AT]
    altered = header + crc32c(pages, crc32c(header)).to_bytes(4, "big") + body + pages
    if altered == data:
        return None
    directory, _slash, file = path.rpartition("/")
    replace_file(group.fs, directory, file, altered)
    inner = path.removeprefix(f"{member.directory}/")
    kinds = (FindingKind.KEY_INDEX,)
    return told(f"key index: {name}", member, inner if name != "edges" else "keyindex", kinds=kinds)


def rename_keys(group: Group, member: Member, rng: Random) -> Planted | None:
    paths = _files(group, member, "keyindex/")
    if not paths:
        return None
    path = rng.choice(paths)
    directory, _slash, file = path.rpartition("/")
    group.fs.rename(path, f"{directory}/{int(file) + rng.choice((1, -1)):020d}")
    return told("key file under another name", member, "keyindex")


def swap_files(below: str, group: Group, member: Member, rng: Random) -> Planted | None:
    """Swaps the names of two files of one kind."""
    paths = _files(group, member, below)
    known = [
        one
        for one in paths
        if below != "commitlog/"
        or int(one.rpartition("/")[2]) <= group.entries[member.known_index].position
    ]
    if len(known) < 2:
        return None
    one, other = known[:2]
    if group.fs.visible_bytes(one) == group.fs.visible_bytes(other):
        return None
    group.fs.swap(one, other)
    return told(f"files swapped: {below}", member, below.rstrip("/"))


KEYS = (
    "other hash", "other position", "other second", "row left out", "row twice",
    "rows out of order", "edges", "future version", "count",
)  # fmt: skip
REMAINS = (
    "state/rebuild", f"state/putback-{48:020d}-100", "refill/checkpoint", "refill/plan",
    "refill/complete", "refill/stranger",
)  # fmt: skip
HOLES = ("no bytes", "all zeros", "first block")
SWAPPED = ("commitlog/", "index/", "keyindex/", "consumequeue/")
STRAY_PLANTERS: dict[str, Planter] = {
    **{f"stray-{where.replace(' ', '-')}": partial(stray_file, where) for where in STRAYS},
    **{f"segment-{where}": partial(strange_segment, where) for where in ("next", "far")},
    **{f"remains-{name.partition('/')[2]}": partial(remains, name) for name in REMAINS},
    **{
        f"{below.replace(' ', '-')}-{hole.replace(' ', '-')}": partial(emptied, below, hole)
        for below in BELOW
        for hole in HOLES
    },
    **{f"keys-{name.replace(' ', '-')}": partial(alter_keys, name) for name in KEYS},
    **{f"swapped-{below.rstrip('/')}": partial(swap_files, below) for below in SWAPPED},
    "stray-directory": stray_directory,
    "rows-of-no-queue": rows_of_no_queue,
    "filled-lock": filled_lock,
    "rename-keys": rename_keys,
}
