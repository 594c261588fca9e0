"""The simulator is tested by bugs: one defence is taken out, and the right check must fire.

Here are those that a few seeds find; ``python -m simulator bugs`` looks for all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.bugs import BUGS, Bug, Finding, bug_by_id, look_for, planted
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.cli.bugs import table
from simulator.worlds.registry import Run

QUICK_SEEDS = 20
QUICK = [bug for bug in BUGS if bug.seeds <= QUICK_SEEDS]


@pytest.fixture(scope="module")
def page() -> str:
    """The table of ``docs/planted-bugs.md``."""
    text = (Path(__file__).parents[3] / "docs" / "planted-bugs.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"<!-- planted bugs -->\n(.*)\n\Z", text, re.DOTALL)
    return str(told)


def seeds_of(page: str) -> dict[str, int]:
    """The seed that has found each bug."""
    return {id_: int(seed) for id_, seed in re.findall(r"^\| (\w+) \|.* (\d+) of ", page, re.M)}


@pytest.mark.minutes
@pytest.mark.parametrize("bug", QUICK, ids=[bug.id for bug in QUICK])
def test_a_planted_bug_is_found_by_the_right_check(bug: Bug, page: str) -> None:
    """The seed of the page comes first, as those before it mostly find nothing."""
    seed = seeds_of(page)[bug.id]
    assert 1 <= seed <= bug.seeds
    with planted(bug):
        violation = bug.of(seed).play().violation
    if violation is not None and bug.explains(violation):
        return
    finding = look_for(bug)
    assert finding.seed is not None, f"no check said {bug.says!r}; instead: {finding.others}"


def test_every_bug_has_an_id_of_its_own_and_says_what_it_takes_out() -> None:
    ids = Counter(bug.id for bug in BUGS)
    assert [id_ for id_, count in ids.items() if count > 1] == []
    assert [bug.id for bug in BUGS if not bug.takes_out.endswith(".")] == []
    assert all(bug_by_id(bug.id) is bug for bug in BUGS)
    assert len(BUGS) >= 30


def test_the_page_of_planted_bugs_has_the_table_that_the_code_prints(page: str) -> None:
    seeds = seeds_of(page)
    for bug in BUGS:
        row = f"python -m simulator bugs --id {bug.id} --markdown prints the row of {bug.id}"
        assert 1 <= seeds.get(bug.id, 0) <= bug.seeds, row
    assert page == table([Finding(bug, seeds[bug.id], bug.seeds, 0, "", ()) for bug in BUGS])


def test_a_bug_that_no_check_can_see_is_not_found() -> None:
    harmless = Bug("X", lambda _patch: None, "its disk holds", 2)
    finding = look_for(harmless)
    assert finding.seed is None
    assert finding.tried == 2


def test_an_id_that_is_none_is_refused() -> None:
    for id_ in ("", "A", "5", "a5", "A5B", "BOAST"):
        with pytest.raises(ValueError, match="is no id of a bug"):
            BugsOf()(id_, "anything", 1)


def test_runs_that_know_nothing_of_a_bug_end_with_the_first_check_that_fires() -> None:
    bug = bug_by_id("A1")
    assert bug is not None
    other = replace(bug, says="no check says this")
    finding = look_for(other, lambda seed: Run(seed, seconds=6.0), 5)
    assert (finding.seed, finding.tried, finding.seeds) == (None, 1, 5)
    assert len(finding.others) == 1


def test_what_was_planted_is_taken_out_again() -> None:
    before = Run(3, seconds=2.0).play()
    for bug in BUGS:
        with planted(bug):
            pass
    assert Run(3, seconds=2.0).play() == before


def test_a_patch_puts_back_what_it_replaced_twice() -> None:
    class Thing:
        value = 1

    patch = Patch()
    patch.set(Thing, "value", 2)
    patch.set(Thing, "value", 3)
    patch.undo()
    assert Thing.value == 1
    with pytest.raises(KeyError):
        patch.set(Thing, "other", 1)


def test_a_patch_around_a_function_calls_it_and_is_checked_without_it() -> None:
    class Thing:
        def act(self, what: str) -> str:
            return f"does {what}"

    patch = Patch()

    @patch.around(Thing, "act")
    def loud(act: Original[str], thing: Thing, what: str) -> str:
        return act(thing, what).upper()

    assert Thing().act("it") == "DOES IT"
    with pytest.raises(TypeError, match=r"act.*cannot be replaced"):

        @patch.around(Thing, "act")
        def deaf(act: Original[str], thing: Thing) -> str:
            return act(thing, "")

    patch.undo()
    assert Thing().act("it") == "does it"


def test_a_patch_refuses_a_function_that_is_called_otherwise_than_it_can_be() -> None:
    class Thing:
        def act(self, what: str, times: int = 1, *, loud: bool = False) -> None:
            """What shipped code has come to."""

    def stale(_thing: Thing, _what: str) -> None: ...
    def deaf(_thing: Thing, _what: str, _times: int = 1) -> None: ...
    def eager(_thing: Thing, _what: str, _times: int, *, loud: bool) -> None: ...
    def anything(*_given: object, **_named: object) -> None: ...
    def fitting(_thing: Thing, _what: str, _times: int = 1, *, loud: bool) -> None: ...

    patch = Patch()
    for wrong in (stale, deaf, eager):
        with pytest.raises(TypeError, match=r"act.*cannot be replaced"):
            patch.set(Thing, "act", wrong)
    for right in (anything, fitting):
        patch.set(Thing, "act", right)
        patch.undo()
