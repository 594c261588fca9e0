"""The open files of ConsumeQueues are used by readers while the scrub drops what it has written."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.index.queue_rows import OpenFiles, QueueRows

QUEUES = 12
ROUNDS = 2000
SWITCH_SECONDS = 1e-6


@contextmanager
def threads_that_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.minutes
def test_a_reader_and_the_scrub_may_use_them_at_the_same_time() -> None:
    fs = SimulatedFileSystem(Random(1))
    files = OpenFiles(fs, open_max=QUEUES // 2)
    queues = [QueueRows(files, "/data/consumequeue", "orders", number) for number in range(QUEUES)]
    for queue in queues:
        fs.make_directories(queue.directory)
        fs.open(queue.locate(0)[0], create=True).close()
    errors: list[Exception] = []
    ended = False

    def scrub() -> None:
        number = 0
        while not ended:
            number += 1
            try:
                queues[number % QUEUES].forget_files()
                files.note_durable_name(f"{queues[number % QUEUES].directory}/{number}")
            except Exception as error:  # noqa: BLE001 - the test names it
                errors.append(error)
                return

    with threads_that_take_turns_often():
        thread = threading.Thread(target=scrub)
        thread.start()
        try:
            for number in range(ROUNDS):
                for queue in queues:
                    key = (queue.directory, number, number + 1)
                    files.get(queue.locate(0)[0])
                    files.keep_block(key, b"")
                    assert files.block(key) in {b"", None}
        finally:
            ended = True
            thread.join()
    assert not errors
