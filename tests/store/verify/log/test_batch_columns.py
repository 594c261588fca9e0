"""Many messages at once are judged as each by itself, whatever their properties look like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.disk import SimulatedFileSystem
from store.log.entry import Entry, EntryKind, build_entry
from store.message.batch import Batch, QueueRun, decode_batch, encode_batch
from store.message.record import HEAD, make_pending_message, record_size
from store.message.scheduled_topics import SCHEDULE_TOPIC, TIMER_TOPIC, with_deliver_times
from store.verify import FindingKind, verify_replicas
from store.verify import replica_check as replica_checks
from store.verify.files import read_buffers
from store.verify.files.read_buffers import Buffers
from store.verify.log import log_walk
from store.verify.log.batch_check import BatchMismatchError, check_batch
from store.verify.log.batch_columns import TopicNumbers, plain_columns, read_columns
from tests.store.sample_replica import HOST, Replica, message
from tests.store.small_logs import simulated
from tests.support.search_effort import searching

POSITION = 4096
STORED_MS = 1_700_000_000_999
WORDS = st.text(st.sampled_from("aB9-é\N{SNOWMAN} \t"), max_size=6)


@st.composite
def message_properties(draw: st.DrawFn) -> list[bytes]:
    """Of many messages: mostly one layout with other values, and some of others."""
    length = draw(st.integers(1, 5))
    alike = st.text(st.sampled_from("abz9~"), min_size=length, max_size=length)
    layout = draw(
        st.sampled_from(
            (
                "TAGS\x01{}\x02KEYS\x01{} {}\x02",
                "UNIQ_KEY\x01{}\x02TAGS\x01{}\x02x\x01{}\x02",
                "KEYS\x01{}\x02KEYS\x01{}\x02UNIQ_KEY\x01{}",
                "x{}\x01KEYS{}\x02TAGS\x01{}\x02",
                "TAGS\x01\x02TAGS\x01{}\x02UNIQ_KEY\x02UNIQ_KEY\x01{}\x02KEYSx\x01{}\x02KEYS",
                "\x02\x02TAGS{}\x02KEYS\x01{}\x01TAGS\x01x\x02\x01\x02UNIQ_KEY\x01{}\x02UNIQ_KEY",
                "KEYS\x01 \x0b{}\t\n{}\x0c\x02TAGS\x01\0{}\x02KEYS\x01never\x02",
            )
        )
    )
    found = []
    for _ in range(draw(st.integers(16, 40))):
        words = alike if draw(st.integers(0, 9)) else WORDS
        found.append(layout.format(draw(words), draw(words), draw(words)).encode())
    return found


def entries_of(properties: list[bytes], split: int) -> list[Entry]:
    """Entries that follow each other, with runs of ``split`` messages."""
    entries = []
    position = POSITION
    for index, first in enumerate(range(0, len(properties), 2 * split)):
        runs = []
        for begin, topic in ((first, "bills"), (first + split, "orders")):
            messages = [
                make_pending_message(
                    topic, b"x" * len(each), each, born_timestamp=1, born_host=HOST
                )
                for each in properties[begin : begin + split]
            ]
            if messages:
                runs.append(QueueRun(topic, 1, first, messages))
        parts = encode_batch(position, STORED_MS, HOST, runs, b"")
        entries.append(build_entry(EntryKind.DATA, index, 1, position, 0, parts))
        position = entries[-1].end
    return entries


def is_proved(data: bytes, batches: Sequence[tuple[Entry, Batch]]) -> bool:
    """Whether the columns are read, and say what each entry by itself says."""
    topics = TopicNumbers()
    found = read_columns(data, POSITION, [entry for entry, _ in batches], topics)
    if found is None:
        return False
    each = [plain_columns([entry], [batch], topics) for entry, batch in batches]
    runs = found.runs
    for number, name in enumerate(("topics", "queues", "offsets", "counts")):
        whole = np.concatenate([getattr(one.runs, name) for one in each])
        assert getattr(runs, name).tolist() == whole.tolist(), number
    counts = [len(one.runs.topics) for one in each]
    assert runs.entries.tolist() == np.repeat(np.arange(len(each)), counts).tolist()
    assert found.rows.tobytes() == b"".join(one.rows.tobytes() for one in each)
    assert found.key_rows == b"".join(one.key_rows for one in each)
    assert found.commands == [
        (number, commands) for number, one in enumerate(each) for _, commands in one.commands
    ]
    minutes = [int(one.minutes[0]) for one in each]
    assert found.minutes[runs.entries].tolist() == [minutes[number] for number in runs.entries]
    assert found.last_ms == [one.last_ms for one in each if one.last_ms is not None][-1]
    return True


def is_right(entry: Entry, batch: Batch) -> bool:
    """What the check record by record says."""
    try:
        check_batch(entry, batch)
    except BatchMismatchError:
        return False
    return True


def decoded(entries: list[Entry]) -> tuple[bytes, list[tuple[Entry, Batch]]]:
    data = b"".join(entry.data for entry in entries)
    return data, [(entry, decode_batch(entry.body)) for entry in entries]


@searching(60)
@given(message_properties(), st.integers(3, 20))
def test_whatever_a_leader_makes_is_proved(properties: list[bytes], split: int) -> None:
    data, batches = decoded(entries_of(properties, split))
    assert is_proved(data, batches)


LONG = st.sampled_from([1, 7, 8, 9, 15, 16, 17, 32, 33, 64, 65, 128, 129, 200, 1100]).flatmap(
    lambda size: st.sampled_from(["z" * size, "é" * (size // 2), "7 " * (size // 2)])
)
PAIRS = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "x", "KEY", ""]), WORDS | LONG),
    max_size=5,
)
NAMES = st.sampled_from(["a", "bills", "%RETRY%group", "é", "t" * 127])
QUEUES = st.tuples(NAMES, st.integers(0, 3))
SENT = st.lists(st.tuples(QUEUES, PAIRS, st.integers(0, 40)), min_size=16, max_size=40)


@searching(50)
@given(SENT, st.integers(1, 12))
def test_messages_of_any_topics_queues_properties_and_sizes_are_proved_together(
    sent: list[tuple[tuple[str, int], list[tuple[str, str]], int]], at_once: int
) -> None:
    entries: list[Entry] = []
    ends: dict[tuple[str, int], int] = {}
    position = POSITION
    for first in range(0, len(sent), at_once):
        runs: list[QueueRun] = []
        for queue, pairs, size in sent[first : first + at_once]:
            text = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
            staged = make_pending_message(
                queue[0], b"x" * size, text, born_timestamp=1, born_host=HOST
            )
            begin = ends.setdefault(queue, 7)
            ends[queue] += 1
            if runs and runs[-1][:2] == queue:
                runs[-1].messages.append(staged)
            else:
                runs.append(QueueRun(*queue, begin, [staged]))
        commands = b"" if first % 2 else b"\x90"
        parts = encode_batch(position, STORED_MS + first * 60_000, HOST, runs, commands)
        entries.append(build_entry(EntryKind.DATA, len(entries), 1, position, 0, parts))
        position = entries[-1].end
    assert is_proved(*decoded(entries))


def test_keys_of_blanks_alone_stand_beside_keys_of_many_words() -> None:
    properties = [b"KEYS\x01 \x02", b"KEYS\x019 9\x02", b"KEYS\x01a\x02"] * 8
    assert is_proved(*decoded(entries_of(properties, 24)))


def test_batches_without_messages_lie_between_others() -> None:
    properties = [f"KEYS\x01{number}\x02".encode() for number in range(24)]
    entries = []
    position = POSITION
    for index, messages in enumerate(([], properties[:10], [], [], properties[10:], [])):
        staged = [
            make_pending_message("orders", b"", each, born_timestamp=1, born_host=HOST)
            for each in messages
        ]
        runs = [QueueRun("orders", 1, 5, staged)] if staged else []
        parts = encode_batch(position, STORED_MS, HOST, runs, b"\x90" if index == 2 else b"")
        entries.append(build_entry(EntryKind.DATA, index, 1, position, 0, parts))
        position = entries[-1].end
    assert is_proved(*decoded(entries))


@searching(200)
@given(message_properties(), st.integers(0, 1 << 30), st.integers(0, 7))
def test_what_is_proved_is_right_message_by_message(
    properties: list[bytes], byte: int, bit: int
) -> None:
    entries = entries_of(properties, 40)
    body = bytearray(entries[0].body)
    byte %= decode_batch(body).records.nbytes + 60
    body[byte] ^= 1 << bit
    flipped = build_entry(EntryKind.DATA, 0, 1, POSITION, 0, [body])
    data, batches = decoded([flipped, *entries[1:]])
    assert not is_proved(data, batches) or is_right(*batches[0])


@pytest.mark.parametrize("size", [1, 256, 257, 9000])
@pytest.mark.parametrize("number", [0, 7, 19])
def test_bodies_of_one_size_are_each_held_against_their_crc(size: int, number: int) -> None:
    run = QueueRun("orders", 1, 0, [message(each, size=size) for each in range(100, 120)])
    assert len({each.size for each in run.messages}) == 1
    parts = encode_batch(POSITION, STORED_MS, HOST, [run], b"")
    data, batches = decoded([build_entry(EntryKind.DATA, 0, 1, POSITION, 0, parts)])
    assert is_proved(data, batches)
    body = bytearray(batches[0][0].body)
    body[number * len(batches[0][1].records) // 20 + HEAD.size + size - 1] ^= 1
    data, batches = decoded([build_entry(EntryKind.DATA, 0, 1, POSITION, 0, [body])])
    assert not is_proved(data, batches)


@pytest.mark.parametrize(("wrong", "proved"), [(0, True), (1, False)])
def test_rows_of_messages_that_wait_are_checked_for_their_times(wrong: int, proved: bool) -> None:
    timed = [
        message(number)._replace(
            properties=(text := f"TIMER_OUT_MS\x01{number}\x02".encode()),
            size=record_size(TIMER_TOPIC, 20, len(text)),
            tags_code=number + (wrong if number == 15 else 0),
            key_hashes=(),
        )
        for number in range(20)
    ]
    delayed = [message(number, SCHEDULE_TOPIC) for number in range(20)]
    runs = [
        QueueRun("orders", 1, 0, [message(number) for number in range(20)]),
        QueueRun(SCHEDULE_TOPIC, 4, 0, with_deliver_times(delayed, 4, STORED_MS)),
        QueueRun(TIMER_TOPIC, 0, 0, timed),
    ]
    parts = encode_batch(POSITION, STORED_MS, HOST, runs, b"")
    data, batches = decoded([build_entry(EntryKind.DATA, 0, 1, POSITION, 0, parts)])
    assert is_right(*batches[0]) is proved
    assert is_proved(data, batches) is proved


def snapshots(fs: SimulatedFileSystem, entries: int) -> list[str]:
    """Three equal ones, of several segments, with a large entry."""
    writer, *others = [Replica(fs, node) for node in ("n0", "n1", "n2")]
    for number in range(entries):
        size = 3000 if number == 7 else 20
        entry = writer.send([QueueRun("orders", 0, number, [message(number, size=size)])])
        for other in others:
            other.take(entry)
            other.apply(entry)
    found = []
    for replica in (writer, *others):
        replica.checkpoint()
        found.append(f"/snap/{replica.node}")
        for _copied in replica.store.begin_snapshot(found[-1], STORED_MS).steps():
            pass
        replica.close()
    return found


@pytest.mark.parametrize(("window", "piece"), [(4 << 20, 256 << 10), (700, 512), (64, 16)])
def test_equal_replicas_are_read_once_for_all(
    window: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With windows that many entries, few, or none fit into."""
    fs = simulated()
    directories = snapshots(fs, 60)
    for module in (read_buffers, log_walk):
        monkeypatch.setattr(module, "WINDOW_SIZE", window)
    monkeypatch.setattr(read_buffers, "PIECE_SIZE", piece)
    monkeypatch.delattr(replica_checks.ReplicaCheck, "run")  # the check of each alone
    assert verify_replicas(fs, directories, range_bytes=3000).findings == []


