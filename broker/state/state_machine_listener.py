"""What the state machine tells the rest of the broker."""

from __future__ import annotations

from broker.state.commands import Proof
from broker.state.open_transactions import OpenTransaction
from dledger.node.state_machine import Leadership
from store.io.filesystem import Bytes


class StateMachineListener:
    """The reactions of the rest of the broker to an applied entry; by itself nothing."""

    def messages_arrived(self, topic: str, queue_id: int, rows: Bytes) -> None:
        """Messages were added to a queue; ``rows`` are their ConsumeQueue rows."""

    def transaction_opened(self, offset: int, transaction: OpenTransaction) -> None:
        """A half message was stored at ``offset``."""

    def topics_changed(self) -> None:
        """A topic was created, changed or deleted."""

    def setting_changed(self, name: str) -> None:
        """A setting was changed."""

    def expired(self, position: int) -> None:
        """The commit log below ``position`` has expired, and the newest checkpoint on disk says so.
        Told again after each checkpoint: the log keeps what older ones need."""

    def state_restored(self, digests: bytes) -> None:
        """The state is that of a checkpoint; ``digests`` are of it."""

    def proof_applied(self, index: int, proof: Proof, digests: bytes) -> None:
        """The entry of that index holds the command; ``digests`` are of the state after it."""

    def feature_used(self, feature: str, index: int) -> None:
        """The entry of that index has a command that needs this feature."""

    def leadership_changed(self, leadership: Leadership) -> None:
        """The leader changed, or this node may now serve as leader or no longer."""
