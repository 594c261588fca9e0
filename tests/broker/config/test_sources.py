"""File, environment and options: what goes before what, and what is said of a bad value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.config_file import (
    KINDS,
    NAME_SERVER,
    NODE,
    ConfigKind,
    load,
    load_text,
    read_config,
    read_name_server_config,
    required_config,
    wanted_kind,
)
from broker.config.config_text import commented_toml, node_toml
from broker.config.node_addresses import Listen
from broker.config.node_config import NAME, NodeConfig
from broker.config.setting import ANY_NODE, Setting
from broker.config.setting_checks import ConfigError
from broker.config.toml_text import line_of, toml_value
from broker.config.variables import OF_COMMANDS, server_variables
from dledger.wire.endpoint import Endpoint
from tests.broker.config.settings_page import PAGE, page

ROOT = Path(__file__).parents[3]
GOOD = commented_toml(NODE)


WORDS = ("localhost", "off", "disabled", "stale", "async", "debug", "json", "http://h:1/t", "/x")
PORTS = ("peer", "address", "http", "grpc")


def other_value(one: Setting) -> object:
    """A value that is not the default."""
    if one.kind is bool:
        return not one.default
    if one.kind is int:
        number = {"heartbeat_ms": 99, "disk_clean_percent": 74}.get(one.key)
        return number or (one.default + 1 if isinstance(one.default, int) else 8079)
    if one.kind is Endpoint:
        return Endpoint("::1", 7)
    if one.kind is tuple:
        return (
            ("[::1]:1", "h:2")
            if one.item is Endpoint
            else ("/a",)
            if one.key == "snapshot_dirs"
            else ("a", "b")
        )
    if one.key in ("node", "preferred_leader"):
        return "n1"
    found = (
        word
        for word in WORDS
        if word != one.default and (one.allowed is None or one.allowed.holds(word))
    )
    return next(found)


def file_with(kind: ConfigKind[Any], changes: Mapping[tuple[str, ...], object]) -> str:
    """A file of what must be given, and of changes."""
    values: dict[tuple[str, ...], object] = {
        named(one.path, "n0"): one.example
        for one in kind.settings
        if one.required and one.key != "data"
    }
    values |= changes
    nodes = {path[1] for path in values if path[0] == "members"} | {values.get(("node",), "n0")}
    for host, node in enumerate(nodes if kind is NODE else (), start=2):
        for port, key in enumerate(PORTS, start=1):
            values.setdefault(("members", str(node), key), f"127.0.0.{host}:{port}")
    tables: dict[tuple[str, ...], list[str]] = {(): []}
    for path, value in values.items():
        tables.setdefault(path[:-1], []).append(f"{path[-1]} = {toml_value(value)}")
    parts = [[f"[{'.'.join(table)}]" if table else "", *rows] for table, rows in tables.items()]
    return "\n".join(line for lines in parts for line in lines)


def named(path: tuple[str, ...], node: str) -> tuple[str, ...]:
    return tuple(node if part == ANY_NODE else part for part in path)


def value_in(config: object, path: tuple[str, ...]) -> object:
    for part in path:
        config = config[part] if isinstance(config, dict) else getattr(config, part)
    return config


SETTINGS = [
    pytest.param(kind, one, id=f"{name}-{one.key}")
    for name, kind in KINDS.items()
    for one in kind.settings
]


@pytest.mark.parametrize(("kind", "one"), SETTINGS)
def test_every_setting_is_read_from_file_and_environment_which_goes_before(
    kind: ConfigKind[Any], one: Setting
) -> None:
    value, path = other_value(one), named(one.path, "n0")
    expected = f"/d/{value}" if one.key == "security.directory" else value
    variable = one.variable(kind.prefix).replace(f"_{ANY_NODE}_", "_N0_")

    given = load_text(kind, file_with(kind, {path: value}), "/d")
    assert given.problems == []
    assert value_in(given.config, path) == expected
    (origin,) = (each for key, _, each in given.effective() if key == ".".join(path))
    line = given.values.text.splitlines()[int(origin.removeprefix("line ")) - 1]
    assert line == f"{path[-1]} = {toml_value(value)}"

    text = ",".join(value) if one.kind is tuple and isinstance(value, tuple) else str(value)
    more: dict[tuple[str, ...], object] = (
        {("node",): value} if one.key == "node" else {}
    )  # its addresses stand in the file
    file = file_with(kind, more).replace('\nnode = "n1"', '\nnode = "n0"')
    told = load_text(kind, file, "/d", environ={variable: text, "DLEDGER_CA": "x"})
    assert told.problems == []
    assert value_in(told.config, path) == expected
    assert (".".join(path), value, f"${variable}") in told.effective()
    misspelt = {"DLEDGER_FLUHS": "x", "DLEDGER_CA": "x", "PATH": "/", "DLEDGER_EMPTY": ""}
    assert server_variables({variable: text, **misspelt}) == [variable, "DLEDGER_FLUHS"]


def test_an_option_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.toml"
    path.write_text('port = 1\nhost = "localhost"\nhttp_port = 8079\n')
    environ = {"DLEDGER_NAMESRV_PORT": "2", "DLEDGER_NAMESRV_HOST": "::1", "DLEDGER_PORT": "tcp://"}
    config = read_name_server_config(str(path), environ, {"port": 3})
    assert (config.port, config.host, config.http_port) == (3, "::1", 8079)
    assert config.at == "[::1]:3"
    assert read_name_server_config("", {}, {}).port == 9876


def test_an_empty_variable_is_none() -> None:
    loaded = load_text(NODE, GOOD, "/d", environ={"DLEDGER_FLUSH": "", "DLEDGER_NAMESRV": ""})
    assert loaded.problems == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("DLEDGER_FLUHS", "did you mean $DLEDGER_FLUSH?"),
        ("DLEDGER_SECURITY_TSL", "did you mean $DLEDGER_SECURITY_TLS?"),
        ("DLEDGER_NAMESRV_PRT", "did you mean $DLEDGER_NAMESRV_PORT?"),
        ("DLEDGER_MEMBERS_N0_PER", "did you mean $DLEDGER_MEMBERS_NODE_PEER?"),
        ("DLEDGER_MEMBERS_NODE_PEER", "did you mean $DLEDGER_MEMBERS_NODE_PEER?"),
        ("DLEDGER_XYZZY", "`dledger config init` names all of them"),
    ],
)
def test_a_misspelt_variable_is_a_problem_as_a_misspelt_key_is(
    kind: ConfigKind[Any], variable: str, hint: str
) -> None:
    loaded = load_text(kind, file_with(kind, {}), "/d", environ={variable: "x"})
    assert loaded.problems == [f"${variable}: is not a setting; {hint}"]
    assert loaded.config is None
    assert load_text(kind, file_with(kind, {}), "/d", environ={variable: ""}).problems == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_variables_that_servers_do_not_read_are_let_be(kind: ConfigKind[Any]) -> None:
    of_kubernetes = {
        "DLEDGER_SERVICE_HOST": "10.0.0.11",
        "DLEDGER_SERVICE_PORT": "10911",
        "DLEDGER_SERVICE_PORT_REMOTING": "10911",
        "DLEDGER_PORT": "tcp://10.0.0.11:10911",
        "DLEDGER_PORT_10911_TCP": "tcp://10.0.0.11:10911",
        "DLEDGER_PORT_10911_TCP_PROTO": "tcp",
        "DLEDGER_PORT_10911_TCP_ADDR": "10.0.0.11",
        "DLEDGER_HTTP_PORT_8080_TCP_PORT": "8080",
    }
    others = {"DLEDGER_TEST_MESSAGES": "1", "NAMESRV_ADDR": "h:1", "_DLEDGER_COMPLETE": "x"}
    environ = {**of_kubernetes, **others, **dict.fromkeys(OF_COMMANDS, "x")}
    assert load_text(kind, file_with(kind, {}), "/d", environ=environ).problems == []
    typed = load_text(kind, file_with(kind, {}), "/d", environ={"DLEDGER_PORT": "10911"})
    assert len(typed.problems) == 1


def test_a_file_without_members_may_get_them_from_the_environment() -> None:
    environ = {
        "DLEDGER_GROUP": "g",
        "DLEDGER_NODE": "n1",
        "DLEDGER_NAMESRV": "ns-0:9876,ns-1:9876;[::1]:9876",
        "DLEDGER_INSECURE": "true",
    }
    for node in ("N0", "N1"):
        for key, port in (("PEER", 10915), ("ADDRESS", 10911), ("HTTP", 8080)):
            environ[f"DLEDGER_MEMBERS_{node}_{key}"] = f"dledger-{node[1]}.dledger:{port}"
    config = required_config(load_text(NODE, "", "/d", environ=environ))
    assert config.namesrv == ("ns-0:9876", "ns-1:9876", "[::1]:9876")
    assert config.peers == {"n0": "dledger-0.dledger:10915"}


def test_all_problems_are_told_each_with_file_line_key_and_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    lines = ['group = "a b"', 'nod = "n0"', "[members.n0]", 'peer = "h"', "[sekurity]", "x = 1"]
    path.write_text("\n".join(lines))
    loaded = load(NODE, str(path), {"DLEDGER_SEGMENT_SIZE": "many"})
    assert loaded.config is None
    assert loaded.problems == [
        f"{path}: line 1: group: 'a b' is not allowed; it may be {NAME.words}",
        f"{path}: line 2: nod: is not a setting; did you mean node?",
        f"{path}: line 4: members.n0.peer: 'h' is not host:port, such as 127.0.0.1:10911",
        f"{path}: line 5: sekurity: is not a setting; did you mean security?",
        "$DLEDGER_SEGMENT_SIZE: segment_size: must be an integer, not 'many'",
    ]


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("a = 1\nb = 2", ("b",), 2),
        ("[t]\na = 1\n[u]\na = 1", ("u", "a"), 4),
        ("[t.u]\na = 1", ("t", "u", "a"), 2),
        ("t.u.a = 1", ("t", "u", "a"), 1),
        ("x = 1\nt = { a = 1 }", ("t", "a"), 2),
        ("[t]\n", ("t", "missing"), 1),
        ('[t."n0"]\n"a" = 1', ("t", "n0", "a"), 2),
        ("# a = 1", ("a",), None),
    ],
)
def test_the_line_of_a_key_is_found(text: str, path: tuple[str, ...], line: int | None) -> None:
    assert line_of(text, path) == line


@given(st.text(max_size=60), st.sampled_from([one for one in NODE.settings if one.kind is not str]))
def test_any_text_of_a_variable_is_a_value_or_one_line_of_complaint(
    text: str, one: Setting
) -> None:
    variable = one.variable("DLEDGER_").replace(ANY_NODE, "N0")
    problems = load_text(NODE, GOOD, "/d", environ={variable: text}).problems
    assert all(each.isprintable() and len(each) < 1000 for each in problems)


def test_a_node_may_listen_elsewhere_than_it_is_dialled() -> None:
    text = GOOD.replace("127.0.0.1:10911", "broker.example.com:10911")
    text += '\n[listen]\naddress = "127.0.0.1:7"\n'
    config = required_config(load_text(NODE, text, "/d"))
    assert config.own.address == Endpoint("broker.example.com", 10911)
    assert config.listening == config.own._replace(address=Endpoint("127.0.0.1", 7))
    assert not config.exposed
    assert config.listen == Listen(address=Endpoint("127.0.0.1", 7))
    written = load_text(NODE, node_toml(config), "/d")
    assert required_config(written) == config


def test_listening_for_others_without_protection_is_refused() -> None:
    loaded = load_text(NODE, GOOD + '\n[listen]\nhttp = "[::]:8080"\n', "/d")
    assert len(loaded.problems) == 1
    assert "listen.http: other machines reach [::]:8080, and nothing" in loaded.problems[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_written_for_people_is_right_and_has_every_setting(
    kind: str, tmp_path: Path
) -> None:
    text = commented_toml(KINDS[kind])
    path = tmp_path / "any.toml"
    path.write_text(text)
    assert load(KINDS[kind], str(path)).problems == []
    assert wanted_kind(str(path)) is KINDS[kind]
    for one in KINDS[kind].settings:
        assert f"{one.path[-1]} = " in text
        assert one.variable(KINDS[kind].prefix) in text
    assert all(len(line) < 100 for line in text.splitlines())


def test_a_file_of_a_name_server_is_told_from_that_of_a_node(tmp_path: Path) -> None:
    path = tmp_path / "any.toml"
    path.write_text("port = 1\nhost = 2")
    assert wanted_kind(str(path)) is NAME_SERVER
    path.write_text("group = 3")  # wrong, but of a node
    assert wanted_kind(str(path)) is NODE
    path.write_text('group = "a"\nport = 1')
    assert wanted_kind(str(path)) is NODE
    with pytest.raises(ConfigError, match="cannot be read"):
        wanted_kind(str(tmp_path / "none"))


def test_the_page_is_current() -> None:
    assert (ROOT / PAGE).read_text() == page(), "run python -m tests.broker.config.settings_page"


def test_every_field_is_described() -> None:
    described = {one.path[0] for one in NODE.settings}
    assert described == {each.name for each in fields(NodeConfig)}


def test_what_up_starts_takes_no_variables(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(GOOD)
    assert read_config(str(path)).flush == "sync"
    assert read_config(str(path), {"DLEDGER_FLUSH": "async"}).flush == "async"
