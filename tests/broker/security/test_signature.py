"""RocketMQ's signature. The vectors are by ``openssl dgst -sha1 -hmac KEY -binary | base64`` over
bytes that were written out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.credentials import Credentials
from broker.security.signature import SIGNATURE, is_signed_by, signature_of, signed_text

KEY = b"alice-secret"
FIELDS: dict[str, object] = {
    "topic": "TopicTest",
    "AccessKey": "ALICE12345",
    "brokerCluster": "DefaultCluster",
    "queueId": "3",
}
SIGNED = b"07C4zUDiqj1CeeXsq6qKFxFJII0="

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def test_values_in_the_order_of_their_names_and_the_body_are_signed() -> None:
    assert signature_of(KEY, FIELDS, (b"Hello ", b"RocketMQ")) == SIGNED


def test_numbers_and_truth_values_are_signed_as_java_writes_them() -> None:
    fields = {"AccessKey": "ALICE12345", "0": None, "a": "\u00fc", "b": 5, "c": True}
    assert signature_of(KEY, fields, ()) == b"+UsEkqyzSe19GLMy7LDy5tk9ma4="


def test_the_signature_and_what_clients_add_behind_it_are_not_signed() -> None:
    added = FIELDS | {SIGNATURE: "x", "_UNIQUE_KEY_QUERY": "true"}
    assert signed_text(added) == signed_text(FIELDS) == "ALICE12345DefaultCluster3TopicTest"


@pytest.mark.parametrize(
    "changed",
    [
        {"topic": "TopicTesu"},
        {"queueId": "33"},
        {"more": "1"},
        {SIGNATURE: "07C4zUDiqj1CeeXsq6qKFxFJII0"},
        {SIGNATURE: None},
        {SIGNATURE: 5},
        {SIGNATURE: "\ud800"},
        {"topic": "\ud800"},
    ],
)
def test_a_request_that_was_changed_is_not_signed(changed: dict[str, object]) -> None:
    whole = FIELDS | {SIGNATURE: SIGNED.decode()}
    assert is_signed_by(KEY, whole, b"Hello RocketMQ")
    assert not is_signed_by(KEY, whole | changed, b"Hello RocketMQ")


def test_another_key_or_body_is_not_right() -> None:
    whole = FIELDS | {SIGNATURE: SIGNED.decode()}
    assert not is_signed_by(b"alice-secres", whole, b"Hello RocketMQ")
    assert not is_signed_by(KEY, whole, b"Hello RocketMq")


@given(st.dictionaries(texts, texts, max_size=6), st.binary(max_size=50))
def test_what_a_client_signs_is_right_for_its_key_alone(ext: dict[str, str], body: bytes) -> None:
    signed = Credentials("ALICE12345", "alice-secret").sign(ext, (body,))
    assert is_signed_by(KEY, signed, body)
    assert not is_signed_by(b"another-secret", signed, body)


def test_a_key_is_in_no_text_that_is_printed() -> None:
    assert "alice-secret" not in repr(Credentials("ALICE12345", "alice-secret"))
