"""Many damages and many undamaged groups, each from its own seed, with a table at the end.

``python -m tests.damage --count 500`` plants 500 damages and checks 500 whole groups; a failure
prints the seed, and ``--seed SEED --count 1`` repeats it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from store.verify import (
    Finding,
    check_range,
    finish_audit,
    plan_audit,
    verify_replicas,
)
from tests.damage.groups import Group, build_group
from tests.damage.kinds import KINDS, PLANTERS
from tests.damage.planted import Planted, plant


@dataclass(slots=True)
class Tally:
    """What came out, by kind of damage."""

    planted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def findings_of(group: Group, rng: Random) -> tuple[list[Finding], str | None]:
    """What `dledger verify` says, and how an audit of small ranges in any order differs from it."""
    whole = verify_replicas(group.fs, group.directories).findings
    plan = plan_audit(group.fs, group.directories, rng.randint(600, 9000))
    ranged = list(plan.findings)
    for part in plan.groups:
        numbers = list(range(len(part.ranges)))
        rng.shuffle(numbers)
        results = [check_range(group.fs, part, number) for number in numbers]
        ranged += finish_audit(group.fs, part, results)
    if summary(whole) == summary(ranged):
        return whole, None
    return whole, f"the audit differs: {summary(ranged)} is not {summary(whole)}"


def summary(findings: list[Finding]) -> list[tuple[str, str, str, int]]:
    """Who, what and where."""
    return sorted(
        {
            (one.replica, one.kind, one.path, -1 if one.index_first is None else one.index_first)
            for one in findings
        }
    )


def damaged(seed: int, tally: Tally, what: str | None = None, of: str = "bytes") -> None:
    """Plants one damage, of a kind or of any ``of`` that table, and sees what is told."""
    rng = Random(f"damaged {seed}" if of == "bytes" else f"damaged {of} {seed}")
    group = build_group(rng)
    planters = KINDS[of] if what is None else PLANTERS
    _judge(seed, group, plant(group, rng, what, planters=planters), rng, tally)


def _judge(seed: int, group: Group, planted: Planted, rng: Random, tally: Tally) -> None:
    tally.planted[planted.what] += 1
    findings, difference = findings_of(group, rng)
    wrong = planted.explain(findings) or difference
    if wrong is None:
        tally.found[planted.what] += 1
        return
    told = "\n    ".join(map(str, findings)) or "nothing"
    tally.failures.append(
        f"seed {seed}: {planted.what} in {planted.member.name}, entry {planted.index}, "
        f"{planted.path}: {wrong}; told was:\n    {told}"
    )


def undamaged(seed: int, tally: Tally) -> None:
    """Checks a whole group: there is nothing to tell."""
    rng = Random(f"undamaged {seed}")
    tally.planted["nothing"] += 1
    findings, difference = findings_of(build_group(rng), rng)
    if not findings and difference is None:
        tally.found["nothing"] += 1
        return
    told = "\n    ".join(map(str, findings))
    tally.failures.append(f"seed {seed} (undamaged): {difference or told}")
