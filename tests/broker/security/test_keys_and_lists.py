"""Sealed keys, tokens, white lists and profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.security.accounts import AccountError, check_access_key, check_secret_key
from broker.security.cluster_secrets import (
    ClusterSecretError,
    SealedKeyError,
    parse_cluster_secrets,
    read_cluster_secrets,
)
from broker.security.credentials import (
    ClientSecurity,
    Credentials,
    CredentialsError,
    read_profile,
    security_from,
)
from broker.security.key_sealing import KeySealer
from broker.security.tokens import TokenError, make_token, read_token
from broker.security.white_list import WhiteListError, matches, split_white_list

OLD, NEW = b"\x01" * 32, b"\x02" * 32


# --- keys at rest


def test_a_sealed_key_is_opened_by_its_secret_and_shows_nothing() -> None:
    sealed = KeySealer([OLD]).seal("ALICE12345", "alice-secret")
    assert b"alice" not in sealed
    assert sealed != KeySealer([OLD]).seal("ALICE12345", "alice-secret")
    assert KeySealer([OLD]).open("ALICE12345", sealed) == b"alice-secret"


def test_a_new_secret_beside_the_old_one_opens_what_the_old_one_sealed() -> None:
    sealed = KeySealer([OLD]).seal("ALICE12345", "alice-secret")
    both = KeySealer([NEW, OLD])
    assert both.open("ALICE12345", sealed) == b"alice-secret"
    again = both.seal("ALICE12345", "alice-secret")
    assert KeySealer([NEW]).open("ALICE12345", again) == b"alice-secret"


def test_a_sealed_key_is_of_no_other_account_secret_or_bytes() -> None:
    sealed = KeySealer([OLD]).seal("ALICE12345", "alice-secret")
    flipped = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for sealer, name, data in (
        (KeySealer([NEW]), "ALICE12345", sealed),
        (KeySealer([OLD]), "MALLORY123", sealed),
        (KeySealer([OLD]), "ALICE12345", flipped),
        (KeySealer([OLD]), "ALICE12345", b""),
        (KeySealer([OLD]), "ALICE12345", b"\x02" + sealed[1:]),
    ):
        with pytest.raises(SealedKeyError):
            sealer.open(name, data)


@pytest.mark.parametrize("text", ["", "00" * 31, "zz" * 32, "00" * 32 + "\nsecret"])
def test_what_is_no_secret_is_refused(text: str) -> None:
    with pytest.raises(ClusterSecretError):
        parse_cluster_secrets(text)


def test_each_line_of_the_file_is_a_secret() -> None:
    assert parse_cluster_secrets(f"{NEW.hex()}\n{OLD.hex()}\n") == (NEW, OLD)


# --- tokens


def test_a_token_counts_until_it_expires() -> None:
    token = read_token(make_token("ALICE12345", "alice-secret", 1000))
    token.check(b"alice-secret", 999)
    with pytest.raises(TokenError, match="expired"):
        token.check(b"alice-secret", 1000)
    with pytest.raises(TokenError, match="not of that account"):
        token.check(b"other-secret", 999)


def test_a_token_that_was_changed_does_not_count() -> None:
    name, _, mac = make_token("ALICE12345", "alice-secret", 1000).split(".")
    later = read_token(f"{name}.9999.{mac}")
    with pytest.raises(TokenError, match="not of that account"):
        later.check(b"alice-secret", 1)


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "!.5.a", "a.5.b", "a" * 500, "\u00e4.5.b"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TokenError):
        read_token(text)


# --- white lists


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", "10.0.0.1", None),
        ("10.0.0.1", "10.0.0.1", "10.0.0.11"),
        ("10.0.0.*", "10.0.0.200", "10.0.1.1"),
        ("10.0.*.*", "10.0.9.1", "10.1.0.1"),
        ("10.0.0.5-9", "10.0.0.7", "10.0.0.10"),
        ("10.0.1-3.*", "10.0.2.8", "10.0.4.8"),
        ("10.0.0.{1,7}", "10.0.0.7", "10.0.0.2"),
        ("::1", "::1", "::2"),
    ],
)
def test_a_pattern_matches_its_addresses(pattern: str, inside: str, outside: str | None) -> None:
    assert split_white_list(pattern) == [pattern]
    assert matches(pattern, inside)
    assert outside is None or not matches(pattern, outside)
    assert matches(pattern, "host") == (pattern == "*")


def test_commas_separate_patterns_but_in_sets() -> None:
    assert split_white_list("10.0.0.{1,2}, 10.0.1.*,") == ["10.0.0.{1,2}", "10.0.1.*"]


@pytest.mark.parametrize("text", ["10.0.0", "10.0.0.x", "10.{1,2}.0.1", "a.b.c.d", "*,10.0.0.1/8"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(WhiteListError):
        split_white_list(text)
    assert not matches(text.rpartition(",")[2], "10.0.0.1")


# --- names and profiles


@pytest.mark.parametrize("name", ["short", "with space", "with:colon", "\u00fcmlaute12", "a" * 129])
def test_an_access_key_is_long_and_plain(name: str) -> None:
    with pytest.raises(AccountError):
        check_access_key(name)


def test_a_refused_secret_key_is_not_repeated() -> None:
    with pytest.raises(AccountError) as refused:
        check_secret_key("my secret")
    assert "my secret" not in str(refused.value)


def profile(directory: Path, text: str) -> str:
    path = directory / "admin.toml"
    path.write_text(text)
    return str(path)


def test_a_profile_and_the_environment_say_who_a_client_is(tmp_path: Path) -> None:
    path = profile(
        tmp_path, 'access_key = "ALICE12345"\nsecret_key = "alice-secret"\nca = "ca.pem"\n'
    )
    alice = ClientSecurity(Credentials("ALICE12345", "alice-secret"), str(tmp_path / "ca.pem"))
    assert read_profile(path) == alice
    assert security_from({"DLEDGER_PROFILE": path}) == alice
    changed = security_from(
        {
            "DLEDGER_PROFILE": path,
            "DLEDGER_ACCESS_KEY": "BOB1234567",
            "DLEDGER_SECRET_KEY": "bob-secret",
            "DLEDGER_CA": "/other.pem",
        }
    )
    assert changed == ClientSecurity(Credentials("BOB1234567", "bob-secret"), "/other.pem")
    assert security_from({}) == ClientSecurity()


@pytest.mark.parametrize(
    "text",
    [
        'secret_key = "my secret"',
        'access_key = "ALICE12345"',
        'access_key = "ALICE12345"\nsecret_key = "alice-secret"\nport = 5',
        'secret_key = "alice-secret',
        "secret_key = 12345678",
    ],
)
def test_a_profile_that_cannot_be_used_is_named_and_its_key_is_not(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(CredentialsError) as refused:
        read_profile(profile(tmp_path, text))
    assert "admin.toml" in str(refused.value)
    assert "secret_key = " not in str(refused.value)
    assert "12345678" not in str(refused.value)


def test_the_files_of_a_cluster_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "cluster-secret"
    with pytest.raises(ClusterSecretError, match="cannot be read"):
        read_cluster_secrets(str(secret), str(tmp_path / "admin.toml"))
    secret.write_text(NEW.hex() + "\n")
    assert read_cluster_secrets(str(secret), str(tmp_path / "none.toml")).admin is None
    path = profile(tmp_path, 'access_key = "ALICE12345"\nsecret_key = "alice-secret"\n')
    found = read_cluster_secrets(str(secret), path)
    assert found.admin == Credentials("ALICE12345", "alice-secret")
    assert NEW.hex() not in repr(found)
    signed = found.credentials().sign({"brokerName": "b"}, (b"x",))
    assert found.signs(signed, b"x")
    assert not found.signs(signed, b"y")
