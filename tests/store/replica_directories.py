"""Three replicas as real directories, one of a stopped node and two snapshots, and changes to them.

A name may be anything, and bytes with right CRCs may be nonsense. A check must not fail on that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgpack
from crc32c import crc32c

from simulator.engine.disk import SimulatedFileSystem
from store.index.key_file import HEADER as KEY_HEADER
from store.index.key_file import MAGIC as KEY_MAGIC
from store.io.two_slot_file import PAYLOAD_SIZE_MAX, encode_slot
from store.log.entry import HEADER, HEADER_SIZE, chain_crc
from store.message.batch import QueueRun
from store.state.checkpoint import CHECKPOINT_HEADER, CHECKPOINT_MAGIC, CHECKPOINT_VERSION
from tests.store.sample_replica import GROUP, Replica, message
from tests.store.small_logs import simulated

NODES = ("n0", "n1", "n2")
ENTRIES = 30
TIME_MS = 1_700_000_100_000
HUGE = 1 << 40


def write_replicas(root: Path, group: str = GROUP) -> list[Path]:
    """``n0`` with its lock file, checkpoints on entries 14 and 29; the others are snapshots.

    Entry 0 says who the members are.
    """
    return [_write(root, group, node) for node in NODES]


def _write(root: Path, group: str, node: str) -> Path:
    fs = simulated()
    replica = Replica(fs, node, group=group)
    replica.configure(NODES)
    for number in range(1, ENTRIES):
        orders = [message(number), message(1000 + number)]
        bills = [message(number, "bills", 100)]
        replica.send(
            [
                QueueRun("orders", 0, 2 * number - 2, orders),
                QueueRun("bills", number % 2, (number - 1) // 2, bills),
            ]
        )
        if number == ENTRIES // 2 - 1:
            replica.checkpoint()
    replica.checkpoint()
    replica.mark()
    source = replica.directory
    if node != NODES[0]:
        source = f"/snap/{node}"
        for _ in replica.store.begin_snapshot(source, TIME_MS).steps():
            pass
    replica.close()
    copy_out(fs, source, root / group / node)
    return root / group / node


def copy_out(fs: SimulatedFileSystem, source: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    files = set(fs.files())
    for name in fs.list_directory(source):
        path = f"{source}/{name}"
        if path in files:
            (target / name).write_bytes(fs.visible_bytes(path))
        else:
            copy_out(fs, path, target / name)


# --- what takes the place of a file


def make_missing(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            make_missing(inner)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def make_empty(path: Path) -> None:
    make_missing(path)
    path.touch()


def make_directory(path: Path) -> None:
    make_missing(path)
    path.mkdir()


def make_pipe(path: Path) -> None:
    make_missing(path)
    os.mkfifo(path)


def make_dangling(path: Path) -> None:
    make_missing(path)
    path.symlink_to(path.with_name("nowhere"))


def make_loop(path: Path) -> None:
    make_missing(path)
    path.symlink_to(path.name)


def make_huge(path: Path) -> None:
    """A sparse file, larger than any disk."""
    os.truncate(path, HUGE)


def make_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


UNREADABLE: dict[str, Callable[[Path], None]] = {
    "a directory": make_directory,
    "a pipe": make_pipe,
    "a dangling link": make_dangling,
    "a looping link": make_loop,
}
REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    **UNREADABLE,
    "nothing": make_missing,
    "an empty file": make_empty,
    "a huge file": make_huge,
    "zeros": make_zeros,
}


# --- nonsense behind right checksums


def write_slots(path: Path, payload: bytes) -> None:
    """Vote, mark, held."""
    path.write_bytes(encode_slot(99, payload[:PAYLOAD_SIZE_MAX]) * 2)


def write_checkpoint(path: Path, payload: bytes) -> None:
    covered = len(payload).to_bytes(4, "big") + payload
    header = CHECKPOINT_HEADER.pack(
        CHECKPOINT_MAGIC, CHECKPOINT_VERSION, crc32c(covered), len(payload)
    )
    path.write_bytes(header + payload)


def checkpoint_fields(path: Path) -> list[object]:
    fields = msgpack.unpackb(path.read_bytes()[CHECKPOINT_HEADER.size :])
    assert isinstance(fields, list)
    return fields


def edit_checkpoint(path: Path, place: int, value: object) -> None:
    fields = checkpoint_fields(path)
    fields[place] = value
    write_checkpoint(path, msgpack.packb(fields))


def edit_machine(path: Path, place: int, value: object) -> None:
    """Changes a field of the state in a checkpoint."""
    fields = checkpoint_fields(path)
    state = msgpack.unpackb(fields[6])
    state[place] = value
    fields[6] = msgpack.packb(state)
    write_checkpoint(path, msgpack.packb(fields))


def write_format(path: Path, lines: dict[str, str]) -> None:
    """Replaces lines of ``state/format``."""
    found = [line.split(" ", 1) for line in path.read_text().splitlines()[1:-1]]
    values = {**dict(found), **lines}
    covered = "dledger data format 1\n" + "".join(
        f"{name} {value}\n" for name, value in values.items()
    )
    data = covered.encode("utf-8", "surrogatepass")
    path.write_bytes(data + b"crc32c %08x\n" % crc32c(data))


def write_manifest(path: Path, **fields: object) -> None:
    document = {**json.loads(path.read_text()), **fields}
    del document["crc32c"]
    compact = json.dumps(document, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**document, "crc32c": f"{crc32c(compact.encode()):08x}"}))


def write_keys(path: Path, rows: bytes, fields: tuple[int, int, int, int]) -> None:
    """Writes a key file. ``fields``: lowest and highest position, lowest and highest second."""
    header = KEY_HEADER.pack(KEY_MAGIC, 1, *fields, len(rows) // 16, crc32c(rows))
    path.write_bytes(header + rows)


def write_body(segment: Path, body: bytes) -> None:
    """Replaces the body of the first entry of the log by one of equal size, with right CRCs."""
    data = bytearray(segment.read_bytes())
    magic, size, index, term, position, _, _, _, length = HEADER.unpack_from(data)
    body = body[:length].ljust(length, b"\0")
    crc = crc32c(body)
    chain = chain_crc(0, magic, size, index, term, position, crc)
    HEADER.pack_into(data, 0, magic, size, index, term, position, 0, chain, crc, length)
    data[HEADER_SIZE : HEADER_SIZE + length] = body
    segment.write_bytes(data)
