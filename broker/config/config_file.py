"""Loads and checks the settings of a node or a NameServer, from file, environment and options."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from broker.config.name_server_config import NameServerConfig
from broker.config.node_addresses import Listen, Member
from broker.config.node_config import NodeConfig
from broker.config.security_config import SECURITY_OFF, SECURITY_SETTINGS, SecurityConfig
from broker.config.setting import ANY_NODE, Setting, settings_of
from broker.config.setting_checks import ConfigError, one_line
from broker.config.sources import DEFAULT, Problem, Values
from broker.config.toml_text import CONFIG_SIZE_MAX, Path
from broker.config.variables import misspelt_variables
from broker.system.bounded_file_read import read_bounded
from store.quoting import shortened

NONE: Mapping[str, Any] = MappingProxyType({})
"""No environment, or no options."""

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class ConfigKind(Generic[Config]):
    """A kind of settings file. ``prefix`` is the prefix of its environment variables. ``build``
    makes the configuration of values by key; the second argument is the directory of the file."""

    title: str
    prefix: str
    settings: tuple[Setting, ...]
    build: Callable[[Values, str], Config]


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Config]):
    """``config`` is None if there are problems. ``path`` is the path of the file."""

    kind: ConfigKind[Config]
    path: str
    values: Values
    config: Config | None

    @property
    def problems(self) -> list[str]:
        """One text for each problem: file, line, key and mistake."""
        return [_line(self.path, each) for each in self.values.problems]

    def effective(self) -> list[tuple[str, object, str]]:
        """Key, value and origin of each setting, defaults included."""
        found = []
        for one in self.kind.settings:
            given = [path for path in self.values.values if _is_of(path, one)]
            found += [
                (".".join(path), self.values.values[path], self.values.where(path))
                for path in given
            ]
            if not given and not one.required:
                found.append((one.key, self._default(one), DEFAULT))
        return found

    def _default(self, one: Setting) -> object:
        """The default of a setting. Without its section, security is off; leases change another."""
        if isinstance(self.config, NodeConfig) and one.key == "election_timeout_ms":
            return self.config.election_timeout_ms
        secured = any("security" in path for path in (*self.values.values, *self.values.tables))
        if one.path[0] == "security" and not secured:
            return getattr(SECURITY_OFF, one.path[1])
        return one.default


def _is_of(path: Path, one: Setting) -> bool:
    return len(path) == len(one.path) and all(
        want in (part, ANY_NODE) for part, want in zip(path, one.path, strict=True)
    )


def _line(path: str, problem: Problem) -> str:
    return f"{one_line(path)}: {problem}" if path and problem.in_file else str(problem)


def load(
    kind: ConfigKind[Config],
    path: str,
    environ: Mapping[str, str] = NONE,
    options: Mapping[str, object] = NONE,
) -> Loaded[Config]:
    """Reads and checks a file; an empty path: only environment and options.

    Raises :class:`~broker.config.setting_checks.ConfigError` if it cannot be read.
    """
    text = ""
    try:
        text = read_bounded(path, CONFIG_SIZE_MAX).decode() if path else ""
    except OSError as error:
        raise ConfigError(f"{one_line(path)}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {shortened(error)}") from error
    return load_text(
        kind,
        text,
        os.path.dirname(os.path.abspath(path)),
        environ=environ,
        options=options,
        path=path,
    )


def load_text(
    kind: ConfigKind[Config],
    text: str,
    directory: str,
    *,
    environ: Mapping[str, str] = NONE,
    options: Mapping[str, object] = NONE,
    path: str = "",
) -> Loaded[Config]:
    """As :func:`load`, for the text of a file in ``directory``."""
    values = Values()
    values.take_file(text, kind.settings)
    values.take_environment(environ, kind.settings, kind.prefix)
    values.problems += misspelt_variables(environ, _ALL_SETTINGS)
    values.take_options(options, kind.settings)
    config = None
    if not values.problems:
        try:
            config = kind.build(values, directory)
        except ConfigError as error:
            values.add(error)
    return Loaded(kind, path, values, config)


def required_config(loaded: Loaded[Config]) -> Config:
    """The configuration. Raises :class:`~broker.config.setting_checks.ConfigError` with the first
    problem."""
    if loaded.config is None:
        raise ConfigError(loaded.problems[0])
    return loaded.config


def refuse_exposed(config: NodeConfig | NameServerConfig) -> None:
    """Raises :class:`~broker.config.setting_checks.ConfigError` if other machines reach an
    unprotected port, unless ``insecure`` is set."""
    if not config.exposed or config.insecure:
        return
    if isinstance(config, NameServerConfig):
        key, address = "host", config.at
    else:
        listen: dict[str, object] = config.listen._asdict()
        name, endpoint = next(iter(config.exposed_ports.items()))
        key = f"listen.{name}" if listen[name] else f"members.{config.node}.{name}"
        address = str(endpoint)
    raise ConfigError(
        f"other machines reach {address}, and nothing protects it: add a section [security] "
        "with the directory that `dledger security init` makes (docs/security.md), or the line "
        "insecure = true",
        key,
    )


def _security(values: Values, directory: str) -> dict[str, Any]:
    """The security settings; their directory is relative to that of the file."""
    given = {path[1]: value for path, value in values.values.items() if path[0] == "security"}
    if not given and ("security",) not in values.tables:
        return {}
    settings = {one.key: given.get(one.key, one.default) for one in SECURITY_SETTINGS}
    settings["directory"] = os.path.normpath(os.path.join(directory, str(settings["directory"])))
    return {"security": SecurityConfig(**settings)}


LEASE_ELECTION_TIMEOUT_MS = 600
"""The default with ``lease_reads``: all members must have the same, also while some of them have an
earlier program, whose default it was."""


def _node(values: Values, directory: str) -> NodeConfig:
    given = values.values
    top = {path[0]: value for path, value in given.items() if len(path) == 1}
    top.setdefault("data", directory)
    for one in NODE.settings:
        if one.required and len(one.path) == 1 and one.key not in top:
            raise ConfigError("is missing", one.key)
    if top.get("lease_reads"):
        top.setdefault("election_timeout_ms", LEASE_ELECTION_TIMEOUT_MS)
    members: dict[str, dict[str, Any]] = {path[1]: {} for path in values.tables if len(path) == 2}
    for path, value in given.items():
        if path[0] == "members":
            members.setdefault(path[1], {})[path[2]] = value
    if not members:
        raise ConfigError("is missing", "members")
    for node, addresses in members.items():
        for key in Member._fields:
            if key not in addresses and key not in Member._field_defaults:
                raise ConfigError("is missing", f"members.{one_line(node)}.{key}")
    listen = {path[1]: value for path, value in given.items() if path[0] == "listen"}
    return NodeConfig(
        **top,
        **_security(values, directory),
        members={node: Member(**addresses) for node, addresses in members.items()},
        listen=Listen(**listen),
    )


def _protected_node(values: Values, directory: str) -> NodeConfig:
    config = _node(values, directory)
    refuse_exposed(config)
    return config


def _name_server(values: Values, directory: str) -> NameServerConfig:
    top = {path[0]: value for path, value in values.values.items() if len(path) == 1}
    config = NameServerConfig(**top, **_security(values, directory))
    refuse_exposed(config)
    return config


NODE = ConfigKind("node", "DLEDGER_", settings_of(NodeConfig), _protected_node)
EXPOSED_NODE = ConfigKind("node", "DLEDGER_", settings_of(NodeConfig), _node)
"""A node's settings for read-only use, without the check of unprotected ports."""

