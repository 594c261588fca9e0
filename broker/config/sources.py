"""The sources of settings: a file, the environment, options of a command.

A later source overrides an earlier one. Each value is checked by its setting, and each problem
names the place of the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.config.setting import ANY_NODE, Setting
from broker.config.setting_checks import ConfigError, one_line, require, unknown
from broker.config.toml_text import Path, line_of, parse_toml
from dledger.wire.endpoint import Endpoint, EndpointError
from store.quoting import quoted

DEFAULT = "default"
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_ARTICLES = {str: "a string", int: "an integer", bool: "true or false", tuple: "a list"}


@dataclass(frozen=True, slots=True)
class Problem:
    """``where`` is the line, the variable or the option; empty if there is none."""

    where: str
    reason: str

    @property
    def in_file(self) -> bool:
        """Whether the mistake is in a file, not in the environment or a command."""
        return not self.where.startswith(("$", "--"))

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


@dataclass(slots=True)
class Values:
    """The given values, by key. ``tables`` are the tables of the file, in order.

    ``origins`` has the place of each value.
    """

    values: dict[Path, Any] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    tables: dict[Path, None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    text: str = ""

    def take_file(self, text: str, settings: Iterable[Setting]) -> None:
        """Takes the values of a TOML text."""
        self.text = text
        try:
            given = parse_toml(text)
        except ConfigError as error:
            self.problems.append(Problem("", str(error)))
            return
        tree: dict[str, Any] = {}
        for one in settings:
            branch = tree
            for part in one.path[:-1]:
                branch = branch.setdefault(part, {})
            branch[one.path[-1]] = one
        self._walk(given, tree, ())

    def _walk(self, table: Mapping[str, object], tree: Mapping[str, Any], at: Path) -> None:
        for key, value in table.items():
            path = (*at, key)
            known = tree.get(key) or tree.get(ANY_NODE)
            if known is None:
                self.add(unknown(_shown(path), key, tree), path)
            elif isinstance(known, Setting):
                self._set(known, path, value, "")
            elif isinstance(value, dict):
                self.tables[path] = None
                self._walk(value, known, path)
            else:
                error = ConfigError(f"must be a table, not {quoted(value)}", _shown(path))
                self.add(error, path)

    def take_environment(
        self, environ: Mapping[str, str], settings: Iterable[Setting], prefix: str
    ) -> None:
        """Takes the values of environment variables. An empty one counts as unset."""
        for one in settings:
            variables = environ if ANY_NODE in one.path else [one.variable(prefix)]
            for name in variables:
                text = environ.get(name)
                if text and (path := one.path_set_by(name, prefix)):
                    self._set(one, path, _from_text(one, text), f"${name}")

    def take_options(self, options: Mapping[str, object], settings: Iterable[Setting]) -> None:
        """Takes the options of a command line, by key."""
        for one in settings:
            if one.key in options:
                origin = f"--{one.key.replace('_', '-')}"
                self._set(one, one.path, options[one.key], origin)

    def _set(self, one: Setting, path: Path, value: object, origin: str) -> None:
        self.origins[path] = origin
        try:
            self.values[path] = _checked(one, _shown(path), value)
        except ConfigError as error:
            self.add(error, path)

    def where(self, path: Path) -> str:
        """The place of a key's value."""
        line = line_of(self.text, path)
        return self.origins.get(path) or (f"line {line}" if line else "")

    def add(self, error: ConfigError, path: Path | None = None) -> None:
        """Adds a problem; without a path, for the key in the error."""
        path = tuple(error.key.split(".")) if path is None else path
        self.problems.append(Problem(self.where(path), str(error)))


def _shown(path: Path) -> str:
    return ".".join(map(one_line, path))


def _from_text(one: Setting, text: str) -> object:
    """The value as TOML would give it. Text that cannot be converted stays text, which the check
    refuses."""
    if one.kind is tuple:
        return [part.strip() for part in re.split("[,;]", text) if part.strip()]
    if one.kind is int and _INTEGER.fullmatch(text):
        return int(text)
    if one.kind is bool and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return text


def _checked(one: Setting, key: str, value: object) -> object:
    """The value as in the configuration. Raises
    :class:`~broker.config.setting_checks.ConfigError`."""
    if one.kind is tuple:
        _require_type(key, value, list)
        assert isinstance(value, list)  # noqa: S101 - see above
        return tuple([_checked_item(one, key, each) for each in value])
    if one.kind is Endpoint:
        return _endpoint(key, value)
    _require_type(key, value, one.kind)
    if one.allowed is not None:
        require(one.allowed.holds(value), key, value, one.allowed.words)
    return value


def _checked_item(one: Setting, key: str, value: object) -> str:
    if one.item is Endpoint:
        return str(_endpoint(key, value))
    if not isinstance(value, str):
        raise ConfigError(f"each: must be a string, not {quoted(value)}", key)
    if one.allowed is not None:
        require(one.allowed.holds(value), key, value, one.allowed.words)
    return value


def _endpoint(key: str, value: object) -> Endpoint:
    if not isinstance(value, str):
        raise ConfigError(f"must be a string, not {quoted(value)}", key)
    try:
        return Endpoint.parse(value)
    except EndpointError as error:
        raise ConfigError(str(error), key) from None


def _require_type(key: str, value: object, wanted: type) -> None:
    # A TOML boolean is a Python int too, and must not pass for a number.
    if type(value) is not wanted:
        named = _ARTICLES[tuple if wanted is list else wanted]
        raise ConfigError(f"must be {named}, not {quoted(value)}", key)
