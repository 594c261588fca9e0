"""Single records are read with few requests, and a wrong size costs no memory."""

from __future__ import annotations

import pytest

from spark.audit.log_records import LogRecords
from store.errors import CorruptRecordError
from store.log.layout import segment_name
from store.message.batch import QueueRun
from store.message.record import RECORD_MAGIC
from tests.store.counting_file_system import BYTES, OPENS, READS, CountingFileSystem
from tests.store.sample_replica import SEGMENT_SIZE, Replica, message
from tests.store.small_logs import simulated

LARGE = 1 << 20


def test_a_size_that_the_record_states_once_is_not_read() -> None:
    fs = simulated()
    fs.make_directories("/data/commitlog")
    file = fs.open(f"/data/commitlog/{segment_name(0)}", create=True)
    file.pwrite((LARGE - 1).to_bytes(4, "big") + (RECORD_MAGIC % (1 << 32)).to_bytes(4, "big"), 0)
    file.pwrite(b"\xff" * 8, 5000)  # no record at all
    file.truncate(LARGE)
    counting = CountingFileSystem(fs)
    records = LogRecords(counting, "/data", LARGE)
    with pytest.raises(CorruptRecordError, match="size 1048575 does not fit a body of 0 bytes"):
        records.read(0)
    with pytest.raises(CorruptRecordError, match="magic ffffffff"):
        records.read(5000)
    with pytest.raises(CorruptRecordError, match="cut short"):
        records.read(LARGE - 50)
    assert counting.counts[BYTES] < 10_000


def test_a_segment_is_opened_once_for_its_records() -> None:
    replica = Replica(simulated())
    sizes = [20, 5000, 20]
    messages = [message(number, size=size) for number, size in enumerate(sizes)]
    replica.send([QueueRun("orders", 0, 0, messages)])
    rows = replica.queues.get_or_create("orders", 0).read(0, 3)
    positions = [int.from_bytes(rows[at : at + 8], "big") for at in range(0, len(rows), 20)]
    replica.close()
    counting = CountingFileSystem(replica.fs)
    records = LogRecords(counting, replica.directory, SEGMENT_SIZE)
    found = [records.read(position) for position in positions]
    assert [len(one.body) for one in found if one is not None] == sizes
    assert (counting.counts[OPENS], counting.counts[READS]) == (1, 4)
    assert records.read(SEGMENT_SIZE) is None
    records.close()
