"""The world of accounts: what its check allows, and that its clients try both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.security.credentials import Credentials
from simulator.invariants.broker.access_decisions import FIRST_ADMIN, may
from simulator.workload.account_requests import ADMIN, AccountRequest
from simulator.worlds.accounts import Accounts
from simulator.worlds.registry import ACCOUNTS, Run
from simulator.worlds.runner import play

WRITER = replace(FIRST_ADMIN, secret_key=b"writer-secret", admin=False, topics=(("wages", 1),))
TABLE = {"writer-1": WRITER}
KEYS = Credentials("writer-1", "writer-secret")


def request(
    code: int, ext: dict[str, str], keys: Credentials | None = KEYS, ip: str = "10.0.0.1"
) -> AccountRequest:
    signed = ext if keys is None else keys.sign(ext, (b"body",))
    return AccountRequest(0, "c0", ip, "n0", code, signed, b"body")


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (request(310, {"b": "wages"}), True),
        (request(10, {"topic": "wages"}), True),
        (request(310, {"b": "ledgers"}), False),
        (request(11, {"topic": "wages", "consumerGroup": "clerks"}), False),
        (request(351, {"topic": "ledgers"}), True),
        (request(17, {"topic": "new"}), False),
        (request(17, {"topic": "new"}, ADMIN), False),
        (request(310, {"b": "wages"}, Credentials("writer-1", "other-secret")), False),
        (request(310, {"b": "wages"}, Credentials("nobody-1", "writer-secret")), False),
        (request(310, {"b": "wages"}, None), False),
        (request(310, {"b": "wages", "AccessKey": "writer-1"}, None), False),
    ],
)
def test_the_check_allows_what_the_page_says(asked: AccountRequest, allowed: bool) -> None:
    assert may(asked, TABLE) is allowed


def test_the_first_admin_counts_by_its_file_until_there_is_an_account() -> None:
    assert may(request(17, {"topic": "new"}, ADMIN), {})


def test_an_address_in_the_white_list_needs_no_signature_and_has_the_permissions() -> None:
    table = {"writer-1": replace(WRITER, white_address="10.0.0.7")}
    for topic, ip, allowed in (
        ("wages", "10.0.0.7", True),
        ("wages", "10.0.0.8", False),
        ("ledgers", "10.0.0.7", False),
    ):
        asked = request(310, {"b": topic, "AccessKey": "writer-1"}, None, ip)
        assert may(asked, table) is allowed


def test_browsing_needs_the_topic_and_consuming_the_group_too() -> None:
    table = {"writer-1": replace(WRITER, topics=(("wages", 2),))}
    for topic, group, allowed in (("wages", "", True), ("wages", "g", False), ("x", "", False)):
        asked = request(11, {"topic": topic, "consumerGroup": group})
        assert may(asked, table) is allowed


def test_a_body_or_a_field_that_was_changed_is_not_signed() -> None:
    asked = request(310, {"b": "wages", "e": "0"})
    assert may(asked, TABLE)
    asked.body = b"other"
    assert not may(asked, TABLE)
    asked.body, asked.ext = b"body", {**asked.ext, "e": "1"}
    assert not may(asked, TABLE)


def test_a_run_stores_messages_of_accounts_and_refuses_others() -> None:
    cluster = Run(2, world=ACCOUNTS, seconds=6.0).cluster()
    outcome = play(cluster, lambda made: made.run(6.0))
    decisions = cluster.workload(Accounts).decisions
    assert outcome.violation is None
    assert decisions.stored > 5
    assert decisions.refused > 5
