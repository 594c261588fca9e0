"""What an operator changes in the console: each time it asks first and shows the command."""

from __future__ import annotations

import re
import shlex

from playwright.sync_api import Page, expect

from tests.cluster.running_cluster import RunningCluster
from tests.console.browsers import asked, confirm

ALL = ("--from", "earliest", "--count", "30")


def command(page: Page) -> list[str]:
    return shlex.split(page.locator("#dialog pre.command").inner_text())


def test_a_topic_is_created_filled_looked_at_and_deleted(
    page: Page, address: str, shared_cluster: RunningCluster
) -> None:
    page.goto(f"{address}topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("fruit")
    page.get_by_label("Queues").fill("3")
    page.get_by_role("button", name="Next").click()
    assert asked(page) == "Create the topic fruit with 3 queues on 1 broker group?"
    assert command(page)[:6] == ["dledger", "topic", "create", "fruit", "--queues", "3"]
    assert "fruit" not in shared_cluster.ask("topic", "list")["topics"], "nothing is done yet"
    assert confirm(page, "Create") == "fruit is created with 3 queues on each broker group."
    page.get_by_role("button", name="Close").click()
    page.get_by_role("link", name="fruit", exact=True).click()

    page.get_by_role("button", name="Send a test message").click()
    page.get_by_label("Body", exact=True).fill('{"kind": "apple"}')
    page.get_by_label("Keys").fill("k1")
    page.get_by_label("Properties").fill("size=big")
    page.get_by_label("Queue", exact=False).last.fill("1")
    page.get_by_role("button", name="Next").click()
    asked(page)
    shown = page.locator("#dialog pre.command").inner_text()
    assert shown.startswith(
        "printf '%s\\n' '{\"kind\": \"apple\"}' | dledger produce fruit --key k1"
    )
    assert "--property size=big --queue 1" in shown
    assert confirm(page, "Send").startswith("Stored in broker-a, queue 1, offset 0")
    page.get_by_role("button", name="Close").click()

    looked = shared_cluster.ask("consume", "fruit")
    assert (looked["body"], looked["keys"]) == ('{"kind": "apple"}', ["k1"])
    page.goto(f"{address}messages?topic=fruit&by=key&key=k1")
    page.locator("tbody th a").click()
    expect(page.locator("pre.body")).to_have_text('{\n  "kind": "apple"\n}')
    page.get_by_role("link", name="Hex").click()
    expect(page.locator("pre.body")).to_contain_text("7b 22 6b 69 6e 64")
    page.get_by_role("link", name="Text").click()
    expect(page.locator("pre.body")).to_have_text('{"kind": "apple"}')
    expect(page.locator("main")).to_contain_text("size")

    page.goto(f"{address}topics/fruit")
    page.get_by_role("button", name="Delete").click()
    assert asked(page) == "Delete the topic fruit and its 1 message?"
    page.get_by_role("button", name="Cancel").click()
    assert "fruit" in shared_cluster.ask("topic", "list")["topics"]
    page.get_by_role("button", name="Delete").click()
    asked(page)
    assert confirm(page, "Delete").startswith("fruit is deleted on ")
    page.get_by_role("link", name="Close").click()
    page.wait_for_url("**/topics")
    assert "fruit" not in shared_cluster.ask("topic", "list")["topics"]


def test_messages_are_found_by_queue_offset_time_key_and_id(
    page: Page, address: str, shared_cluster: RunningCluster
) -> None:
    shared_cluster.dledger("topic", "create", "found", "--queues", "1")
    shared_cluster.dledger("produce", "found", "--key", "same", stdin="one\ntwo\nthree\n")
    first = shared_cluster.ask("consume", "found")[0]
    bodies = page.locator("tbody td.mono")

    def look(query: str) -> list[str]:
        page.goto(f"{address}messages?topic=found&{query}")
        return bodies.all_inner_texts()

    assert look("by=latest") == ["three", "two", "one"]
    assert look("by=latest&count=20&queue=0") == ["three", "two", "one"]
    assert look("by=offset&offset=1") == ["two", "three"]
    assert look("by=time&time=1h") == ["one", "two", "three"]
    assert look("by=time&time=2100-01-01") == []
    assert sorted(look("by=key&key=same")) == ["one", "three", "two"]
    assert look(f"by=id&id={first['msg_id']}") == ["one"]
    assert look(f"by=id&id={first['unique_key']}") == ["one"]
    assert look("by=offset&offset=x") == []
    expect(page.get_by_role("alert")).to_contain_text("offset is 'x'")


def test_a_group_is_moved_after_a_preview(
    page: Page, address: str, shared_cluster: RunningCluster
) -> None:
    shared_cluster.dledger("topic", "create", "moved", "--queues", "1")
    shared_cluster.dledger("produce", "moved", stdin="".join(f"{n}\n" for n in range(30)))
    shared_cluster.dledger("consume", "moved", "--group", "movers", *ALL)
    page.goto(f"{address}groups/movers")
    page.get_by_role("button", name="Move in this topic").click()
    page.get_by_label("To", exact=False).last.fill("earliest")
    page.get_by_role("button", name="Next").click()
    assert asked(page) == "Move the group movers in moved to earliest?"
    row = page.locator("#dialog tbody tr")
    assert row.locator("td").all_inner_texts() == ["broker-a", "0", "30", "0", "-30"]
    expect(page.locator("#dialog")).to_contain_text("30 messages will be consumed again")
    assert shared_cluster.ask("group", "describe", "movers")["lag"] == 0, "nothing moves yet"
    assert command(page)[1:7] == ["group", "reset-offset", "movers", "--topic", "moved", "--to"]
    assert confirm(page, "Move") == "movers is moved in 1 queue of moved."
    assert shared_cluster.ask("group", "describe", "movers")["lag"] == 30
    page.get_by_role("button", name="Close").click()
    expect(page.locator(".figure").first).to_contain_text("30")


def test_dead_letters_are_looked_at_sent_again_and_deleted(
    page: Page, address: str, shared_cluster: RunningCluster
) -> None:
    shared_cluster.dledger("topic", "create", "%DLQ%losers", "--queues", "1")
    shared_cluster.dledger("group", "create", "losers")
    shared_cluster.dledger("produce", "%DLQ%losers", "--batch", "1", stdin="lost\nforlorn\n")
    page.goto(f"{address}dead")
    page.get_by_role("link", name="losers").click()
    rows = page.locator("tbody tr")
    assert rows.locator("td.mono").all_inner_texts() == ["forlorn", "lost"]
    rows.last.get_by_role("button", name="Send again").click()
    page.get_by_role("button", name="Next").click()
    assert asked(page) == "Send 1 dead letter to the group losers alone?"
    assert command(page)[1:5] == ["dlq", "resend", "losers", "--id"]
    assert confirm(page, "Send again") == "1 message sent to %RETRY%losers."
    page.get_by_role("button", name="Close").click()
    assert shared_cluster.ask("consume", "%RETRY%losers")["body"] == "lost"

    page.get_by_role("button", name="Delete all").click()
    assert asked(page) == "Delete 2 dead letters of losers?"
    confirm(page, "Delete")
    page.get_by_role("link", name="Close").click()
    page.wait_for_url("**/dead")
    assert shared_cluster.ask("dlq", "list")["groups"] == []


def test_a_quota_is_set_changed_and_taken_away(
    page: Page, address: str, shared_cluster: RunningCluster
) -> None:
    page.goto(f"{address}quotas")
    expect(page.locator("main")).to_contain_text("No quota")
    page.get_by_role("button", name="Set a quota").click()
    page.get_by_label("Name").fill("clicks")
    page.get_by_label("Bytes sent in a second").fill("much")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#dialog").get_by_role("alert")).to_contain_text("such as 65536, 64KiB")
    page.get_by_label("Bytes sent in a second").fill("1MiB")
    page.get_by_role("button", name="Next").click()
    assert asked(page) == "Set the quota of topic clicks?"
    row = page.locator("#dialog tbody tr td")
    assert row.all_inner_texts() == ["broker-a", "no quota", "in 1.0 MiB/s"]
    set_it = ["dledger", "quota", "set", "topic", "clicks"]
    assert command(page)[:7] == [*set_it, "--produce-bytes", "1MiB"]
    assert shared_cluster.ask("quota", "list")["quotas"] == [], "nothing is done yet"
    assert confirm(page, "Set") == "topic clicks: in 1.0 MiB/s, on broker-a."
    page.get_by_role("button", name="Close").click()

    limited = page.locator("#quota-topic-clicks-")
    expect(limited.locator("td").first).to_have_text("in 1.0 MiB/s")
    limited.get_by_role("button", name="Change").click()
    assert page.get_by_label("Bytes sent in a second").input_value() == "1048576"
    page.get_by_label("Messages given out in a second").fill("500")
    page.get_by_role("button", name="Next").click()
    assert asked(page) == "Set the quota of topic clicks?"
    confirm(page, "Set")
    (told,) = shared_cluster.ask("quota", "list")["quotas"]
    assert (told["produce_bytes"], told["consume_messages"]) == (1 << 20, 500)
    page.get_by_role("button", name="Close").click()

    limited.get_by_role("button", name="Take away").click()
    assert asked(page) == "Take the quota of topic clicks away?"
    assert command(page)[:5] == ["dledger", "quota", "unset", "topic", "clicks"]
    assert confirm(page, "Take it away") == "topic clicks has no quota any more on broker-a."
    page.get_by_role("button", name="Close").click()
    expect(page.locator("main")).to_contain_text("No quota")
    assert shared_cluster.ask("quota", "list")["quotas"] == []


def test_a_mistake_is_told_beside_what_was_filled_in(page: Page, address: str) -> None:
    page.goto(f"{address}topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("a b")
    page.get_by_label("Queues").fill("2")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#dialog").get_by_role("alert")).to_be_visible()
    assert page.get_by_label("Name").input_value() == "a b"
    page.get_by_label("Name").fill("ab")
    page.get_by_label("Queues").fill("99999999")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#dialog").get_by_role("alert")).to_contain_text("it may be 1 to")
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Create a topic")).to_be_focused()


def test_what_waits_is_shown(page: Page, address: str, shared_cluster: RunningCluster) -> None:
    shared_cluster.dledger("topic", "create", "late", "--queues", "1")
    shared_cluster.dledger("produce", "late", "--delay-level", "18", stdin="in two hours\n")
    shared_cluster.dledger("produce", "late", "--deliver-at", "3h", stdin="in three\n")
    page.goto(f"{address}waiting")
    rows = page.locator("tbody tr")
    expect(rows).to_have_text(
        [
            re.compile(r"^2 h \(level 18\)\s*1\s*2 h$"),
            re.compile(r"^until a time of its own\s*1\s*3 h$"),
        ]
    )