@searching(20)
@given(st.integers(0, 1 << 40))
def test_what_is_read_comes_to_lie_half_a_page_apart_from_where_it_was(position: int) -> None:
    view = Buffers().window(1000, position)
    address = np.frombuffer(view, np.uint8).ctypes.data
    assert len(view) == 1000
    assert (address - position) % read_buffers.PAGE_SIZE == read_buffers.PAGE_SIZE // 2


@pytest.mark.parametrize("byte", [0, 1000, 4321])
def test_one_other_byte_in_one_of_them_is_seen(byte: int) -> None:
    fs = simulated()
    directories = snapshots(fs, 60)
    fs.flip_bit(f"{directories[2]}/commitlog/{0:020d}", byte, 3)
    findings = verify_replicas(fs, directories).findings
    assert {finding.replica for finding in findings} == {"broker-a/n2"}


def test_wrong_rows_of_the_key_index_are_told_of_the_replica_that_has_them() -> None:
    fs = simulated()
    directories = snapshots(fs, 60)
    for directory in directories[1:]:
        path = f"{directory}/keyindex/{fs.list_directory(f'{directory}/keyindex')[0]}"
        fs.flip_bit(path, 100, 3)
    findings = verify_replicas(fs, directories).findings
    assert {(finding.kind, finding.replica) for finding in findings} == {
        (FindingKind.KEY_INDEX, "broker-a/n1"),
        (FindingKind.KEY_INDEX, "broker-a/n2"),
    }
