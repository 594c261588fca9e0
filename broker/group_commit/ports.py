"""The parts of the node and of the state machine that group commit uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.state.broker_state import BrokerState
from dledger.errors import ProposeError
from store.io.filesystem import Bytes


class Proposer(Protocol):
    """The part of :class:`~dledger.node.node.Node` that is used here."""

    def propose(
        self,
        body_size: int,
        build: Callable[[int], Sequence[Bytes]],
        done: Callable[[ProposeError | None], None],
    ) -> int: ...


class QueueEnds(Protocol):
    """Where queues end in the applied state."""

    def end_offset(self, topic: str, queue_id: int) -> int: ...


class AppliedState(Protocol):
    """The applied state itself."""

    @property
    def state(self) -> BrokerState: ...


class Applied(AppliedState, QueueEnds, Protocol):
    """The part of :class:`~broker.state.state_machine.BrokerStateMachine` that is used here."""
