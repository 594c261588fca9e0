"""The page of a run: what it draws is what the trace says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from simulator.bugs import bug_by_id, planted
from simulator.faults.schedule import Action
from simulator.view.trace_page import RunPicture, render_page

TRACE = """\
    0.000000 n0   boots: term 0, vote none, log to -1, commit -1, cut 0
    0.000000 n1   boots: term 0, vote none, log to -1, commit -1, cut 0
    0.100000 n0   is leader of term 1
    0.200000 n0   -> n1 #1 Heartbeat(term=1, commit_index=-1)
    0.200000 n0   -> n1 #2 AppendRequest(term=1)
    0.250000 n1   <- n0 #2 AppendRequest
    0.260000 n1   <- n0 #2 AppendRequest
    0.300000 act  pause n0
    0.300000 n0   is paused
    0.400000 n0   is resumed
    0.500000 n1   process dies
    0.550000 n0   applies 3 of term 1, 00ff
    0.600000 !!!  </script><b>a promise is broken</b>
"""


def picture(text: str) -> RunPicture:
    drawn = RunPicture()
    for line in text.splitlines():
        drawn.add(line)
    drawn.finish()
    return drawn


def data_of(page: str) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def test_roles_pauses_and_deaths_become_spans() -> None:
    drawn = picture(TRACE)
    n0, n1 = drawn.lanes.index("n0"), drawn.lanes.index("n1")
    states = {lane: [span[3] for span in drawn.spans if span[0] == lane] for lane in (n0, n1)}
    assert states[n0] == ["follower", "leader", "paused", "leader"]
    assert states[n1] == ["follower", "down"]
    assert [span[1:3] for span in drawn.spans if span[3] == "paused"] == [[0.3, 0.4]]


def test_a_message_is_lost_arrives_or_arrives_twice() -> None:
    drawn = picture(TRACE)
    told = [(message[4], message[1]) for message in drawn.messages]
    assert told == [("Heartbeat", None), ("AppendRequest", 0.25), ("AppendRequest", 0.26)]


def test_what_is_done_from_outside_has_a_lane_of_its_own() -> None:
    drawn = picture(TRACE)
    faults = [event for event in drawn.events if drawn.lanes[event[1]] == "faults"]
    assert [(event[0], event[2], event[3]) for event in faults] == [(0.3, "fault", "pause n0")]


def test_no_text_of_a_run_breaks_out_of_the_page() -> None:
    page = render_page("<b>seed 1</b>", TRACE.splitlines())
    assert "<b>" not in page
    assert data_of(page)["violation"] == [0.6, "</script><b>a promise is broken</b>"]


def test_the_page_refers_to_nothing_outside_of_it() -> None:
    page = render_page("seed 1", TRACE.splitlines())
    assert re.search(r"""(src|href)\s*=|https?:|url\(|@import""", page) is None


def test_the_page_of_a_broken_run_has_all_of_it() -> None:
    bug = bug_by_id("D10x")
    assert bug is not None
    lines: list[str] = []
    with planted(bug):
        pause = [Action(0.5, "pause", (f"n{host}",)) for host in range(2)]
        outcome = replace(bug.of(1), schedule=pause).play(lines.append)
    data = data_of(render_page("D10x", lines))
    assert outcome.violation is not None
    assert data["violation"][1] == outcome.violation
    assert data["lanes"][data["order"][0]] == "faults"
    assert [data["lanes"][lane] for lane in data["order"][1:]] == ["n0", "n1", "n2"]
    actions = [event for event in data["events"] if event[1] == data["order"][0]]
    assert len(actions) > len(outcome.schedule)
    assert sum("->" in line for line in lines) <= len(data["messages"])
