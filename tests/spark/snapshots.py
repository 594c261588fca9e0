"""Snapshots of small groups, as real directories."""

from __future__ import annotations

import json
from pathlib import Path

from broker.state.broker_state import BrokerState
from broker.state.open_transactions import OpenTransaction
from broker.topics_and_groups import GroupConfig, TopicConfig
from simulator.engine.disk import SimulatedFileSystem
from store.message.batch import QueueRun
from tests.store.sample_replica import GROUP, Replica, message
from tests.store.small_logs import simulated

NODES = ("n0", "n1", "n2")
ENTRIES = 30
TIME_MS = 1_700_000_100_000

STATE = BrokerState(
    topics={"orders": TopicConfig("orders", 1, 1), "bills": TopicConfig("bills", 2, 2, order=True)},
    groups={"readers": GroupConfig("readers", retry_max_times=3)},
    offsets={("readers", "orders"): {0: 50}, ("readers", "bills"): {0: 14, 1: 5}},
    transactions={7: OpenTransaction(4711, "payers", TIME_MS, checks=1, checked_ms=TIME_MS + 60)},
)


def write_group(
    root: Path,
    *,
    nodes: tuple[str, ...] = NODES,
    entries: int = ENTRIES,
    forked: str = "",
    body_size: int = 20,
    broker: BrokerState | None = None,
) -> list[Path]:
    """Snapshots ``root/<group>/<node>``; ``forked`` has another message in its last entry.

    Entry 0 is a no-op. Each entry from 1 on has two messages for queue 0 of ``orders`` and one for
    a queue of ``bills``. ``broker`` is a state that checkpoints have, and the log does not make.
    """
    return [
        write_snapshot(
            root,
            node,
            entries=entries,
            fork=node == forked,
            body_size=body_size,
            broker=broker,
        )
        for node in nodes
    ]


def write_snapshot(
    root: Path,
    node: str,
    *,
    entries: int = ENTRIES,
    fork: bool = False,
    body_size: int = 20,
    broker: BrokerState | None = None,
) -> Path:
    fs = simulated()
    replica = Replica(fs, node)
    if broker is not None:
        replica.broker_bytes = broker.to_bytes()
    replica.no_op()
    for number in range(1, entries):
        salt = 500 if fork and number == entries - 1 else 0
        orders = [message(number + salt, size=body_size), message(1000 + number, size=body_size)]
        bills = [message(number, "bills", 100)]
        replica.send(
            [
                QueueRun("orders", 0, 2 * number - 2, orders),
                QueueRun("bills", number % 2, (number - 1) // 2, bills),
            ]
        )
        if number == entries // 2:
            replica.checkpoint()
    replica.checkpoint()
    replica.mark()
    target = f"/snap/{node}"
    for _ in replica.store.begin_snapshot(target, TIME_MS).steps():
        pass
    replica.close()
    path = root / GROUP / node
    copy_out(fs, target, path)
    return path


def copy_out(fs: SimulatedFileSystem, source: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in fs.list_directory(source):
        try:
            data = fs.visible_bytes(f"{source}/{name}")
        except (KeyError, OSError):
            copy_out(fs, f"{source}/{name}", target / name)
        else:
            (target / name).write_bytes(data)


def flip(path: Path, byte: int) -> None:
    """Flips one bit."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)


def edit_manifest(replica: Path, **fields: object) -> None:
    path = replica / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
