"""The rows of the page of quotas."""

from __future__ import annotations

from broker.cluster_admin.quotas import GroupQuota
from broker.console.actions.quotas import told
from broker.console.pages.quotas import quota_rows
from broker.quotas.quota import Entity, Quota

CLICKS = Entity("topic", "clicks")
EVERYBODY = Entity("client", "*")
SLOW, FAST = Quota(produce_messages=1000), Quota(produce_messages=2000, consume_bytes=3 << 20)


def test_what_all_groups_have_alike_is_one_row_and_a_change_of_it_names_no_group() -> None:
    found = [GroupQuota(group, CLICKS, SLOW) for group in ("broker-a", "broker-b")]
    (row,) = quota_rows(found, 2)
    assert (row["in"], row["out"], row["group"]) == ("1,000 messages/s", "", "")
    assert row["groups"] == ["broker-a", "broker-b"]
    assert row["fields"] == {"produce_messages": "1000"}


def test_what_groups_have_different_is_changed_for_each() -> None:
    found = [
        GroupQuota("broker-a", CLICKS, SLOW),
        GroupQuota("broker-b", CLICKS, FAST),
        GroupQuota("broker-a", EVERYBODY, FAST),
    ]
    assert [(row["type"], row["group"], row["each"]) for row in quota_rows(found, 2)] == [
        ("client", "broker-a", True),
        ("topic", "broker-a", False),
        ("topic", "broker-b", False),
    ]


def test_a_quota_is_told_in_words() -> None:
    assert told(FAST) == "in 2,000 messages/s; out 3.0 MiB/s"
    assert told(Quota()) == "no quota"
