"""The members of a group, as the entries of kind CONFIGURATION in the log say.

A change of the voters goes through a *joint* configuration (Raft thesis 4.3), in which elections
and commits need a majority of the old voters and one of the new. A configuration takes effect when
its entry is appended, committed or not. If the entry is cut, the configuration before it is in
effect again.

The body of the entry is one JSON object, without spaces::

    {"version": 1, "voters": [...], "old_voters": [...], "learners": [...],
     "addresses": {node: [peer, client, http]}, "incarnations": {node: number}}

``old_voters`` is empty except in a joint configuration. Learners get the log and count for no
majority. ``addresses`` has the members that were added online; the others are in each node's
settings. An *incarnation* is the number that a data directory gets when it is made. A node that
presents another number than is noted here has lost what it confirmed with the noted one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dledger.errors import PeerError
from store.io.filesystem import Bytes
from store.log.entry import Entry

CONFIGURATION_VERSION = 1
MEMBERS_MAX = 64
ADDRESS_CHARACTERS_MAX = 300
NODE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

NO_INCARNATION = 0
"""Not known yet: every incarnation is taken for the right one."""

LOST_INCARNATION = 1
"""Noted for a member that holds less than it confirmed: no disk counts for it any more."""

FIRST_INCARNATION = 2
"""The lowest number of a data directory."""


def is_node_name(name: str) -> bool:
    """Whether this may be the name of a node: up to 64 letters, digits, ``_``, ``.`` and ``-``."""
    return NODE_NAME.fullmatch(name) is not None


def check_incarnation(sender: str, incarnation: int) -> None:
    """Raises :class:`~dledger.errors.PeerError` for what is the number of no data directory."""
    if incarnation != NO_INCARNATION and incarnation < FIRST_INCARNATION:
        raise PeerError(f"{sender} says that it stands on disk {incarnation}")


class ConfigurationError(ValueError):
    """Bytes that are no configuration."""


class MemberAddress(NamedTuple):
    """The three addresses of a member, each ``host:port``."""

    peer: str
    client: str
    http: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a group; see the module. Names are sorted."""

    voters: tuple[str, ...]
    old_voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    addresses: Mapping[str, MemberAddress] = field(default_factory=dict)
    incarnations: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_joint(self) -> bool:
        """Whether a change of the voters is under way."""
        return bool(self.old_voters)

    @property
    def quorums(self) -> tuple[tuple[str, ...], ...]:
        """The sets of voters of each of which a majority is needed."""
        return (self.old_voters, self.voters) if self.old_voters else (self.voters,)

    @property
    def members(self) -> tuple[str, ...]:
        """Everybody who gets the log."""
        return tuple(sorted({*self.voters, *self.old_voters, *self.learners}))

    def includes(self, node: str) -> bool:
        """Whether the node is one of the members."""
        return node in self.voters or node in self.old_voters or node in self.learners

    def votes(self, node: str) -> bool:
        """Whether the node's vote counts, in one set at least."""
        return node in self.voters or node in self.old_voters

    # --- what a change makes of it

    def with_learner(self, node: str, address: MemberAddress) -> Configuration:
        """``node`` gets the log from now on. Whatever disk it had before counts for nothing."""
        return replace(
            self,
            learners=tuple(sorted({*self.learners, node})),
            addresses={**self.addresses, node: address},
            incarnations=_without(self.incarnations, node),
        )

    def with_voters(self, voters: Sequence[str]) -> Configuration:
        """The joint configuration on the way to these voters."""
        return replace(
            self,
            voters=tuple(sorted(voters)),
            old_voters=self.voters,
            learners=tuple(name for name in self.learners if name not in voters),
        )

    def without_learner(self, node: str) -> Configuration:
        learners = tuple(name for name in self.learners if name != node)
        return replace(self, learners=learners)._trimmed()

    def completed(self) -> Configuration:
        """The end of a joint configuration: the new voters alone."""
        return replace(self, old_voters=())._trimmed()

    def cancelled(self) -> Configuration:
        """The way back out of a joint configuration: the old voters alone. New voters go on as
        learners. This is as safe as the way forward: a leader that takes over meanwhile needs a
        majority of the old voters, too."""
        added = [name for name in self.voters if name not in self.old_voters]
        return replace(
            self,
            voters=self.old_voters,
            old_voters=(),
            learners=tuple(sorted({*self.learners, *added})),
        )

    def with_incarnations(self, found: Mapping[str, int]) -> Configuration:
        """From now on these are the members' disks."""
        return replace(self, incarnations={**self.incarnations, **found})

    def _trimmed(self) -> Configuration:
        members = self.members
        return replace(
            self,
            addresses={name: at for name, at in self.addresses.items() if name in members},
            incarnations={name: of for name, of in self.incarnations.items() if name in members},
        )

    # --- bytes

    def pack(self) -> bytes:
        fields = {
            "version": CONFIGURATION_VERSION,
            "voters": self.voters,
            "old_voters": self.old_voters,
            "learners": self.learners,
            "addresses": self.addresses,
            "incarnations": self.incarnations,
        }
        return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()

    @staticmethod
    def unpack(data: Bytes) -> Configuration:
        """The reverse of :meth:`pack`. Raises :class:`ConfigurationError`."""
        try:
            fields = json.loads(bytes(data))
            if fields["version"] != CONFIGURATION_VERSION:
                raise ConfigurationError(f"a configuration of version {fields['version']}")
            found = Configuration(
                _names(fields["voters"]),
                _names(fields["old_voters"]),
                _names(fields["learners"]),
                {name: MemberAddress(*map(str, at)) for name, at in fields["addresses"].items()},
                {name: int(number) for name, number in fields["incarnations"].items()},
            )
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise ConfigurationError(f"no configuration: {error!s:.200}") from error
        if not found.voters:
            raise ConfigurationError("a configuration without voters")
        return found


