"""How fast replicas are checked: ``python -m tests.bench.audit_kernel --mib 512``.

Writes three equal replicas (messages of 1 KiB, 128 in an entry) to a temporary directory. Checks
their ranges in one process and in several. Prints bytes of log of all replicas per second, by wall
clock and by CPU time. The files are read once before, so the disk is not measured.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from tempfile import TemporaryDirectory

import click

from store.index.consume_queues import ConsumeQueues
from store.index.key_index import KeyIndex
from store.io.os_filesystem import OsFileSystem
from store.log.entry import HEADER_SIZE, Entry, EntryKind, build_entry
from store.log.layout import next_position
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.record import PendingMessage, make_pending_message
from store.replica import ReplicaStore, StoreConfig
from store.state.checkpoint import Checkpoint
from store.state.machine_state import MachineState, QueueLength, encode_machine_state
from store.verify import GroupPlan, RangeResult, check_range, finish_audit, plan_audit

GROUP, NODES = "broker-a", ("n0", "n1", "n2")
SEGMENT_SIZE = 256 << 20
HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
STORED_MS = 1_700_000_000_000
QUEUES, RUN_MESSAGES = 4, 32
CHECKPOINT_ENTRIES = 512


class Writer:
    """Writes one replica as a node does, but without syncs."""

    def __init__(self, directory: str, node: str) -> None:
        fs = OsFileSystem()
        self.directory = f"{directory}/{node}"
        config = StoreConfig(GROUP, node, segment_size=SEGMENT_SIZE, min_free_bytes=0)
        self._store = ReplicaStore.open(fs, self.directory, config)
        self._store.save_hard_state(1, node)
        self._queues = ConsumeQueues(fs, f"{self.directory}/consumequeue")
        self._keys = KeyIndex(fs, f"{self.directory}/keyindex")

    def take(self, entry: Entry) -> None:
        self._store.append([entry])
        batch = decode_batch(entry.body)
        for run in batch.runs:
            rows = batch.rows_of(run)
            self._queues.get_or_create(run.topic, run.queue_id).append(run.first_offset, rows)
        self._keys.append(batch.key_rows)
        if entry.index % CHECKPOINT_ENTRIES == CHECKPOINT_ENTRIES - 1:
            self.checkpoint(entry)

    def checkpoint(self, entry: Entry) -> None:
        self._store.sync()
        for flush in (self._queues.begin_flush(), self._keys.begin_flush()):
            if flush is not None:
                flush.run()
                flush.finish()
        lengths = [QueueLength(*length) for length in self._queues.lengths()]
        state = encode_machine_state(MachineState(b"", lengths, {}, 0, entry.end))
        self._store.save_checkpoint(
            Checkpoint(
                index=entry.index,
                end_position=entry.end,
                chain_crc=entry.chain_crc,
                term=1,
                term_starts=((1, 0),),
                commit_index=entry.index,
                state=state,
            )
        )
        self._store.save_mark(entry.index, entry.end, entry.chain_crc, entry.index)

    def close(self) -> None:
        self._store.close()


def messages() -> list[PendingMessage]:
    body = os.urandom(1024)
    properties = "UNIQ_KEY\x010A00000100001F90{:016X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    return [
        make_pending_message(
            "orders", body, properties.format(number).encode(), born_timestamp=1, born_host=HOST
        )
        for number in range(RUN_MESSAGES)
    ]


def write(directory: str, size: int) -> list[str]:
    writers = [Writer(directory, node) for node in NODES]
    staged, position, chain, index = messages(), 0, 0, 0
    entry: Entry | None = None
    while position < size:
        runs = [QueueRun("orders", queue, index * RUN_MESSAGES, staged) for queue in range(QUEUES)]
        length = sum(map(len, encode_batch(0, STORED_MS, HOST, runs, b""))) + HEADER_SIZE
        position = next_position(position, length, SEGMENT_SIZE)
        parts = encode_batch(position, STORED_MS, HOST, runs, b"")
        entry = build_entry(EntryKind.DATA, index, 1, position, chain, parts)
        for writer in writers:
            writer.take(entry)
        position, chain, index = entry.end, entry.chain_crc, index + 1
    for writer in writers:
        if entry is not None:
            writer.checkpoint(entry)
        writer.close()
    return [writer.directory for writer in writers]


def task(group: GroupPlan, number: int) -> tuple[RangeResult, float]:
    before = time.process_time()
    result = check_range(OsFileSystem(), group, number)
    return result, time.process_time() - before


def measure(group: GroupPlan, processes: int) -> None:
    numbers = range(len(group.ranges))
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(task, [group] * processes, [len(numbers) - 1] * processes))  # warms up
        begin = time.perf_counter()
        outcomes = list(pool.map(task, [group] * len(numbers), numbers))
        seconds = time.perf_counter() - begin
    size = sum(result.bytes_read for result, _cpu in outcomes)
    cpu = sum(spent for _result, spent in outcomes)
    before, begin = time.process_time(), time.perf_counter()
    # Derived files are compared here.
    findings = finish_audit(OsFileSystem(), group, [result for result, _cpu in outcomes])
    cpu, seconds = cpu + time.process_time() - before, seconds + time.perf_counter() - begin
    print(
        f"{processes} process(es): {size / 1e9:.2f} GB of {len(NODES)} replicas in "
        f"{seconds:.2f} s, {size / seconds / 1e9:.2f} GB/s; {cpu:.2f} s of CPU, "
        f"{size / cpu / 1e9:.2f} GB/s per core; {len(findings)} findings"
    )


@click.command
@click.option("--mib", type=int, default=512, help="Of log in a replica (default: 512).")
@click.option("--range-mib", type=int, default=64, help="Of a range (default: 64).")
@click.option("--dir", "directory", type=click.Path(), help="Where the replicas are written.")
def main(mib: int, range_mib: int, directory: str | None) -> None:
    with TemporaryDirectory(prefix="dledger-audit-", dir=directory) as made:
        directories = write(made, mib << 20)
        (group,) = plan_audit(OsFileSystem(), directories, range_mib << 20).groups
        for processes in (1, 2):
            measure(group, processes)


if __name__ == "__main__":
    main()
