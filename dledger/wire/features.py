"""Features: what a program knows that earlier programs do not.

A new command in the log, or a new message between peers, would end a member that does not know it.
So each has a name, its *feature*. A node announces its features when it dials a peer
(:mod:`dledger.wire.websocket_transport`). :mod:`dledger.node.member_features` uses them.
"""

from __future__ import annotations

from collections.abc import Iterable

ACCESS_CONTROL = "access-control"
"""The command ``access``."""

POP = "pop"
"""The commands of POP, whose names begin with ``pop-``."""

RECALL = "recall"
"""The command ``recall``."""

STATE_PROOF = "state-proof"
"""The command ``proof``, and the message :class:`~dledger.wire.service_messages.StateReport`."""

TOPIC_RETENTION = "topic-retention"
"""The commands ``topic-retention`` and ``trim``."""

FEATURES: tuple[str, ...] = (ACCESS_CONTROL, POP, RECALL, STATE_PROOF, TOPIC_RETENTION)
"""What this program knows; sorted."""

FEATURES_MAX = 64
"""Of one peer. What it announces beyond them is passed over."""

HEADER = "DLedger-Features"
"""The field of the WebSocket handshake in which the dialling side lists them, with commas between
the names. A program without features sends no such field, and ignores that of others."""


def pack_features(features: Iterable[str]) -> str:
    """The field of a node that knows these."""
    return ",".join(features)


def unpack_features(value: str) -> frozenset[str]:
    """The reverse of :func:`pack_features`. Unknown names are left out: later programs announce
    more."""
    names = value.split(",", FEATURES_MAX)[:FEATURES_MAX]
    return frozenset(name.strip() for name in names) & frozenset(FEATURES)
