"""Features: what a program knows beyond what all programs of the peers' protocol know.

A new command in the log, or a new message between peers, would end a member that does not know it.
So each has a *feature*, a name. A node announces the features that it knows as it dials a peer
(:mod:`dledger.wire.websocket_transport`). What needs one is sent only to a peer that announced it,
and written to the log only while every member of the configuration, learners too, is known to know
it.

A leader knows that of a member that announced it since this process began, and of those who were
members when an entry that needs the feature was committed: it would not have been written
otherwise. So a new leader need not wait for a member that is down, and a restart learns it anew.

A member that is added later with an earlier program announces nothing: from then on nothing is
written that it does not know. Where it finds such an entry in the log it stops, and names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.node.node import Node

STATE_PROOF = "state-proof"
"""The command ``proof``, and the message :class:`~dledger.wire.service_messages.StateReport`."""

FEATURES: tuple[str, ...] = (STATE_PROOF,)
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


class Features:
    """Who knows what, as one node has heard."""

    def __init__(self, *, node: Node) -> None:
        self._node = node
        self._linked: dict[str, frozenset[str]] = {}
        self._known: dict[str, frozenset[str]] = {node.core.node: frozenset(FEATURES)}

    def announced(self, peer: str, features: Collection[str]) -> None:
        """A link to the peer came up; it knows these, and no others."""
        self._linked[peer] = frozenset(features)

    def lost(self, peer: str) -> None:
        """The link is gone. What is known of a member stays known."""
        features = self._linked.pop(peer, None)
        if features is not None and self._node.core.serves(peer):
            self._known[peer] = features

    def used(self, feature: str, index: int) -> None:
        """The committed entry of that index needs it: its leader knew that all members know it."""
        for member in self._node.core.configurations.at(index).members:
            self._known.setdefault(member, frozenset((feature,)))

    def has(self, peer: str, feature: str) -> bool:
        """Whether a peer that is linked knows it."""
        return feature in self._linked.get(peer, ())

    def known_by_all(self, feature: str) -> bool:
        """Whether every member of the configuration in effect knows it, as far as is known."""
        return all(
            feature in self._linked.get(member, self._known.get(member, ()))
            for member in self._node.core.configuration.members
        )
