"""What each queue in use costs a node: CPU time and memory, beside the kernel's part.

``python -m tests.bench.queue_cost DIR [QUEUES]``. DIR is on the disk to measure. A state machine
alone, without a log, gets a message for each queue and saves checkpoints: the first one, another,
one after a start. The kernel's part is a bare loop of the same system calls. The first time varies,
most of all if many files were deleted in the last minutes: ext4 passes over their inodes.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from broker.cli.commands.node import tune_interpreter
from broker.state.state_machine import BrokerStateMachine
from store.io.descriptor_reserve import DescriptorReserve
from store.io.os_filesystem import OsFileSystem
from store.log.layout import segment_name
from store.message.batch import QUEUE_ROW

QUEUES = 20_000
TOPIC_QUEUES = 10_000
SEGMENT_SIZE = 1 << 30
RECORD_SIZE = 200


class Node:
    """A state machine with that many queues in use."""

    def __init__(self, directory: Path, queues: int) -> None:
        self._fs = OsFileSystem(reserve=DescriptorReserve())
        self._directory = str(directory)
        (directory / "state").mkdir(parents=True)
        self._queues = queues
        self._end = 0
        self._state = b""
        self._open()

    def _open(self) -> None:
        self.machine = BrokerStateMachine.open(self._fs, self._directory, SEGMENT_SIZE)

    def fill(self) -> None:
        """A message for each queue."""
        for number in range(self._queues):
            topic, queue_id = divmod(number, TOPIC_QUEUES)
            queue = self.machine._queues.get_or_create(f"topic-{topic}", queue_id)
            queue.append(queue.end_offset, QUEUE_ROW.pack(self._end, RECORD_SIZE, 0))
            self._end += RECORD_SIZE

    def checkpoint(self, name: str) -> None:
        """Saves one."""
        self.fill()
        with self.measured(f"{name}, its beginning on the event loop"):
            work = self.machine.begin_checkpoint()
        with self.measured(f"{name}, in its thread"):
            work.flush()
            self._state = work.state
        with self.measured(f"{name}, its end on the event loop"):
            work.finish(saved=True)

    def start(self) -> None:
        """A start from the last checkpoint."""
        self._open()
        with self.measured("a start"):
            self.machine.restore(self._state)

    def memory(self) -> None:
        """Of all objects after a start."""
        self._open()
        tracemalloc.start()
        self.machine.restore(self._state)
        gc.collect()
        held, _most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"{held / self._queues:8.0f} bytes  objects after a start")

    def kernel(self, directory: Path) -> None:
        """The calls of checkpoints that cannot be left out."""
        queues = range(self._queues)
        paths = [f"{directory}/{each // TOPIC_QUEUES}/{each % TOPIC_QUEUES}" for each in queues]
        for topic in range(-(-self._queues // TOPIC_QUEUES)):
            (directory / str(topic)).mkdir(parents=True)
        row, name = QUEUE_ROW.pack(0, RECORD_SIZE, 0), segment_name(0)
        with self.measured("the kernel alone, the first time"):
            for path in paths:
                os.mkdir(path)
                _write(f"{path}/{name}", row, 0)
            self._fs.sync_all(str(directory))
        with self.measured("the kernel alone, later"):
            for path in paths:
                _write(f"{path}/{name}", row, len(row))
            self._fs.sync_all(str(directory))

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Prints the CPU time for each queue."""
        began = time.process_time()
        yield
        print(f"{(time.process_time() - began) / self._queues * 1e6:8.2f} us     {name}")


def _write(path: str, data: bytes, position: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.pwrite(fd, data, position)
    os.close(fd)


def main(parent: str, queues: str = str(QUEUES)) -> None:
    tune_interpreter()
    with TemporaryDirectory(dir=parent) as temporary:
        directory = Path(temporary)
        node = Node(directory / "node", int(queues))
        node.kernel(directory / "kernel")
        node.checkpoint("the first checkpoint")
        node.checkpoint("a later checkpoint")
        node.start()
        node.checkpoint("the first checkpoint after a start")
        node.memory()


if __name__ == "__main__":
    main(*sys.argv[1:])
