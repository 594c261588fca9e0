"""The console of a cluster with access control."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.cluster.running_cluster import RunningCluster, secured_cluster
from tests.console.browsers import asked, axe_findings
from tests.console.conftest import console_of

__all__ = ["secured_cluster"]


def test_who_has_no_session_logs_in_and_sees_what_the_account_may(
    secured_cluster: RunningCluster, page: Page
) -> None:
    cluster = secured_cluster
    cluster.dledger("topic", "create", "secret", "--queues", "1")
    cluster.dledger("produce", "secret", stdin="whisper\n")
    profile = cluster.directory / "reader.toml"
    cluster.dledger(
        "security", "user", "add", "reader-1", "--topic", "other=SUB", "--out", str(profile)
    )
    keys = dict(line.split(" = ") for line in profile.read_text().splitlines() if " = " in line)
    address = console_of(cluster, "n0", "https")

    page.goto(f"{address}topics")
    page.get_by_label("Access key").fill("reader-1")
    page.get_by_label("Secret key").fill("wrong-secret")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("There is no account with these keys.")
    assert axe_findings(page) == []
    page.get_by_label("Access key").fill("reader-1")
    page.get_by_label("Secret key").fill(keys["secret_key"].strip('"'))
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".health")).to_contain_text("Can lose 1 more node")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", True)

    page.goto(f"{address}messages?topic=secret")
    expect(page.get_by_role("alert")).to_contain_text("reader-1")
    page.goto(f"{address}topics/secret")
    page.get_by_role("button", name="Delete").click()
    asked(page)
    page.locator("#dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("#dialog").get_by_role("alert")).to_contain_text("not an admin")
    assert "secret" in cluster.ask("topic", "list")["topics"]
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Access key")).to_be_visible()
    page.goto(address)
    expect(page.get_by_label("Access key")).to_be_visible()
