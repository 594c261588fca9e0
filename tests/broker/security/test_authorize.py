"""Permissions, held against a second reading of the rules and against examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.accounts import Account, unpack_account
from broker.security.authorize import (
    ADMINISTER,
    ANONYMOUS,
    CONSUME_ANY,
    DESCRIBE,
    Access,
    Action,
    Caller,
    authorize,
    consume,
    consume_as,
    publish,
)
from broker.security.permissions import (
    Permission,
    PermissionTextError,
    parse_permission,
    parse_permissions,
    permission_text,
    permission_texts,
)

NAMES = st.sampled_from(("orders", "bills", "g1", "g2"))
PERMISSIONS = st.sampled_from((Permission.DENY, Permission.PUB, Permission.SUB, Permission.ANY))
TABLES = st.dictionaries(NAMES, PERMISSIONS, max_size=3)
ACCOUNTS = st.builds(
    Account,
    st.just("ALICE12345"),
    st.binary(max_size=4),
    st.booleans(),
    PERMISSIONS,
    PERMISSIONS,
    TABLES,
    TABLES,
    st.sampled_from(("", "10.0.0.*")),
    st.integers(0, 2**40),
)
ACCESSES = st.one_of(
    st.sampled_from((*DESCRIBE, *CONSUME_ANY, *ADMINISTER)),
    st.builds(publish, NAMES),
    st.builds(consume, NAMES),
    st.builds(consume_as, NAMES),
)


def may(account: Account, access: Access) -> bool:
    """The rules once more, as a table of texts."""
    if access.action is Action.DESCRIBE or account.admin:
        return True
    if access.action is Action.ADMINISTER:
        return False
    if access.action is Action.CONSUME_ANY:
        every = [account.default_topic, *account.topics.values()]
        return all("SUB" in permission_text(each) for each in every)
    if access.group:
        given = dict(account.groups).get(access.group, account.default_group)
        return "SUB" in permission_text(given)
    given = dict(account.topics).get(access.topic, account.default_topic)
    return ("PUB" if access.action is Action.PUBLISH else "SUB") in permission_text(given)


@given(ACCOUNTS, ACCESSES)
def test_an_account_may_what_its_permissions_say(account: Account, access: Access) -> None:
    assert (authorize(Caller("x", account), access) == "") == may(account, access)


@given(ACCESSES)
def test_without_an_account_one_may_nothing_and_trusted_everything(access: Access) -> None:
    assert authorize(ANONYMOUS, access)
    assert authorize(Caller("x", trusted=True), access) == ""


@given(ACCOUNTS)
def test_a_definition_gives_the_account_that_it_was_made_of(account: Account) -> None:
    assert unpack_account("ALICE12345", account.pack()) == account


@given(TABLES)
def test_a_list_of_permissions_is_read_as_it_is_written(table: dict[str, Permission]) -> None:
    assert parse_permissions(",".join(permission_texts(table))) == table


@pytest.mark.parametrize("text", ["", "PUBLISH", "pub", "PUB,SUB", "DENY|PUB"])
def test_other_words_are_no_permission(text: str) -> None:
    with pytest.raises(PermissionTextError):
        parse_permission(text)


@pytest.mark.parametrize("text", ["orders", "=PUB", "orders=", "orders=PUB,bills"])
def test_other_texts_are_no_list_of_permissions(text: str) -> None:
    with pytest.raises(PermissionTextError):
        parse_permissions(text)


def test_retries_and_dead_letters_belong_to_their_group() -> None:
    reader = Account("ALICE12345", b"", groups={"g": Permission.SUB}, default_topic=Permission.DENY)
    for access in (publish("%RETRY%g"), consume("%RETRY%g"), consume("%DLQ%g")):
        assert access == consume_as("g")
        assert not authorize(Caller("x", reader), access)
    assert authorize(Caller("x", reader), consume("%RETRY%h"))
    sender = Account("BOB1234567", b"", default_topic=Permission.ANY)
    assert authorize(Caller("x", sender), publish("%RETRY%g"))
    assert not authorize(Caller("x", sender), publish("%DLQ%g"))  # ingest refuses that to all


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"])
def test_where_the_broker_keeps_messages_of_other_topics_admins_alone_read(topic: str) -> None:
    everything = Account("ALICE12345", b"", default_topic=Permission.ANY)
    assert "not an admin" in authorize(Caller("x", everything), consume(topic))
    admin = Account("ALICE12345", b"", admin=True)
    assert not authorize(Caller("x", admin), consume(topic))
