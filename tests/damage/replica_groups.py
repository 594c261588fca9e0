"""Makes groups of replicas from a seed: stopped nodes or snapshots, equal or lagging."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from simulator.engine.disk import SimulatedFileSystem
from store.log.entry import Entry
from store.message.batch import QueueRun
from tests.store.sample_replica import Replica, message
from tests.store.small_logs import simulated

TIME_MS = 1_700_000_100_000


@dataclass(slots=True)
class Member:
    """One closed replica: its directory, and how far its log goes."""

    node: str
    directory: str
    live_directory: str
    known_index: int
    checkpoint_index: int
    is_snapshot: bool

    @property
    def name(self) -> str:
        return f"broker-a/{self.node}"


@dataclass(slots=True)
class Group:
    """Replicas of one log. ``older``: the file system at the first checkpoints."""

    fs: SimulatedFileSystem
    older: SimulatedFileSystem
    entries: list[Entry]
    members: list[Member]

    @property
    def directories(self) -> list[str]:
        return [member.directory for member in self.members]


def build_group(rng: Random) -> Group:
    """Three replicas, now and then two or five, of 24 to 48 entries."""
    fs = simulated()
    nodes = [f"n{number}" for number in range(rng.choice((2, 3, 3, 3, 3, 5)))]
    replicas = [Replica(fs, node, incarnation=7 + place) for place, node in enumerate(nodes)]
    writer, *others = replicas
    older_at, count = rng.randint(9, 14), rng.randint(24, 48)
    ends = [count, *(rng.choice((count, rng.randint(older_at + 6, count))) for _ in others)]
    checkpoints = [rng.randint(older_at + 3, end) for end in ends]
    older: SimulatedFileSystem | None = None
    for number in range(count):
        if rng.random() < 0.06:
            for replica in replicas:
                replica.new_term()
        entry = _append(writer, number, rng)
        for replica, end in zip(others, ends[1:], strict=True):
            if number < end:
                replica.take(entry)
                replica.apply(entry)
        for replica, end, checkpoint in zip(replicas, ends, checkpoints, strict=True):
            if number < end and number + 1 in (older_at, checkpoint):
                replica.checkpoint()
        if number + 1 == older_at:
            older = fs.copy()
    assert older is not None
    members = []
    for replica, end, checkpoint in zip(replicas, ends, checkpoints, strict=True):
        members.append(_close(replica, end - 1, checkpoint - 1, rng))
    return Group(fs, older, writer.entries, members)


def _append(replica: Replica, number: int, rng: Random) -> Entry:
    kind = rng.random()
    if kind < 0.08:
        return replica.no_op()
    runs = []
    for topic, queues in (("orders", 2), ("bills", 1)):
        queue_id = rng.randrange(queues)
        offset = replica.queues.get_or_create(topic, queue_id).end_offset
        # Some entries have enough messages for the check by columns.
        many = 18 if kind < 0.2 and topic == "orders" else rng.randint(1, 3)
        messages = [message(100 * number + each, topic) for each in range(10, 10 + many)]
        runs.append(QueueRun(topic, queue_id, offset, messages))
    return replica.send(runs, _commands(number, rng))


def _commands(number: int, rng: Random) -> list[list[object]]:
    """Random content of a broker's state."""
    keys = rng.randbytes(4 * rng.randint(1, 3))
    commands: list[list[object]] = [
        ["requests", keys],
        ["offset", rng.choice(("readers", "writers")), "orders", rng.randrange(2), number],
        ["topic", rng.choice(("orders", "bills")), 4, 4, 6, 0, False, TIME_MS + number],
        ["group", "readers", True, True, True, 1, 16, 0, 1, True, TIME_MS + number],
        ["setting", "maxMessageSize", str(number)],
        ["access", f"account{number % 3}", b"definition" if number % 5 else b""],
        ["schedule", rng.randrange(18), number],
        ["pop-receive", "poppers", "orders", 0, number, _run(number), number, number + 9, number],
        ["pop-ack", "poppers", "orders", 0, _run(rng.randrange(number + 1))],
    ]
    return [command for command in commands if rng.random() < 0.3]


def _run(offset: int) -> bytes:
    return offset.to_bytes(8, "big") + (1).to_bytes(4, "big")


def _close(replica: Replica, last: int, checkpoint: int, rng: Random) -> Member:
    directory = target = replica.directory
    is_snapshot = rng.random() < 0.6
    if is_snapshot:
        target = f"/snap/{replica.node}"
        for _copied in replica.store.begin_snapshot(target, TIME_MS).steps():
            pass
        last = checkpoint
    else:
        last = rng.randint(checkpoint, last)
        replica.mark(last)
    replica.close()
    return Member(replica.node, target, directory, last, checkpoint, is_snapshot)
