"""A batcher whose proposals the test answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.group_commit.batcher import Batcher
from broker.state.broker_state import BrokerState
from dledger.errors import (
    ProposeError,
)
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from store.io.filesystem import Bytes
from store.log.entry import HEADER_SIZE
from store.message.batch import Batch, decode_batch
from store.message.record import PendingMessage, iter_records, make_pending_message
from tests.support.virtual_network import NetworkedLoop

HOST = bytes(8)


LEADS = Leadership(Role.LEADER, 3, "n0", True)


class Proposals:
    """A node that keeps proposals until the test says how they ended."""

    def __init__(self) -> None:
        self.position = 0
        self.batches: list[Batch] = []
        self.dones: list[Callable[[ProposeError | None], None]] = []
        self.refusal: ProposeError | None = None

    def propose(
        self,
        body_size: int,
        build: Callable[[int], Sequence[Bytes]],
        done: Callable[[ProposeError | None], None],
    ) -> int:
        if self.refusal is not None:
            raise self.refusal
        body = b"".join(build(self.position))
        assert len(body) == body_size
        self.batches.append(decode_batch(body))
        self.dones.append(done)
        self.position += HEADER_SIZE + body_size
        return len(self.batches) - 1

    def commit(self) -> None:
        self.dones.pop(0)(None)

    def bodies(self, number: int) -> list[bytes]:
        return [record.body for record in iter_records(self.batches[number].records)]


class Applied:
    """The applied state."""

    def __init__(self) -> None:
        self.state = BrokerState()
        self.ends: dict[tuple[str, int], int] = {}

    def end_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), 0)


class Heard:
    """Records what waiters for messages are told."""

    def __init__(self) -> None:
        self.first_offset = -1
        self.positions: list[int] = []
        self.error: ProposeError | None = None

    def stored(self, first_offset: int, positions: Sequence[int]) -> None:
        self.first_offset, self.positions = first_offset, list(positions)

    def failed(self, error: ProposeError) -> None:
        self.error = error


class Room:
    """A batcher with all that it needs. ``turn`` runs one turn of the loop."""

    def __init__(self, segment_size: int = 64 << 20) -> None:
        self.loop = NetworkedLoop()
        self.node = Proposals()
        self.applied = Applied()
        self.now_ms = 1_000_000
        self.batcher = Batcher(
            node=self.node,
            applied=self.applied,
            loop=self.loop,
            wall_clock=lambda: self.now_ms,
            store_host=HOST,
            segment_size=segment_size,
        )
        self.batcher.leadership_changed(LEADS)

    def turn(self, seconds: float = 0.0) -> None:
        self.loop.call_later(seconds, self.loop.stop)
        self.loop.run_forever()

    def add(self, body: bytes, topic: str = "t", queue_id: int = 0) -> Heard:
        heard = Heard()
        self.batcher.add_message(topic, queue_id, message(body), heard)
        return heard


def message(body: bytes) -> PendingMessage:
    return make_pending_message("t", body, b"", born_timestamp=1, born_host=HOST)
