"""The pages as people use them: by keyboard and screen reader, on a phone, while nodes die."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.cluster.running_cluster import RunningCluster
from tests.console.browsers import PHONE, axe_findings
from tests.console.conftest import console_of, leader_of

PATHS = (
    *("", "topics", "topics/seen", "groups", "groups/watchers", "messages?topic=seen"),
    *("message?topic=seen&broker=broker-a&queue=0&offset=0", "dead", "dead/watchers", "waiting"),
    *("traces", "members", "findings"),
)


FIVE = ("--from", "earliest", "--count", "5")


@pytest.fixture(scope="module")
def filled(shared_cluster: RunningCluster) -> None:
    """Something for each page."""
    shared_cluster.dledger("topic", "create", "seen", "--queues", "1")
    shared_cluster.dledger("produce", "seen", stdin="one\n" * 20)
    shared_cluster.dledger("consume", "seen", "--group", "watchers", *FIVE)
    shared_cluster.dledger("topic", "create", "%DLQ%watchers", "--queues", "1")
    shared_cluster.dledger("produce", "%DLQ%watchers", "--batch", "1", stdin="dead\n")


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing_serious(page: Page, address: str, path: str) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{address}{path}")
        page.wait_for_load_state("networkidle")
        assert page.get_by_role("heading", level=1).count() == 1
        assert axe_findings(page) == []


@pytest.mark.usefixtures("filled")
def test_axe_finds_nothing_serious_in_a_dialog(page: Page, address: str) -> None:
    page.goto(f"{address}groups/watchers")
    page.get_by_role("button", name="Move in this topic").click()
    page.locator("#dialog form").wait_for()
    assert axe_findings(page) == []
    page.get_by_role("button", name="Next").click()
    page.locator("#dialog pre.command").wait_for()
    assert axe_findings(page) == []


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("path", "figure"),
    [
        ("", ".health h1"),
        ("", ".figures dd"),
        ("topics", "#topic-seen td.n"),
        ("groups", "#group-watchers td.n"),
        ("groups/watchers", ".figure dd"),
        ("dead", "#dead-watchers td.n"),
        ("members", "#member-broker-a-n0 td .tag"),
        ("findings", ".health h2"),
    ],
)
def test_on_a_phone_the_figure_that_matters_is_visible(
    page: Page, address: str, path: str, figure: str
) -> None:
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page.goto(f"{address}{path}")
    box = page.locator(figure).first.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]
    assert box["y"] + box["height"] <= PHONE[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


@pytest.mark.usefixtures("filled")
def test_cells_change_in_place_and_focus_and_selection_survive(
    page: Page, address: str, shared_cluster: RunningCluster
) -> None:
    page.goto(f"{address}topics")
    row = page.locator("#topic-seen")
    row.get_by_role("link").last.focus()
    page.evaluate("document.querySelector('#topic-seen').dataset.kept = 'yes'")
    before = row.locator("td.n").first.inner_text()
    shared_cluster.dledger("produce", "seen", stdin="more\n")
    expect(row.locator("td.n").first).not_to_have_text(before)
    expect(row.get_by_role("link").last).to_be_focused()

    page.evaluate("getSelection().selectAllChildren(document.querySelector('#topic-seen th'))")
    page.wait_for_timeout(4500)
    assert page.evaluate("getSelection().toString()") == "seen"


@pytest.mark.usefixtures("filled")
def test_all_of_a_change_is_done_by_keyboard(page: Page, address: str) -> None:
    page.goto(f"{address}topics")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Create a topic")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("bykeys")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Create", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#dialog .notice")).to_contain_text("bykeys is created")
    page.keyboard.press("Enter")
    expect(page.locator("#topic-bykeys")).to_be_visible()


def test_charts_survive_a_reload(page: Page, address: str, shared_cluster: RunningCluster) -> None:
    shared_cluster.dledger("produce", "charted", stdin="x\n" * 500)
    page.goto(address)
    curve = page.locator("[data-chart=rate] canvas")
    curve.wait_for(timeout=45_000)
    expect(page.locator("[data-now=rate]")).to_contain_text("stored")
    page.reload()
    curve.wait_for()
    page.get_by_role("button", name="3 h").click()
    expect(page.get_by_role("button", name="3 h")).to_have_attribute("aria-pressed", "true")


def test_nothing_is_loaded_from_elsewhere_and_no_script_stands_in_the_page(
    page: Page, address: str
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(address)
    page.wait_for_load_state("networkidle")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    origin = address.removesuffix("/console/")
    assert [url for url in asked if not url.startswith((origin, "data:"))] == []
    assert page.locator("script:not([src]), style, [style]:not(.chart *)").count() == 0


def test_the_page_follows_when_the_leader_is_killed(page: Page, cluster: RunningCluster) -> None:
    leader = leader_of(cluster)
    watched = next(each for each in cluster.nodes if each != leader)
    page.goto(console_of(cluster, watched))
    expect(page.locator(".health")).to_contain_text("Can lose 1 more node")
    expect(page.locator(f"#node-broker-a-{leader}")).to_contain_text("leader")
    cluster.kill(leader)
    expect(page.locator(f"#node-broker-a-{leader}")).to_contain_text("down")
    expect(page.locator(".health")).to_contain_text("Cannot lose another node")
    expect(page.locator("tbody .tag.leader")).to_have_count(1)
    new = leader_of(cluster)
    expect(page.locator(f"#node-broker-a-{new}")).to_contain_text("leader")

    page.goto(f"{console_of(cluster, watched)}members")
    third = next(each for each in cluster.nodes if each not in {leader, new})
    page.locator(f"#member-broker-a-{third}").get_by_role("button", name="Make leader").click()
    page.get_by_role("button", name="Make it the leader").click()
    expect(page.locator("#dialog .notice")).to_contain_text(f"{third} leads broker-a")
    cluster.kill(third)
    cluster.kill(new)
    expect(page.locator("#silent")).to_contain_text("does not answer")
