"""Many damages and many undamaged groups, each from its own seed, with a table at the end.

``python -m tests.damage --count 500`` plants 500 damages and checks 500 whole groups; a failure
prints the seed, and ``--seed SEED --count 1`` repeats it.
"""

from __future__ import annotations

import pickle
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
from store.verify.files.unread_files import exit_code
from tests.damage.damage_kinds import KINDS, PLANTERS
from tests.damage.planted_damage import Planted, plant
from tests.damage.replica_groups import Group, build_group


@dataclass(slots=True)
class Tally:
    """The outcomes, by kind of damage."""

    planted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def findings_of(group: Group, rng: Random) -> tuple[list[Finding], str | None]:
    """The findings of `dledger verify`, and the differences of an audit of small ranges in any
    order."""
    whole = verify_replicas(group.fs, group.directories).findings
    plan = plan_audit(group.fs, group.directories, rng.randint(600, 9000))
    ranged = list(plan.findings)
    for part in plan.groups:
        numbers = list(range(len(part.ranges)))
        rng.shuffle(numbers)
        # As tasks of Spark do it: plan and results go through a pipe.
        sent = pickle.loads(pickle.dumps(part))
        results = [pickle.loads(pickle.dumps(check_range(group.fs, sent, n))) for n in numbers]
        ranged += finish_audit(group.fs, part, results)
    return whole, difference(whole, ranged)


def difference(alone: list[Finding], audited: list[Finding]) -> str | None:
    """Findings that only one of the two checks has; ``None`` if they agree word for word."""
    ours, theirs = set(map(str, alone)), set(map(str, audited))
    if ours == theirs and exit_code(alone) == exit_code(audited):
        return None
    more = "\n    ".join(sorted(theirs - ours))
    return f"the audit differs, and tells instead of {sorted(ours - theirs)}:\n    {more}\n"


def damaged(seed: int, tally: Tally, what: str | None = None, of: str = "bytes") -> None:
    """Plants one damage, of a kind or of any in the table ``of``, and judges the findings."""
    rng = Random(f"damaged {seed}" if of == "bytes" else f"damaged {of} {seed}")
    group = build_group(rng)
    planters = KINDS[of] if what is None else PLANTERS
    planted = plant(group, rng, what, planters=planters)
    judge(seed, planted, findings_of(group, rng), tally)


def undamaged(seed: int, tally: Tally) -> None:
    """Checks an undamaged group: there must be no finding."""
    rng = Random(f"undamaged {seed}")
    judge(seed, None, findings_of(build_group(rng), rng), tally)


def judge(
    seed: int, planted: Planted | None, told: tuple[list[Finding], str | None], tally: Tally
) -> None:
    """Notes whether the findings are right, and whether the two checks agree."""
    findings, difference = told
    what = "nothing" if planted is None else planted.what
    tally.planted[what] += 1
    if planted is None:
        wrong = difference or ("false alarm" if findings else None)
    else:
        wrong = planted.explain(findings) or difference
    if wrong is None:
        tally.found[what] += 1
        return
    where = "" if planted is None else f" in {planted.member.name}, entry {planted.index}"
    lines = "\n    ".join(map(str, findings)) or "nothing"
    tally.failures.append(f"seed {seed}: {what}{where}: {wrong}; told was:\n    {lines}")
