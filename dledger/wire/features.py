"""Features: what a program knows beyond what all programs of the peers' protocol know.

A new command in the log, or a new message between peers, would end a member that does not know it.
So each has a *feature*, a name. A node announces the features that it knows as it dials a peer
(:mod:`dledger.wire.websocket_transport`). What a node makes of them is in
:mod:`dledger.node.member_features`.
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
"""The field of the WebSocket handshake that has them, sent by who dials: names with commas between
them. A program that knows none sends no such field, and passes over that of others."""


def pack_features(features: Iterable[str]) -> str:
    """The field of a node that knows these."""
    return ",".join(features)


def unpack_features(value: str) -> frozenset[str]:
    """The reverse of :func:`pack_features`. What is no name of ours says nothing, and is left out:
    programs to come announce more."""
    names = value.split(",", FEATURES_MAX)[:FEATURES_MAX]
    return frozenset(name.strip() for name in names) & frozenset(FEATURES)
