"""Bits flip in frames between peers, and no such frame is taken for a message."""

from __future__ import annotations

from random import Random

import pytest

from dledger.errors import PeerError
from dledger.raft.messages import AppendAccepted, AppendRequest
from dledger.wire.codec import MessageEncoder, decode_message
from dledger.wire.transport import Message
from simulator.engine.bit_flips import flipped
from simulator.faults.injector import FaultPlan
from simulator.worlds.registry import Run
from store.log.entry import EntryKind, build_entry


def _frames() -> list[bytes]:
    entry = build_entry(EntryKind.DATA, 7, 3, 4096, 1, [b"x" * 500])
    messages: list[Message] = [AppendAccepted(3, 7, 1), AppendRequest(3, 6, 3, 5, (entry,))]
    return [b"".join(MessageEncoder().encode(message)) for message in messages]


def test_a_frame_is_never_as_it_was_and_never_taken_for_a_message() -> None:
    rng = Random(1)
    for frame in _frames():
        places: set[int] = set()
        for _ in range(300):
            damaged = flipped(frame, rng)
            assert len(damaged) == len(frame)
            places.update(
                at for at, pair in enumerate(zip(damaged, frame, strict=True)) if pair[0] != pair[1]
            )
            with pytest.raises(PeerError):
                decode_message(damaged)
        assert {0, 3, 4, 5} <= places  # the CRC, the kind and the fields
        assert max(places) >= 0.8 * len(frame)


def test_a_cluster_keeps_its_promises_while_bits_flip() -> None:
    """Repeat it with ``Run(3, seconds=4.0, plan=FaultPlan.of(...)).play()``."""
    outcome = Run(3, seconds=4.0, plan=FaultPlan.of(("bits flipped on a link",))).play()
    assert outcome.violation is None
    assert outcome.marks["damaged frame refused"] >= 1
    assert outcome.acknowledged > 0
