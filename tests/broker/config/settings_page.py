"""Writes ``docs/configuration.md``: ``python -m tests.broker.config.settings_page``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.config.config_file import NAME_SERVER, NODE, ConfigKind
from broker.config.dynamic_settings import CHANGEABLE
from broker.config.run_time_names import RUN_TIME_NAMES
from broker.config.setting import Setting
from broker.config.toml_text import toml_value
from broker.config.variables import OF_COMMANDS, OF_TESTS
from dledger.wire.endpoint import Endpoint

PAGE = "docs/configuration.md"

_BEGINNING = """\
# Configuration

A node reads its settings from a file, `node.toml`, a NameServer from `--config FILE`. A variable of
the environment goes before the file, an option of the command before both. An unknown key is an
error. `python -m tests.broker.config.settings_page` writes this page from the settings themselves.

    dledger config init node.toml       # a file with all settings, explained
    dledger config init namesrv.toml --kind namesrv
    dledger config check node.toml      # every problem, with file, line and key
    dledger config show node.toml       # each value, and where it comes from

**Variables** are shown with each setting. Lists are separated by commas, truth values are `true`
and `false`; an empty variable counts as none. In `DLEDGER_MEMBERS_NODE_PEER` the node's name stands
for `NODE`: `DLEDGER_MEMBERS_N0_PEER`. Nodes that `dledger up` starts take no such variables.

Any other variable that begins with `DLEDGER_` is an error, as an unknown key is. Servers ignore the
variables of commands ({of_commands}), those of the
tests (`{of_tests}...`), and those that Kubernetes gives containers for a service called
`dledger`. Some of Kubernetes' have the name of a setting: `enableServiceLinks: false` in
`deploy/kubernetes/dledger.yaml` turns them off.

**Addresses** are `host:port`. A host is an IPv4 address, an IPv6 address in brackets, as in
`[::1]:9876`, or a name. That holds for all files, options, `$NAMESRV_ADDR` and the lists of
NameServers of clients. Names are resolved each time when somebody dials or listens, so a changed
DNS answer is followed. To listen at `[::]` is to listen at all addresses, those of IPv4 too.

**Listening elsewhere.** `members` says where nodes are dialled. `listen` says where this node
listens, if that is another place: in a container, or behind NAT.

    [members.n0]
    peer = "broker-0.example.com:10915"
    address = "broker-0.example.com:10911"
    http = "broker-0.example.com:8080"
    grpc = "broker-0.example.com:10916"

    [listen]
    peer = "[::]:10915"
    address = "[::]:10911"
    http = "[::]:8080"
    grpc = "[::]:10916"

**SIGHUP** has the file read again. Settings that are marked take effect at once. The log says which
ones changed, and which of the others need a restart. Settings that `dledger config set` changed go
before the file.

**At run time** `dledger config get` and `set` read and change settings of the running group, by the
name in the file or by RocketMQ's. RocketMQ's own tools know its names alone.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            _BEGINNING.format(
                of_commands=", ".join(f"`{name}`" for name in sorted(OF_COMMANDS)),
                of_tests=OF_TESTS,
            ),
            "## A node",
            "",
            *_table(NODE),
            "",
            "## A NameServer",
            "",
            *_table(NAME_SERVER),
            "",
        ]
    )


def _table(kind: ConfigKind[Any]) -> list[str]:
    lines = [
        "| Setting | Type | Default | It may be | What it is | SIGHUP | Variable |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    if kind is NODE:
        lines = [
            f"{line} {more} |" for line, more in zip(lines, ("At run time", "---"), strict=True)
        ]
    return lines + [_row(one, kind) for one in kind.settings]


def _row(one: Setting, kind: ConfigKind[Any]) -> str:
    allowed = one.allowed.words if one.allowed is not None else ""
    cells = [
        f"`{one.key}`",
        _shown_kind(one),
        _default(one),
        allowed + (f" ({one.unit})" if one.unit else ""),
        one.doc,
        "yes" if one.reload else "",
        f"`{one.variable(kind.prefix)}`",
    ]
    if kind is NODE:
        cells.append(_at_run_time(one))
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _at_run_time(one: Setting) -> str:
    """RocketMQ's name of a setting of a node."""
    name = RUN_TIME_NAMES.get(one.key)
    if name is None:
        return ""
    return f"`{name}`" if name in CHANGEABLE else f"`{name}` (get only)"


def _shown_kind(one: Setting) -> str:
    """The type of a setting, for people."""
    if one.kind is tuple:
        return "list of host:port" if one.item is Endpoint else "list of strings"
    return {str: "string", int: "integer", bool: "true or false", Endpoint: "host:port"}[one.kind]


def _default(one: Setting) -> str:
    if one.required:
        return "the file's directory" if one.key == "data" else "must be given"
    return "none" if one.default is None else f"`{toml_value(one.default)}`"


if __name__ == "__main__":
    Path(PAGE).write_text(page(), encoding="utf-8")
