"""Planted damage, and the findings that must follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from store.verify import Finding, FindingKind
from store.verify.findings import UNKNOWN_REPLICA
from tests.damage.replica_groups import Group, Member


@dataclass(slots=True)
class Planted:
    """A damage, and the finding that must be there.

    ``index``: the first entry that it concerns; ``None`` for no entry. ``also``: kinds of further
    findings that the same replica may have, because they depend on the damaged bytes.
    """

    what: str
    member: Member
    kinds: frozenset[FindingKind]
    index: int | None
    path: str | None = None
    also: frozenset[FindingKind] = field(default_factory=frozenset)
    replica: str = ""
    may_be_unknown: bool = False

    def spare(self, group: Group) -> None:
        """Notes which replicas no finding may name."""

    def explain(self, findings: list[Finding]) -> str | None:
        """What is wrong with the findings; ``None`` if they are right."""
        name = self.replica or self.member.name
        if self.may_be_unknown and all(each.replica == UNKNOWN_REPLICA for each in findings):
            name = UNKNOWN_REPLICA
        if not any(self._is_right(finding, name) for finding in findings):
            return "not found, or at another place"
        for finding in findings:
            hangs_on_it = finding.replica == self.member.name and finding.kind in self.also
            if not hangs_on_it and (finding.replica != name or finding.kind not in self.kinds):
                return f"false alarm: {finding}"
        return None

    def _is_right(self, finding: Finding, name: str) -> bool:
        return (
            finding.kind in self.kinds
            and finding.replica == name
            and finding.index_first == self.index
            and (self.path is None or finding.path == self.path)
        )


class AnyIndex(Planted):
    """A damage of which only kind, replica and file are certain."""

    def _is_right(self, finding: Finding, name: str) -> bool:
        return (
            finding.kind in self.kinds
            and finding.replica == name
            and (self.path is None or finding.path == self.path)
        )


@dataclass(slots=True)
class GroupFinding(Planted):
    """Damage to one or several replicas, and the expected findings of each.

    Each of ``paths`` has a finding, of one of ``kinds``. Findings name no other replicas than the
    ``culprits``. A finding that replicas differ must be there if they ``differ``, and may be there
    if they ``may_differ``.
    """

    paths: tuple[str, ...] = ()
    culprits: tuple[Member, ...] = ()
    honest: frozenset[str] = frozenset()
    differ: bool = False
    may_differ: bool = False

    def spare(self, group: Group) -> None:
        """See :class:`Planted`."""
        guilty = {one.directory for one in self.culprits}
        self.honest = frozenset(one.name for one in group.members if one.directory not in guilty)

    def explain(self, findings: list[Finding]) -> str | None:
        """See :class:`Planted`. The damage may have changed the name of a damaged replica."""
        guilty = {one.directory for one in self.culprits}
        for finding in findings:
            if finding.replica == UNKNOWN_REPLICA:
                is_right = self.differ or self.may_differ
            else:
                is_right = any(f"{finding.path}/".startswith(f"{one}/") for one in guilty)
                is_right = is_right and finding.replica not in self.honest
            if not is_right:
                return f"false alarm: {finding}"
        for path in self.paths:
            if not any(self._tells(finding, path) for finding in findings):
                return f"nothing is told of {path}"
        if self.differ and not any(one.replica == UNKNOWN_REPLICA for one in findings):
            return "that they differ is not told"
        return None

    def _tells(self, finding: Finding, path: str) -> bool:
        is_there = f"{finding.path}/".startswith(f"{path}/")
        return is_there and (not self.kinds or finding.kind in self.kinds)


Planter = Callable[[Group, Member, Random], Planted | None]


def plant(
    group: Group,
    rng: Random,
    what: str | None = None,
    *,
    planters: Mapping[str, Planter],
) -> Planted:
    """Damages one replica. If the group has no place for a kind, another kind is tried."""
    names = sorted(planters)
    while True:
        name = what or rng.choice(names)
        members = rng.sample(group.members, len(group.members))
        for member in members if what else members[:1]:
            planted = planters[name](group, member, rng)
            if planted is not None:
                planted.spare(group)
                return planted
        what = None
