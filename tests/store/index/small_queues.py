"""ConsumeQueues with few rows in a file, and the rows that they hold."""

from __future__ import annotations

from simulator.engine.disk import SimulatedFileSystem
from store.index.block_seals import ROW_SIZE, SEAL_SUFFIX
from store.index.consume_queue import ConsumeQueue
from store.index.consume_queues import ConsumeQueues
from store.message.batch import QUEUE_ROW

ROWS_PER_FILE = 4


DIRECTORY = "/data/consumequeue"


QUEUE = f"{DIRECTORY}/orders/0"


SIZE = 100


def row(number: int) -> bytes:
    """The row of the message with that offset: positions grow with offsets."""
    return QUEUE_ROW.pack(1000 + 10 * number, SIZE, number % 3)


def rows(first: int, count: int) -> bytes:
    return b"".join(row(number) for number in range(first, first + count))


def row_files(fs: SimulatedFileSystem) -> list[str]:
    return [path for path in fs.files() if path.startswith(QUEUE) and SEAL_SUFFIX not in path]


def queues_on(fs: SimulatedFileSystem, open_max: int = 2) -> ConsumeQueues:
    return ConsumeQueues(fs, DIRECTORY, rows_per_file=ROWS_PER_FILE, open_max=open_max)


def flush(queues: ConsumeQueues) -> None:
    job = queues.begin_flush()
    job.run()
    job.finish()


def read_all(queue: ConsumeQueue) -> bytes:
    found = b""
    while part := queue.read(queue.first_offset + len(found) // ROW_SIZE, 3):
        found += part
    assert queue.read(queue.first_offset, 1 << 20) == found, "at once, too"
    return found


def flushed(fs: SimulatedFileSystem, count: int) -> ConsumeQueues:
    """Queue 0 of topic orders with that many rows, all on disk."""
    queues = queues_on(fs)
    queues.get_or_create("orders", 0).append(0, rows(0, count))
    flush(queues)
    return queues
