"""Health in words, charts over several nodes, bodies, and how figures are written."""

from __future__ import annotations

from typing import Any

import pytest

from broker.admin.audit_report import AuditReport
from broker.console.pages.charts import FIELDS, merged
from broker.console.pages.messages import as_json, body_as, hex_dump
from broker.console.pages.nodes import newest_audits
from broker.console.pages.overview import health_of, overall
from broker.console.visits.templating import moment, render, size, span

GOOD: dict[str, Any] = {
    "group": "broker-a",
    "leader": "n0",
    "serving": True,
    "voters": 3,
    "in_touch": 3,
    "has_majority": True,
    "may_lose": 1,
    "missing": [],
    "healthy": True,
    "problem": "",
}


@pytest.mark.parametrize(
    ("changes", "grade", "headline"),
    [
        ({}, "good", "Can lose 1 more node"),
        ({"voters": 5, "in_touch": 5, "may_lose": 2}, "good", "Can lose 2 more nodes"),
        (
            {"voters": 5, "in_touch": 4, "may_lose": 1, "missing": ["n4"]},
            *("warning", "Can lose 1 more node"),
        ),
        ({"in_touch": 2, "may_lose": 0, "missing": ["n2"]}, "warning", "Cannot lose another node"),
        ({"voters": 1, "in_touch": 1, "may_lose": 0}, "warning", "Serves, on a single node"),
        (
            {
                "healthy": False,
                "leader": None,
                "has_majority": False,
                "problem": "it has no leader",
            },
            *("bad", "Does not serve"),
        ),
    ],
)
def test_health_is_said_in_words(changes: dict[str, Any], grade: str, headline: str) -> None:
    health = health_of(GOOD | changes)
    assert (health.grade, health.headline) == (grade, headline)


def test_of_several_groups_the_worst_is_said() -> None:
    well, ill = health_of(GOOD), health_of(GOOD | {"group": "broker-b", "may_lose": 0})
    assert overall([well, ill]).headline == "broker-b: Cannot lose another node"
    assert overall([well, well]).headline == "Each group can lose 1 more node"
    five = health_of(GOOD | {"may_lose": 2})
    assert overall([five, well]).headline == "Each group can lose 1 more node"
    assert overall([five, five]).headline == "Each group can lose 2 more nodes"
    assert overall([well]).headline == "Can lose 1 more node"


def history(group: str, *samples: tuple[int, ...]) -> dict[str, Any]:
    return {"group": group, "fields": list(FIELDS), "samples": [list(each) for each in samples]}


def test_charts_add_up_nodes_and_steps() -> None:
    told = [
        history("a", (1_000, 10, 1, 100, 2000, 5), (11_000, 20, 2, 200, -1, 6)),
        history("a", (2_000, 0, 0, 0, 3000, -1)),
        history("b", (3_000, 30, 3, 300, -1, 7)),
    ]
    assert merged(told, 10, 0, 20_000) == {
        "time": [0.0, 10.0],
        "stored": [4.0, 2.0],
        "delivered": [0.4, 0.2],
        "bytes": [40.0, 20.0],
        "commit": [3.0, None],
        "lag": [12, 6],
    }
    assert merged(told, 10, 0, 19_999)["time"] == [0.0], "the last step has only begun"


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"group": 1, "fields": None, "samples": 3},
        {"fields": list(FIELDS), "samples": [[1, 2], "x", None, [1, 2, 3, 4, 5, "6"]]},
        {"fields": list(FIELDS), "samples": [[10**17, 1, 1, 1, 1, 1], [999, 1, 1, 1, 1, 1]]},
    ],
)
def test_what_no_node_tells_is_left_out(told: dict[str, Any]) -> None:
    assert merged([told], 10, 1_000, 20_000)["time"] == []


def audit(second: int, findings: int, *replicas: str) -> dict[str, Any]:
    report = AuditReport(f"{second}.json", 1000 * second, findings, replicas)
    return report._asdict()


def test_a_newer_audit_hides_an_older_one_of_the_same_groups_alone() -> None:
    a_old, a_new = audit(1, 3, "a/n0", "a/n1"), audit(3, 0, "a/n0")
    b = audit(2, 5, "b/n0")
    told: list[dict[str, Any]] = [
        {"from": "a/n0", "directory": "/x", "reports": [b, a_old]},
        {"from": "a/n1", "directory": "/x", "reports": [a_new, b, a_old]},
        {"from": "a/n2", "directory": "", "reports": []},
        {"from": "b/n0", "reports": ["?", {"file": "x"}]},
    ]
    found = newest_audits(told)
    assert [(each["groups"], each["findings"], each["from"]) for each in found] == [
        (("a",), 0, "a/n1"),
        (("b",), 5, "a/n0"),
    ]
    assert [each["unlisted"] for each in found] == [0, 5]


def test_a_body_is_shown_as_text_json_and_hex() -> None:
    assert as_json(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert as_json(b"12") == as_json(b"{") == as_json(b"[" * 50_000) == ""
    assert body_as("text", b"\xff<b>") == "\ufffd<b>"
    assert hex_dump(b"0123456789abcdef\x00z").splitlines() == [
        "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef",
        "00000010  00 7a" + " " * 44 + ".z",
    ]


def test_figures_are_written_for_people() -> None:
    assert (size(1023), size(3 << 19), size(None)) == ("1023 B", "1.5 MiB", "\N{EN DASH}")
    assert (span(999), span(90_000), span(7_200_000)) == ("0 s", "2 min", "2 h")
    assert moment(1_790_000_000_000) == "2026-09-21 14:13:20"
    assert moment(1_790_000_000_007, exact=True) == "2026-09-21 14:13:20.007"
    assert moment(10**18) == f"{10**18} ms"


def test_what_others_named_is_escaped() -> None:
    text = render("dead.html", **_page(), groups=[("<script>alert(1)</script>", 3)])
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def _page() -> dict[str, Any]:
    visitor = type("V", (), {"has_session": False, "name": ""})
    page = {"title": "t", "section": "dead", "menu": (), "cluster": "c<", "served_by": "s"}
    return {**page, "visitor": visitor, "peers": []}
