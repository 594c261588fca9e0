"""The limits and times of the protocol, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class PeerLimits(NamedTuple):
    """What peers may cost at the peer port. A *stranger* is a peer that is no member as far as this
    node knows. It may be about to be added, or may lead by an entry that has not arrived here
    yet."""

    strangers_max: int = 8
    """Strangers that are linked at a time. One that was linked for long gives way to the next."""

    stranger_seconds: float = 10.0
    """For so long a stranger gives way to nobody."""

    strangers_per_second: float = 1.0
    """Strangers that are let in, beyond :attr:`strangers_max` at once."""

    stranger_dials: int = 3
    """How often one is dialled after it has dialled us."""

    stranger_message_bytes_max: int = 17 << 20
    """Of one message of a stranger: enough for the largest message of a client, and what is
    around it."""

    early_bytes_max: int = 64 << 10
    """Of one message of a peer that cannot be answered yet; larger ones are sent again."""

    ungreeted_max: int = 64
    """Connections that have not said yet whose they are; of more, the oldest is closed."""

    greeting_seconds: float = 5.0
    """From the connection to the greeting, whichever side dialled."""

    greeting_bytes_max: int = 1024

    message_seconds: float = 60.0
    """How long a message may take to arrive once it has begun."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Times are seconds. Every queue has a bound.

    ``election_seconds`` is the shortest election timeout; each timeout is drawn between it and its
    double. When the link to the leader breaks, it is drawn from ``lost_leader_seconds`` instead: a
    process that dies closes its sockets, and pre-vote makes a false alarm harmless. That time
    doubles with each failed election until a leader is heard. A leader gives way if its disk ends
    no write for ``disk_stall_seconds``. A change of the voters is cancelled if it is not committed
    within ``change_seconds``. A learner may become a voter if it lacks at most
    ``promote_lag_entries``. ``preferred_leader`` gets the leadership when it keeps up.

    With ``lease_reads`` a leader answers reads without a round of heartbeats, if a majority
    answered within the shortest election timeout less the share ``lease_drift`` of it. That is
    right only if no clock runs faster than another's by more than that share. It has a price:
    followers hold no election before the timeout, even if the link to their leader breaks.

    A node that refills gets ``snapshot_bytes_per_second`` from each of its peers.
    The scrub reads data at rest at ``scrub_bytes_per_second``, with a pause between two passes.
    """

    heartbeat_seconds: float = 0.1
    election_seconds: float = 0.6
    lost_leader_seconds: float = 0.01
    resend_seconds: float = 0.4
    commit_notice_seconds: float = 0.01
    window_messages: int = 16
    window_bytes: int = 8 << 20
    append_bytes_max: int = 1 << 20
    uncommitted_bytes_max: int = 64 << 20
    cache_bytes_max: int = 32 << 20
    checkpoint_seconds: float = 30.0
    checkpoint_bytes: int = 128 << 20
    disk_stall_seconds: float = 10.0
    change_seconds: float = 10.0
    promote_lag_entries: int = 64
    preferred_leader: str = ""
    lease_reads: bool = False
    lease_drift: float = 0.2
    snapshot_bytes_per_second: int = 32 << 20
    scrub_bytes_per_second: int = 8 << 20
    scrub_pass_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_seconds < self.election_seconds / 2:
            raise ValueError(
                f"heartbeat_seconds {self.heartbeat_seconds} must be above 0 and below half of "
                f"election_seconds {self.election_seconds}"
            )
        if not 0 <= self.lease_drift < 1:
            raise ValueError(f"lease_drift must be from 0 to below 1, not {self.lease_drift}")
        for name in (
            "lost_leader_seconds",
            "resend_seconds",
            "commit_notice_seconds",
            "window_messages",
            "window_bytes",
            "append_bytes_max",
            "uncommitted_bytes_max",
            "cache_bytes_max",
            "checkpoint_seconds",
            "checkpoint_bytes",
            "disk_stall_seconds",
            "change_seconds",
            "promote_lag_entries",
            "snapshot_bytes_per_second",
            "scrub_bytes_per_second",
            "scrub_pass_seconds",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
