"""Which features (:mod:`dledger.wire.features`) each member knows, as one node has heard.

A message that needs a feature is sent only to a peer that announced it. A command that needs one is
written to the log only while every member of the configuration, learners too, is known to know it.

A member is known to know a feature if it has announced it since this process began. So is every
member at the time when an entry that needs the feature was committed: otherwise that entry would
not have been written. So a new leader need not wait for a member that is down.

A member that is added later with an earlier program announces nothing. From then on nothing is
written that it does not know. If it finds such an entry in the log, it stops and names the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from dledger.wire.features import FEATURES


class MemberFeatures:
    """Who knows what. On the event loop."""

    def __init__(
        self,
        *,
        node: str,
        serves: Callable[[str], bool],
        members: Callable[[], Collection[str]],
        members_at: Callable[[int], Collection[str]],
    ) -> None:
        """``serves`` tells members from strangers. ``members`` are those of the configuration in
        effect, ``members_at`` those after the entry of an index."""
        self._serves = serves
        self._members = members
        self._members_at = members_at
        self._linked: dict[str, frozenset[str]] = {}
        self._known: dict[str, frozenset[str]] = {node: frozenset(FEATURES)}
        """What a member announced last, before its link broke."""
        self._used: dict[str, set[str]] = {}
        """What entries needed that were committed while it was a member."""

    def announced(self, peer: str, features: Collection[str]) -> None:
        """A link to the peer came up; it knows these, and no others."""
        self._linked[peer] = frozenset(features)

    def lost(self, peer: str) -> None:
        """The link is gone. What is known of a member stays known."""
        features = self._linked.pop(peer, None)
        if features is not None and self._serves(peer):
            self._known[peer] = features

    def used(self, feature: str, index: int) -> None:
        """The committed entry of that index needs it: its leader knew that all members know it."""
        for member in self._members_at(index):
            self._used.setdefault(member, set()).add(feature)

    def has(self, peer: str, feature: str) -> bool:
        """Whether a peer that is linked knows it."""
        return feature in self._linked.get(peer, ())

    def known_by_all(self, feature: str) -> bool:
        """Whether every member of the configuration in effect knows it, as far as is known."""
        return all(feature in self._features_of(member) for member in self._members())

    def _features_of(self, member: str) -> Collection[str]:
        """What it says goes before what the log says: it may run an earlier program again."""
        tables: Iterable[Mapping[str, Collection[str]]] = (self._linked, self._known, self._used)
        for known in tables:
            if member in known:
                return known[member]
        return ()
