"""``node.toml``: what is accepted, and the one line that says what is wrong."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.config_file import EXPOSED_NODE, load_text, read_config
from broker.config.config_text import node_toml
from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from broker.config.setting_checks import ConfigError
from broker.config.toml_text import CONFIG_SIZE_MAX
from dledger.wire.endpoint import Endpoint
from tests.support.config_text import parse_config
from tests.support.odd_files import make_odd_file
from tests.support.search_effort import sample

GOOD = """
group = "broker-a"
node = "n1"
namesrv = ["127.0.0.1:9876"]

[members.n0]
peer = "127.0.0.1:10915"
address = "127.0.0.1:10911"
http = "127.0.0.1:8080"

[members.n1]
peer = "127.0.0.1:10925"
address = "127.0.0.1:10921"
http = "127.0.0.1:8081"
"""


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "/data")
    return str(caught.value)


def test_lists_are_read_as_they_are_written() -> None:
    given = replace(parse_config(GOOD, "/data"), http_hosts=("a.b", "c"), snapshot_dirs=("/d",))
    assert parse_config(node_toml(given), "/data") == given


def test_what_is_left_out_has_its_default() -> None:
    config = parse_config(GOOD, "/data")

    assert config.cluster == "DefaultCluster"
    assert config.flush == "sync"
    assert config.data == "/data"
    assert config.auto_create_topics is True


def test_a_file_that_is_far_too_long_is_not_read() -> None:
    assert "at most 65536 are allowed" in complaint("a." * CONFIG_SIZE_MAX + "b = 1")
    assert "line 1 has 20000 dots, at most 500 are allowed" in complaint("a." * 20_000 + "b = 1")


def test_a_node_knows_its_own_addresses_and_the_peers_of_the_others() -> None:
    config = parse_config(GOOD, "/data")

    assert config.name == "broker-a/n1"
    assert config.own.address == Endpoint("127.0.0.1", 10921)
    assert config.peers == {"n0": "127.0.0.1:10915"}
    assert config.follower_broker_id == 2


def test_what_is_written_reads_the_same_wherever_the_directory_was_moved() -> None:
    config = parse_config(GOOD, "/data")

    assert parse_config(node_toml(config), "/elsewhere") == replace(config, data="/elsewhere")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('flsh = "sync"', "flsh: is not a setting; did you mean flush?"),
        ("flush = 1", "flush: must be a string, not 1"),
        ('flush = "never"', 'flush: \'never\' is not allowed; it may be "sync" or "async"'),
        ("segment_size = true", "segment_size: must be an integer, not True"),
        ("segment_size = 10", "segment_size: 10 is not allowed"),
        ("auto_create_topics = 1", "auto_create_topics: must be true or false, not 1"),
        ("heartbeat_ms = 150", "heartbeat_ms: 150 is not allowed; it may be from 1 to 149"),
        ("max_message_size = 0", "max_message_size: 0 is not allowed"),
        ('cluster = "a b"', "cluster: 'a b' is not allowed"),
        ('http_hosts = "a"', "http_hosts: must be a list, not 'a'"),
        ("http_hosts = [1]", "http_hosts: each: must be a string, not 1"),
        ('http_hosts = ["a:80"]', "http_hosts: 'a:80' is not allowed; it may be a name without"),
        ('http_hosts = [""]', "http_hosts: '' is not allowed"),
        ('snapshot_dirs = ["backup"]', "snapshot_dirs: 'backup' is not allowed; it may be the abs"),
        ('snapshot_dirs = ["/"]', "snapshot_dirs: '/' is not allowed"),
        ('snapshot_dirs = ["/a\\u0000"]', "snapshot_dirs: '/a\\x00' is not allowed"),
    ],
)
def test_a_bad_setting_is_named_with_what_it_may_be(line: str, said: str) -> None:
    assert said in complaint(line + GOOD)


@pytest.mark.parametrize(
    ("lines", "timeout_ms"),
    [
        ("", 300),
        ("lease_reads = true", 600),
        ("lease_reads = true\nelection_timeout_ms = 450", 450),
    ],
)
def test_with_leases_the_election_timeout_is_that_of_earlier_programs(
    lines: str, timeout_ms: int
) -> None:
    text = lines + "\n" + GOOD
    assert parse_config(text, "/data").election_timeout_ms == timeout_ms
    shown = {key: value for key, value, _ in load_text(EXPOSED_NODE, text, "/data").effective()}
    assert shown["election_timeout_ms"] == timeout_ms


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('node = "n1"', "", "node: is missing"),
        ('node = "n1"', 'node = "first"', "node: 'first' is not allowed; it may be n0, n1"),
        ('node = "n1"', 'node = "n7"', "members: n7 itself is missing from ['n0', 'n1']"),
        ('["127.0.0.1:9876"]', "[]", "namesrv: at least one NameServer is needed"),
        ('["127.0.0.1:9876"]', "[9876]", "namesrv: must be a string, not 9876"),
        ('["127.0.0.1:9876"]', '["::1:9876"]', "an IPv6 address stands in brackets"),
        ('"127.0.0.1:9876"', '"127.0.0.1"', "'127.0.0.1' is not host:port"),
        ("127.0.0.1:10921", "127.0.0.1:70000", "members.n1.address: '127.0.0.1:70000' is not"),
        ("127.0.0.1:10921", "127.0.0.1:8080", "127.0.0.1:8080 is members.n0.http already"),
        ('http = "127.0.0.1:8081"', "", "members.n1.http: is missing"),
        (
            'http = "127.0.0.1:8081"',
            "htp = 1",
            "members.n1.htp: is not a setting; did you mean http?",
        ),
        ("[members.n1]", "[members.x]", "members.x: 'x' is not allowed"),
    ],
)
def test_a_bad_member_or_name_is_named(old: str, new: str, said: str) -> None:
    assert said in complaint(GOOD.replace(old, new, 1))


def test_the_vip_port_is_two_below_the_clients_port() -> None:
    assert parse_config(GOOD, "/data").vip_address is None
    given = parse_config("vip_port = true\n" + GOOD, "/data")
    assert str(given.vip_address) == "127.0.0.1:10919"
    assert parse_config(node_toml(given), "/data") == given


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:10917", "vip_port: 127.0.0.1:10915 is members.n0.peer already"),
        ("127.0.0.1:2", "vip_port: there is no port 2 below the broker's"),
    ],
)
def test_a_vip_port_that_cannot_be_is_refused(address: str, said: str) -> None:
    assert said in complaint("vip_port = true\n" + GOOD.replace("127.0.0.1:10921", address))


def test_a_file_that_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("group = broker-a\n")

    with pytest.raises(ConfigError, match=r"node\.toml: is not TOML: .*line 1"):
        read_config(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"node\.toml: cannot be read: No such file"):
        read_config(str(tmp_path / "node.toml"))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("fifo", "cannot be read: it is not a regular file"),
        ("directory", "cannot be read: Is a directory"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("huge", "cannot be read: it is longer than 65536 bytes"),
        ("bytes", "is not TOML: 'utf-8' codec can't decode"),
        ("digits", "is not TOML: "),
        ("empty", "group: is missing"),
        ("nested", "is nested too deeply"),
    ],
)
def test_what_is_no_file_of_settings_is_told_in_a_line(
    kind: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "node.toml"
    make_odd_file(path, kind)
    with pytest.raises(ConfigError) as caught:
        read_config(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


HUGE = "x" * 50_000
KEYS = [field.name for field in fields(NodeConfig) if field.name != "members"]
BAD_VALUES = {
    "empty": '""',
    "nul": '"a\\u0000b"',
    "newline": '"a\\nb"',
    "relative": '"data"',
    "huge": f'"{HUGE}"',
    "number": "-1",
    "many digits": "9" * 5000,
    "beyond 64 bits": "9" * 30,
    "float": "1.5",
    "nan": "nan",
    "nested": "[" * 3000 + "]" * 3000,
    "nested a little": "[[[[[[[[[[[1]]]]]]]]]]]",
    "date": "1979-05-27",
    "table": "{ a = 1 }",
}


@pytest.mark.parametrize(("key", "value"), sample(product(KEYS, BAD_VALUES)))
def test_every_setting_refuses_what_it_cannot_be_in_a_line_that_names_it(
    key: str, value: str, tmp_path: Path
) -> None:
    if (key, value) in SENSIBLE:
        return
    path = tmp_path / "node.toml"
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{key} =")]
    path.write_text(f"{key} = {BAD_VALUES[value]}\n" + "\n".join(lines))
    with pytest.raises(ConfigError) as caught:
        read_config(str(path))
    told = str(caught.value)
    assert told.startswith(f"{path}: ")
    assert key in told or "is not TOML" in told
    assert len(told) < 1000
    assert told.isprintable()


SENSIBLE = {
    ("preferred_leader", "empty"),
    ("tracing", "empty"),
    ("audit_dir", "empty"),
    ("cluster", "relative"),
    ("group", "relative"),
}


@pytest.mark.parametrize("value", BAD_VALUES)
@pytest.mark.parametrize("where", ["peer", "address", "http", "table", "name", "unknown"])
def test_a_member_that_cannot_be_one_is_told_in_a_line(
    where: str, value: str, tmp_path: Path
) -> None:
    bad = BAD_VALUES[value]
    member = {key: f'"10.0.0.1:1{place}"' for place, key in enumerate(Member._fields)}
    if where in member:
        member[where] = bad
    name = bad if where == "name" and bad.startswith('"') else "n2"
    text = GOOD + f"[members.{name}]\n" + "".join(f"{k} = {v}\n" for k, v in member.items())
    if where == "table":
        text = f"members = {bad}\n" + GOOD.partition("[members")[0]
    elif where == "unknown" or (name != bad and where == "name"):
        text = GOOD + f'"{HUGE if value == "huge" else "x y"}" = {bad}\n'
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(str(path))
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


def test_a_relative_directory_is_refused_and_the_files_own_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("node.toml").write_text(GOOD)
    assert read_config("node.toml").data == str(tmp_path)
    Path("node.toml").write_text('data = "./data"\n' + GOOD)
    with pytest.raises(ConfigError, match=r"line 1: data: '\./data' is not .* an absolute path"):
        read_config("node.toml")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_configuration_or_one_line_of_complaint(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(data)

    with pytest.raises(ConfigError) as caught:
        read_config(str(path))
    assert "any.toml" in str(caught.value)
