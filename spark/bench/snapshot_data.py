"""Writes snapshots of three equal replicas, for the benchmark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace

from spark.bench.messages import BORN_MS, HOST, Messages, batches
from store.index.consume_queues import ConsumeQueues
from store.index.key_index import KeyIndex
from store.io.os_filesystem import OsFileSystem
from store.io.two_slot_file import SLOT_COUNT, SLOT_SIZE, decode_slot, encode_slot
from store.log.entry import HEADER_SIZE, EntryKind, build_entry
from store.log.layout import next_position
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.replica import ReplicaStore, StoreConfig
from store.state.checkpoint import Checkpoint
from store.state.format_file import FORMAT_NAME, decode_format, encode_format
from store.state.hard_state import MARK_NAME, VOTE_NAME
from store.state.machine_state import MachineState, QueueLength, encode_machine_state
from store.state.snapshot_manifest import MANIFEST_NAME, decode_manifest, encode_manifest

GROUP = "broker-a"
NODES = ("n0", "n1", "n2")
SEGMENT_SIZE = 256 << 20
FLUSH_BYTES = 128 << 20
"""Bytes of log between two flushes of derived files, as in a node."""


def write_snapshots(
    directory: str,
    size_bytes: int,
    body_size: int,
    *,
    messages: Messages = Messages.UNIFORM,
    linked: bool = False,
) -> list[str]:
    """Writes three snapshots of about ``size_bytes`` bytes of log each. Returns their directories.

    ``body_size``: of uniform messages, in bytes. With ``linked`` the snapshots share the files of
    the log, which saves room on the disk.
    """
    live = f"{directory}/live"
    first = f"{directory}/{GROUP}/{NODES[0]}"
    write_snapshot(live, first, size_bytes, batches(messages, body_size))
    shutil.rmtree(live)
    others = [f"{directory}/{GROUP}/{node}" for node in NODES[1:]]
    for node, target in zip(NODES[1:], others, strict=True):
        copy_as(first, target, node, linked=linked)
    return [first, *others]


def write_snapshot(
    live: str, target: str, size_bytes: int, entries: Iterable[list[QueueRun]]
) -> None:
    """Writes a replica with about ``size_bytes`` bytes of log to ``live``, and its snapshot to
    ``target``."""
    fs = OsFileSystem()
    config = StoreConfig(GROUP, NODES[0], segment_size=SEGMENT_SIZE, min_free_bytes=0)
    store = ReplicaStore.open(fs, live, config)
    store.save_hard_state(1, NODES[0])
    queues = ConsumeQueues(fs, f"{live}/consumequeue")
    keys = KeyIndex(fs, f"{live}/keyindex")
    end = index = chain = flushed = 0
    for runs in entries:
        if end >= size_bytes:
            break
        stored_ms = BORN_MS + index
        size = sum(map(len, encode_batch(0, stored_ms, HOST, runs, b"")))
        position = next_position(end, HEADER_SIZE + size, SEGMENT_SIZE)
        parts = encode_batch(position, stored_ms, HOST, runs, b"")
        entry = build_entry(EntryKind.DATA, index, 1, position, chain, parts)
        store.append([entry])
        batch = decode_batch(entry.body)
        for run in batch.runs:
            rows = batch.rows_of(run)
            queues.get_or_create(run.topic, run.queue_id).append(run.first_offset, rows)
        keys.append(batch.key_rows)
        end, chain, index = entry.end, entry.chain_crc, index + 1
        if end >= flushed + FLUSH_BYTES:
            store.sync()
            flush(queues, keys)
            flushed = end
    store.sync()
    flush(queues, keys)
    lengths = [QueueLength(*length) for length in queues.lengths()]
    state = MachineState(b"", lengths, {}, 0, end)
    store.save_checkpoint(
        Checkpoint(
            index=index - 1,
            end_position=end,
            chain_crc=chain,
            term=1,
            term_starts=((1, 0),),
            commit_index=index - 1,
            state=encode_machine_state(state),
        )
    )
    for _ in store.begin_snapshot(target, BORN_MS).steps():
        pass
    store.close()


def flush(queues: ConsumeQueues, keys: KeyIndex) -> None:
    for flushed in (queues.begin_flush(), keys.begin_flush()):
        if flushed is not None:
            flushed.run()
            flushed.finish()


def copy_as(source: str, target: str, node: str, *, linked: bool = False) -> str:
    """Copies a snapshot, as if another node had made it. Returns ``target``."""

    def copy(one: str, other: str) -> None:
        if linked and "/commitlog/" in one:
            os.link(one, other)
        else:
            shutil.copy2(one, other)

    shutil.copytree(source, target, copy_function=copy)
    path = os.path.join(target, "state", FORMAT_NAME)
    with open(path, "rb") as file:
        identity = decode_format(file.read(), path)
    with open(path, "wb") as written:
        written.write(encode_format(identity._replace(node=node)))
    path = os.path.join(target, MANIFEST_NAME)
    with open(path, "rb") as file:
        manifest = decode_manifest(file.read(), path)
    with open(path, "wb") as written:
        written.write(encode_manifest(replace(manifest, node=node)))
    give_to(target, identity._replace(node=node).owner)
    return target


def give_to(directory: str, owner: str) -> None:
    """Changes the owner in vote and mark of a replica."""
    for name in (VOTE_NAME, MARK_NAME):
        path = os.path.join(directory, "state", name)
        with open(path, "rb") as file:
            slot = decode_slot(file.read(SLOT_SIZE))
        assert slot is not None  # noqa: S101 - it was written just now
        with open(path, "wb") as written:
            written.write(encode_slot(*slot, owner) * SLOT_COUNT)