NAME_SERVER = ConfigKind(
    "NameServer", "DLEDGER_NAMESRV_", settings_of(NameServerConfig), _name_server
)


KINDS: Mapping[str, ConfigKind[Any]] = MappingProxyType({"node": NODE, "namesrv": NAME_SERVER})
"""The kinds by their name in commands."""

_ALL_SETTINGS = tuple((kind.prefix, one) for kind in KINDS.values() for one in kind.settings)
"""With their prefix. A machine may have one environment for both kinds of servers."""


def wanted_kind(path: str) -> ConfigKind[Any]:
    """The kind of a file by its content: a NameServer's has no group, node, members or NameServers.

    An empty path is a node's. Raises :class:`~broker.config.setting_checks.ConfigError` if the file
    cannot be read.
    """
    if not path:
        return NODE
    found = load(NODE, path)
    only_node = {("group",), ("node",), ("namesrv",), ("members",)}
    given = {*found.values.origins, *found.values.tables}
    unknown_keys = len(load(NAME_SERVER, path).problems)
    return NODE if given & only_node or unknown_keys > len(found.problems) else NAME_SERVER


def read_config(path: str, environ: Mapping[str, str] = NONE) -> NodeConfig:
    """Reads and checks a ``node.toml``; ``environ`` overrides it.

    Raises :class:`~broker.config.setting_checks.ConfigError` with file, line and key.
    """
    return required_config(load(NODE, path, environ))


def read_exposed_config(path: str) -> NodeConfig:
    """As :func:`read_config`, for read-only use: unprotected ports are accepted."""
    return required_config(load(EXPOSED_NODE, path))


def read_name_server_config(
    path: str, environ: Mapping[str, str] = NONE, options: Mapping[str, object] = NONE
) -> NameServerConfig:
    """As :func:`read_config`, for a NameServer, with the options of the command; ``path`` may be
    empty."""
    return required_config(load(NAME_SERVER, path, environ, options))
