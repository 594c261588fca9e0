"""The text of settings files: a ``node.toml``, and a commented file to start from."""

from __future__ import annotations

import textwrap
from dataclasses import fields
from typing import Any

from broker.config.config_file import ConfigKind
from broker.config.node_config import NodeConfig
from broker.config.security_config import SECURITY_OFF, SECURITY_SETTINGS
from broker.config.setting import ANY_NODE, Setting
from broker.config.toml_text import toml_value

WIDTH = 96


def node_toml(config: NodeConfig) -> str:
    """The text of a ``node.toml`` in the data directory with these settings.

    ``data`` is left out, so that the directory may be moved.
    """
    lines = ["# The settings of this node: dledger node --config FILE", ""]
    settings = [f.name for f in fields(config) if f.name not in ("data", *TABLES)]
    lines += [f"{key} = {toml_value(getattr(config, key))}" for key in settings]
    if config.security != SECURITY_OFF:
        lines += ["", "[security]"]
        for one in SECURITY_SETTINGS:
            lines.append(f"{one.key} = {toml_value(getattr(config.security, one.key))}")
    tables = {"listen": config.listen._asdict()}
    tables |= {f"members.{node}": member._asdict() for node, member in config.members.items()}
    for name, table in tables.items():
        if any(table.values()):
            lines += ["", f"[{name}]"]
            lines += [f"{key} = {toml_value(value)}" for key, value in table.items() if value]
    return "\n".join(lines) + "\n"


TABLES = ("security", "listen", "members")


def commented_toml(kind: ConfigKind[Any]) -> str:
    """All settings with their meaning. Required settings have an example; the others are comments
    with their defaults. The text is a valid file."""
    lines = [f"# The settings of a {kind.title}. `dledger config check FILE` checks them."]
    table: tuple[str, ...] = ()
    for one in sorted(kind.settings, key=lambda each: len(each.path)):
        path = tuple("n0" if part == ANY_NODE else part for part in one.path)
        if path[:-1] != table:
            table = path[:-1]
            header = f"[{'.'.join(table)}]"
            lines += ["", header if one.required else f"# {header}"]
        lines += ["", *_comment(one, kind.prefix)]
        value = one.default if one.example is None else one.example
        shown = f"{path[-1]} = {toml_value('' if value is None else value)}"
        lines.append(shown if one.required and one.key != "data" else f"# {shown}")
    return "\n".join(lines) + "\n"


def _comment(one: Setting, prefix: str) -> list[str]:
    told = [one.doc]
    if one.allowed is not None:
        told.append(f"It may be {one.allowed.words}.")
    if one.unit:
        told.append(f"Unit: {one.unit}.")
    if one.reload:
        told.append("Read again at SIGHUP.")
    told.append(f"${one.variable(prefix)}")
    return textwrap.wrap(
        " ".join(told), WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