def check_plausible(found: Configuration) -> None:
    """Raises :class:`ConfigurationError` for what no leader writes: names that no node may have,
    too many of them, or numbers out of range."""
    names = {*found.members, *found.addresses, *found.incarnations}
    if len(names) > MEMBERS_MAX:
        raise ConfigurationError(f"a configuration of {len(names)} members")
    for name in names:
        if not is_node_name(name):
            raise ConfigurationError(f"no node may be called {name!r:.100}")
    for incarnation in found.incarnations.values():
        if not NO_INCARNATION <= incarnation < 1 << 63:
            raise ConfigurationError(f"incarnation {incarnation} is out of range")
    for at in found.addresses.values():
        if any(len(text) > ADDRESS_CHARACTERS_MAX or not text.isprintable() for text in at):
            raise ConfigurationError("a configuration with an address that is none")


def _names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"these are no names: {names!r:.100}")
    return tuple(names)


def _without(numbers: Mapping[str, int], node: str) -> dict[str, int]:
    return {name: number for name, number in numbers.items() if name != node}


class Configurations:
    """The configurations along a log, committed or not; the last is in effect.

    The first is the one before the first entry, or that of a checkpoint.
    """

    def __init__(self, first: Configuration, index: int = -1) -> None:
        self._indexes = [index]
        self._found = [first]
        self.current = first
        """What is in effect."""
        self.index = index
        """The entry that made it so; -1 for the configuration with which the group began."""

    def _changed(self) -> None:
        self.current, self.index = self._found[-1], self._indexes[-1]

    @classmethod
    def recovered(
        cls, voters: Collection[str], index: int, packed: bytes, entries: Iterable[Entry]
    ) -> Configurations:
        """Those of a log that was read at a start: ``packed`` from the checkpoint of ``index``,
        or ``voters`` where it has none, then the entries behind it."""
        if packed:
            found = cls(Configuration.unpack(packed), index)
        else:
            found = cls(Configuration(tuple(sorted(voters))))
        for entry in entries:
            found.append(entry.index, Configuration.unpack(entry.body))
        return found

    def knows(self, node: str, commit_index: int) -> bool:
        """Whether the node is a member, by what is committed or by any entry behind that."""
        if self.current.includes(node):
            return True
        place = max(bisect_right(self._indexes, commit_index) - 1, 0)
        return any(found.includes(node) for found in self._found[place:])

    def at(self, index: int) -> Configuration:
        """What was in effect after the entry of that index."""
        return self._found[max(bisect_right(self._indexes, index) - 1, 0)]

    def packed_at(self, index: int) -> bytes:
        """What a checkpoint of that index keeps: nothing if no entry ever said anything."""
        place = max(bisect_right(self._indexes, index) - 1, 0)
        return self._found[place].pack() if self._indexes[place] >= 0 else b""

    def append(self, index: int, configuration: Configuration) -> None:
        """The entry of that index was appended."""
        self._indexes.append(index)
        self._found.append(configuration)
        self._changed()

    def truncate(self, first_index: int) -> None:
        """The entries from ``first_index`` on were cut."""
        while self._indexes[-1] >= first_index and len(self._indexes) > 1:
            self._indexes.pop()
            self._found.pop()
        self._changed()

    def restart(self, index: int, configuration: Configuration) -> None:
        """The log begins again behind the entry of that index: a snapshot was installed."""
        self._indexes = [index]
        self._found = [configuration]
        self._changed()
