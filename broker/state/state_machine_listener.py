"""Events of the state machine for the rest of the broker."""

from __future__ import annotations

from broker.state.commands import Proof
from broker.state.open_transactions import OpenTransaction
from dledger.node.state_machine import Leadership
from store.message.batch import Batch


class StateMachineListener:
    """Reacts to applied entries. The methods of this class do nothing."""

    def messages_arrived(self, batch: Batch) -> None:
        """The messages of an entry were added to their queues."""

    def transaction_opened(self, offset: int, transaction: OpenTransaction) -> None:
        """A half message was stored at ``offset``."""

    def topics_changed(self) -> None:
        """A topic was created, changed or deleted."""

    def setting_changed(self, name: str) -> None:
        """A setting was changed."""

    def expired(self, position: int) -> None:
        """The commit log below ``position`` has expired, also by the newest checkpoint on disk.
        Called after each checkpoint, because the log keeps what older checkpoints need."""

    def state_restored(self, digests: bytes) -> None:
        """The state of a checkpoint was restored; ``digests`` are its digests."""

    def proof_applied(self, index: int, proof: Proof, digests: bytes) -> None:
        """The entry of that index has the proof; ``digests`` are those of the state after it."""

    def feature_used(self, feature: str, index: int) -> None:
        """The entry of that index has a command that needs this feature."""

    def leadership_changed(self, leadership: Leadership) -> None:
        """The leader changed, or this leader began or ceased to serve."""
