"""The pages as people use them: by keyboard and screen reader, on a phone, while nodes die."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from broker.console.visits.templating import NOTHING
from tests.cluster.running_cluster import RunningCluster
from tests.console.browsers import PHONE, axe_findings
from tests.console.conftest import console_of, leader_of

TRACED = "7F0000010A5C2B1D4E8F000001020304"
PATHS = (
    *("", "topics", "topics/seen", "groups", "groups/watchers", "messages?topic=seen"),
    *("message?topic=seen&broker=broker-a&queue=0&offset=0", "dead", "dead/watchers", "waiting"),
    *("traces", f"traces?id={TRACED}", "quotas", "members", "findings"),
)


FIVE = ("--from", "earliest", "--count", "5")


@pytest.fixture(scope="module")
def filled(shared_cluster: RunningCluster) -> None:
    """Something for each page."""
    shared_cluster.dledger("topic", "create", "seen", "--queues", "1")
    shared_cluster.dledger("produce", "seen", stdin="one\n" * 20)
    shared_cluster.dledger("consume", "seen", "--group", "watchers", *FIVE)
    retries = ("--topic", "%RETRY%watchers", "--to", "earliest")
    shared_cluster.dledger("produce", "%RETRY%watchers", stdin="again\n")
    shared_cluster.dledger("group", "reset-offset", "watchers", *retries)
    shared_cluster.dledger("topic", "create", "%DLQ%watchers", "--queues", "1")
    shared_cluster.dledger("produce", "%DLQ%watchers", "--batch", "1", stdin="dead\n")
    shared_cluster.dledger("quota", "set", "topic", "seen", "--produce-bytes", "1GiB")
    shared_cluster.dledger("quota", "set", "client", "*", "--consume-messages", "1000000")
    now = int(time.time() * 1000)
    sent = (
        "Pub",
        f"{now}",
        "DefaultRegion",
        "makers",
        "seen",
        TRACED,
        "red",
        "k1",
        "h:1",
        "3",
        "7",
    )
    begun = ("SubBefore", f"{now + 5}", "DefaultRegion", "watchers", "R1", TRACED, "0", "k1")
    ended = ("SubAfter", "R1", TRACED, "30", "false", "k1", "4", f"{now + 35}", "watchers")
    told = "".join("\x01".join(event) + "\x02" for event in (sent, begun, ended))
    trace = shared_cluster.directory / "trace"
    trace.write_text(told)
    shared_cluster.dledger("produce", "RMQ_SYS_TRACE_TOPIC", "--key", TRACED, "--file", str(trace))


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
    page.get_by_role("button", name="Move in this topic").first.click()
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
        ("quotas", "#quota-topic-seen- td"),
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
@pytest.mark.parametrize("path", PATHS)
def test_on_a_phone_nothing_is_cut_off(page: Page, address: str, path: str) -> None:
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page.goto(f"{address}{path}")
    wide = "each => each.filter(one => one.scrollWidth > one.clientWidth).map(one => one.ariaLabel)"
    assert page.locator(".table").evaluate_all(wide) == []


@pytest.mark.usefixtures("filled")
def test_on_a_phone_a_preview_shows_by_how_much_each_queue_moves(page: Page, address: str) -> None:
    """And it begins with the topic, though the group has retries."""
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page.goto(f"{address}groups/watchers")
    page.get_by_role("button", name="Move (reset)").click()
    expect(page.locator("#dialog [name=topic]")).to_have_value("seen")
    page.get_by_role("button", name="Next").click()
    head = page.locator("#dialog thead th").last
    expect(head).to_have_text("Moves by")
    box = head.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= PHONE[0]
    assert page.locator("#dialog .table").evaluate("one => one.scrollWidth <= one.clientWidth")


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
    expect(page.locator("#dialog-content .notice")).to_contain_text("bykeys is created")
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


def test_charts_are_in_utc_wherever_the_browser_is(browser: Browser, address: str) -> None:
    context = browser.new_context(timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.add_init_script(
        "const own = CanvasRenderingContext2D.prototype.fillText; window.drawn = [];"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {"
        "  window.drawn.push(text); return own.call(this, text, ...rest); }"
    )
    page.goto(address)
    page.locator("[data-chart=lag] canvas").wait_for(timeout=45_000)
    page.wait_for_function("window.drawn.some(text => /^[0-9]{2}:[0-9]{2}$/.test(text))")
    drawn = {text for text in page.evaluate("window.drawn") if ":" in text}
    now = datetime.now(UTC)
    assert drawn <= {f"{now - timedelta(minutes=ago):%H:%M}" for ago in range(62)}
    context.close()


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


@pytest.mark.usefixtures("filled")
def test_what_clients_told_of_a_message_is_shown(page: Page, address: str) -> None:
    page.goto(f"{address}traces")
    page.get_by_label("The client's id").fill(TRACED.lower())
    page.get_by_role("button", name="Look").click()
    rows = page.locator("tbody tr")
    assert [row.split("\t")[1:4] for row in rows.all_inner_texts()] == [
        ["sent", "makers", NOTHING],
        ["consumption begins", "watchers", NOTHING],
        ["consumption ends", "watchers", "failed"],
    ]
    assert re.search(r":\d\d\.\d{3}$", rows.first.locator("time").inner_text())
    page.get_by_role("link", name="Look at the message").click()
    page.wait_for_url(f"**/messages?topic=seen&by=id&id={TRACED}")


@pytest.mark.usefixtures("filled")
def test_the_newest_reports_of_audits_are_shown(
    page: Page, address: str, shared_cluster: RunningCluster
) -> None:
    page.goto(f"{address}findings")
    reports = shared_cluster.directory / "audit"
    expect(page.locator("main")).to_contain_text("No report yet")
    expect(page.locator("main")).to_contain_text(str(reports))
    snapshot = shared_cluster.directory.parent / "snapshot"
    shared_cluster.dledger("snapshot", "--out", str(snapshot))
    reports.mkdir()
    found = shared_cluster.dledger("verify", str(snapshot), "--json")
    (reports / "verify.json").write_text(found.stdout)
    audit = page.locator(".health").last
    expect(audit).to_contain_text("broker-a: consistent")
    assert axe_findings(page) == []

    log = snapshot / "broker-a/n1/commitlog/00000000000000000000"
    damaged = bytearray(log.read_bytes())
    damaged[300] ^= 1
    log.unlink()
    log.write_bytes(damaged)
    found = shared_cluster.dledger("verify", str(snapshot), "--json", code=1)
    (reports / "later.json").write_text(found.stdout)
    expect(audit).to_contain_text("broker-a: 1 finding")
    expect(page.locator("tbody").last).to_contain_text("broker-a/n1")
    assert axe_findings(page) == []


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
    expect(page.locator("#dialog-content .notice.good")).to_contain_text(f"{third} leads broker-a")


def test_when_the_node_that_serves_the_page_dies_it_leads_to_another_one(
    page: Page, cluster: RunningCluster
) -> None:
    served, other = cluster.nodes[:2]
    page.goto(f"{console_of(cluster, served)}topics?find=x")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("kept")
    cluster.kill(served)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#dialog").get_by_role("alert")).to_contain_text("does not answer")
    expect(page.get_by_label("Name")).to_have_value("kept")
    assert axe_findings(page) == []
    page.keyboard.press("Escape")
    silent = page.locator("#silent")
    expect(silent).to_contain_text(f"broker-a/{served} does not answer")
    expect(silent).to_contain_text(re.compile(r"how it was at \d\d:\d\d:\d\d UTC"))
    assert axe_findings(page) == []
    silent.get_by_role("link", name=f"broker-a/{other}").click()
    page.wait_for_url(f"{console_of(cluster, other)}topics?find=x")
    expect(page.locator("header")).to_contain_text(f"served by broker-a/{other}")
    expect(page.locator("#silent")).to_be_hidden()

    cluster.start(served)
    page.goto(f"{console_of(cluster, other)}")
    expect(page.locator(f"#node-broker-a-{served}")).not_to_contain_text("down", timeout=45_000)
