"""The section ``[security]``, and the refusal to listen for others without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.config.config_text import node_toml as toml_of
from broker.config.name_server_config import NameServerConfig
from broker.config.security_config import SECURITY_OFF, SecurityConfig
from broker.config.setting_checks import ConfigError
from tests.support.config_text import parse_config, parse_name_server_config

LOCAL = """
group = "broker-a"
node = "n0"
namesrv = ["127.0.0.1:9876"]
{line}
[members.n0]
peer = "127.0.0.1:10915"
address = "{address}"
http = "127.0.0.1:8080"
"""


def node_toml(line: str = "", address: str = "127.0.0.1:10911") -> str:
    return LOCAL.format(line=line, address=address)


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "/etc/dledger")
    return str(caught.value)


def test_without_the_section_all_is_off() -> None:
    assert parse_config(node_toml(), "/d").security == SECURITY_OFF
    assert parse_name_server_config("", "/d").security == SECURITY_OFF
    assert not SECURITY_OFF.protects


def test_an_empty_section_protects_and_lies_beside_the_file() -> None:
    expected = SecurityConfig(
        directory="/etc/dledger/security",
        peers="enforcing",
        tls="permissive",
        access_control="enforcing",
    )
    assert parse_config(node_toml("[security]"), "/etc/dledger").security == expected
    assert parse_name_server_config("[security]", "/etc/dledger").security == expected
    assert expected.files.certificate("broker-a/n0") == "/etc/dledger/security/broker-a-n0.pem"
    assert expected.files.key("namesrv") == "/etc/dledger/security/namesrv-key.pem"


def test_what_is_written_reads_the_same() -> None:
    text = node_toml('[security]\ndirectory = "/s"\ntls = "disabled"', "10.0.0.1:10911")
    config = parse_config(text, "/d")
    assert parse_config(toml_of(config), "/d") == config
    assert "[security]" not in toml_of(replace(config, security=SECURITY_OFF))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("security = 1", "security: must be a table, not 1"),
        ("[security]\npers = 'off'", "security.pers: is not a setting; did you mean peers?"),
        ("[security]\npeers = true", "security.peers: must be a string, not True"),
        (
            "[security]\npeers = 'on'",
            'security.peers: \'on\' is not allowed; it may be "off", "permissive" or "enforcing"',
        ),
        ("[security]\ntls = 'off'", "security.tls: 'off' is not allowed; it may be \"disabled\""),
        ('[security]\ndirectory = "a\\u0000"', "security.directory: "),
        ("insecure = 1", "insecure: must be true or false, not 1"),
    ],
)
def test_a_bad_setting_is_named_with_what_it_may_be(line: str, said: str) -> None:
    assert said in complaint(node_toml(line))
    with pytest.raises(ConfigError) as caught:
        parse_name_server_config(line, "/d")
    assert said in str(caught.value)


ALL_OFF = '[security]\npeers = "off"\ntls = "disabled"\naccess_control = "off"'


TLS_ALONE = '[security]\npeers = "off"\ntls = "enforcing"\naccess_control = "off"'


PEERS_ALONE = '[security]\ntls = "enforcing"\naccess_control = "off"'


@pytest.mark.parametrize("line", ["", ALL_OFF, TLS_ALONE, PEERS_ALONE])
def test_a_port_that_others_reach_is_refused_in_one_line_that_says_what_to_add(line: str) -> None:
    told = complaint(node_toml(line, "10.0.0.1:10911"))
    number = 8 + line.count("\n")
    assert told.startswith(f"line {number}: members.n0.address: other machines reach 10.0.0.1:")
    assert "[security]" in told
    assert "dledger security init" in told
    assert "insecure = true" in told
    assert told.isprintable()


def test_a_port_that_others_reach_is_allowed_with_the_section_or_if_it_shall_be_insecure() -> None:
    address = "10.0.0.1:10911"
    assert not parse_config(node_toml("[security]", address), "/d").exposed
    insecure = parse_config(node_toml("insecure = true", address), "/d")
    assert insecure.exposed
    assert parse_config(toml_of(insecure), "/d").insecure
    assert not parse_config(node_toml("insecure = true"), "/d").exposed


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "broker.example.com"])  # noqa: S104 - read, not bound
def test_a_name_server_refuses_to_listen_for_others_without_the_section(host: str) -> None:
    with pytest.raises(ConfigError, match=r"host: other machines reach .*\[security\]"):
        parse_name_server_config(f'host = "{host}"', "/d")
    assert parse_name_server_config(f'host = "{host}"\ninsecure = true', "/d").exposed
    assert not parse_name_server_config(f'host = "{host}"\n[security]', "/d").exposed
    with pytest.raises(ConfigError, match="other machines reach"):
        parse_name_server_config(f'host = "{host}"\n{TLS_ALONE}', "/d")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_a_name_server_that_only_this_machine_reaches_needs_no_section(host: str) -> None:
    config = parse_name_server_config(f'host = "{host}"\nport = 0', "/d")
    assert config == NameServerConfig(host=host, port=0)
