"""The findings of many ranges are put together in a time that grows with their number alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

import pytest

from store.verify import group_findings
from store.verify.files.audit_files import READABLE
from store.verify.findings import Finding, FindingKind
from store.verify.group_findings import FoundEntries, merge_findings
from store.verify.plan.ranges import RangeResult
from store.verify.replica_comparison import ONE_CHAIN
from tests.support.search_effort import sample

KINDS = (
    FindingKind.ENTRY,
    FindingKind.SEGMENT,
    FindingKind.PADDING,
    FindingKind.ENTRY_INDEX,
    FindingKind.DIVERGENCE,
    FindingKind.BATCH,
    FindingKind.KEY_INDEX,
)


def result(number: int, findings: Sequence[Finding], entries: int = 4) -> RangeResult:
    first = number * entries
    last = first + entries - 1
    return RangeResult(number, first, last, tuple(findings), entries, 0, 0, (), ())


def merge_one_by_one(ordered: Sequence[RangeResult]) -> list[Finding]:
    """Compares each finding with all before it."""
    merged: list[Finding] = []
    for each in ordered:
        for finding in each.findings:
            for number in reversed(range(len(merged))):
                before = merged[number]
                if group_findings._continues(before, finding, each.first_index):
                    last = before.index_last
                    if finding.index_last is not None and last is not None:
                        last = max(last, finding.index_last)
                    merged[number] = replace(before, index_last=last)
                    break
            else:
                merged.append(finding)
    return merged


def any_finding(rng: random.Random, first: int, last: int) -> Finding:
    begin = rng.choice([None, first, first, first, rng.randint(first, last)])
    end = None if begin is None else rng.choice([last, last, rng.randint(begin, last)])
    return Finding(
        rng.choice(KINDS),
        rng.choice(["broker-a/n0", "broker-a/n1", "unknown"]),
        begin,
        end,
        rng.choice(["/n0", "/n0/commitlog/1", "/n1/commitlog/1"]),
        rng.choice([0, 8]),
        rng.choice(["a", "b", READABLE, ONE_CHAIN]),
        rng.choice(["c", "d"]),
        "",
    )


@pytest.mark.parametrize("seed", sample(range(200)))
def test_findings_are_merged_as_if_each_was_compared_with_all(seed: int) -> None:
    rng = random.Random(seed)
    ordered = [
        result(number, [any_finding(rng, number * 4, number * 4 + 3) for _ in range(6)])
        for number in range(10)
    ]
    assert merge_findings(ordered) == merge_one_by_one(ordered)


def test_a_finding_is_not_compared_with_all_before_it() -> None:
    findings = [
        Finding(kind, "broker-a/n0", entry, entry, f"/n0/{entry}", entry, "a", "b", "")
        for entry in range(400)
        for kind in (FindingKind.ENTRY, FindingKind.BATCH, FindingKind.DIVERGENCE)
    ]
    ordered = [result(at, findings[at * 12 : at * 12 + 12]) for at in range(100)]
    with mock.patch.object(
        group_findings, "_continues", wraps=group_findings._continues
    ) as compared:
        merge_findings(ordered)
    assert compared.call_count < 3 * len(findings)


def test_entries_of_findings_are_found_as_if_each_was_looked_at() -> None:
    rng = random.Random(1)
    findings = [any_finding(rng, *sorted(rng.sample(range(60), 2))) for _ in range(8)]
    spans = [
        (one.index_first, one.index_last)
        for one in findings
        if one.index_first is not None and one.index_last is not None
    ]
    found = FoundEntries(findings)
    for first in range(60):
        for last in range(first, 60):
            overlap = any(begin <= last and first <= end for begin, end in spans)
            assert found.overlap(first, last) == overlap
    assert not FoundEntries([]).overlap(0, 100)
