"""TOML files of settings: reading them within bounds, and checking keys and types.

A key that is not known is an error: a misspelt setting that is silently ignored is found the day it
was needed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from broker.config.security_config import SECTION_DEFAULTS, SecurityConfig
from broker.config.setting_checks import ConfigError, one_line
from broker.system.bounded_file_read import read_bounded
from dledger.wire.endpoint import Endpoint, EndpointError
from store.quoting import quoted, shortened

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CONFIG_SIZE_MAX = 64 << 10
"""Setting: bytes of a file of settings, enough for hundreds of members. tomllib takes quadratic
time for some files that say nothing."""

DOTS_MAX = 500
"""Setting: dots in one line. For a key of many parts tomllib takes quadratic time."""

TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    dict: "a table",
    list: "a list",
    SecurityConfig: "a table",
}

Config = TypeVar("Config")


def read_settings(path: str, parse: Callable[[str, str], Config]) -> Config:
    """What ``parse`` makes of the text of a file and the directory in which it lies.

    Raises :class:`~broker.config.setting_checks.ConfigError` naming the file and the fault.
    """
    try:
        text = read_bounded(path, CONFIG_SIZE_MAX).decode()
        return parse(text, os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise ConfigError(f"{one_line(path)}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {shortened(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a text. Raises :class:`~broker.config.setting_checks.ConfigError`."""
    if len(text) > CONFIG_SIZE_MAX:
        raise ConfigError(f"has {len(text)} characters, at most {CONFIG_SIZE_MAX} are allowed")
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > DOTS_MAX:
            raise ConfigError(
                f"line {number} has {line.count('.')} dots, at most {DOTS_MAX} are allowed"
            )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError("is not TOML of this kind: it is nested too deeply") from None
    except ValueError as error:  # also for a number of thousands of digits
        raise ConfigError(f"is not TOML: {shortened(error)}") from error


def take_security(given: dict[str, Any], directory: str) -> None:
    """Puts a :class:`SecurityConfig` in the place of the table ``security``, if there is one.

    Its directory is relative to ``directory``.
    """
    table = given.get("security")
    if table is None:
        return
    require_type("security", table, dict)
    check_keys(table, [field.name for field in fields(SecurityConfig)], "security.")
    for key, value in table.items():
        require_type(f"security.{key}", value, str)
    settings = {**SECTION_DEFAULTS, **table}
    settings["directory"] = os.path.normpath(os.path.join(directory, settings["directory"]))
    given["security"] = SecurityConfig(**settings)


def types_of(config: type[DataclassInstance]) -> dict[str, type]:
    """The type of each setting, as its default has it; without one it is a string."""
    return {f.name: str if f.default is MISSING else type(f.default) for f in fields(config)}


def require_types(given: dict[str, Any], types: Mapping[str, type]) -> None:
    """Each value must have the type of its setting. Lists of strings become tuples."""
    for key, value in given.items():
        wanted = types[key]
        require_type(key, value, list if wanted is tuple else wanted)
        if wanted is tuple:
            for each in value:
                require_type(f"{key}: each", each, str)
            given[key] = tuple(value)


def refuse_exposed(key: str, address: str) -> NoReturn:
    """Raises :class:`~broker.config.setting_checks.ConfigError`: nothing protects that address."""
    raise ConfigError(
        f"{key}: other machines reach {address}, and nothing protects it: add a section [security] "
        "with the directory that `dledger security init` makes (docs/security.md), or the line "
        "insecure = true"
    )


def check_keys(given: Mapping[str, object], known: list[str], where: str) -> None:
    """Raises :class:`~broker.config.setting_checks.ConfigError` for a key that is no setting."""
    for key in given:
        if key not in known:
            import difflib  # noqa: PLC0415 - of no use to a node that starts

            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            raise ConfigError(f"{where}{one_line(key)}: is no setting{hint}")


def require_type(key: str, value: object, wanted: type) -> None:
    """Raises :class:`~broker.config.setting_checks.ConfigError` for a value of another type."""
    # A TOML boolean is a Python int too, and must not pass for a number.
    if type(value) is not wanted:
        raise ConfigError(f"{key}: must be {TYPE_NAMES[wanted]}, not {quoted(value)}")


def endpoint_setting(key: str, value: object) -> Endpoint:
    """A ``host:port``. Raises :class:`~broker.config.setting_checks.ConfigError`."""
    if not isinstance(value, str):
        raise ConfigError(f"{key}: must be a string, not {quoted(value)}")
    try:
        return Endpoint.parse(value)
    except EndpointError as error:
        raise ConfigError(f"{key}: {error}") from None
