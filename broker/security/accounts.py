"""Accounts, in the form of the replicated log and of checkpoints.

The table of accounts maps names to definitions (:class:`~broker.state.commands.PutAccess`). A name
is an access key; the empty name has the global white list. A definition is a MessagePack array::

    account      [sealed secret key, admin, default topic permission, default group permission,
                  [[topic, permission], ...], [[group, permission], ...], white list, changed ms]
    white list   [[address pattern, ...], changed ms]

Permissions are the numbers of :class:`~broker.security.permissions.Permission`. The secret key is
sealed (:mod:`broker.security.key_sealing`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from broker.security.permissions import Permission

WHITE_LIST = ""
"""The name of the global white list in the table."""

_ACCESS_KEY = re.compile(r"[!-9;-~]{7,128}")
_SECRET_KEY = re.compile(r"[!-~]{7,128}")


class AccountError(ValueError):
    """An invalid account, or a definition that cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Account:
    """The permissions of one access key. ``changed_ms`` is in milliseconds since 1970."""

    access_key: str
    sealed_key: bytes = field(repr=False)
    admin: bool = False
    default_topic: Permission = Permission.DENY
    default_group: Permission = Permission.DENY
    topics: Mapping[str, Permission] = field(default_factory=dict)
    groups: Mapping[str, Permission] = field(default_factory=dict)
    white_list: str = ""
    """Address patterns, from which requests need no signature."""
    changed_ms: int = 0

    def topic_permission(self, name: str) -> Permission:
        return self.topics.get(name, self.default_topic)

    def group_permission(self, name: str) -> Permission:
        return self.groups.get(name, self.default_group)

    def pack(self) -> bytes:
        """The definition, for the log."""
        packed: bytes = msgpack.packb(
            (
                self.sealed_key,
                self.admin,
                int(self.default_topic),
                int(self.default_group),
                _numbers(self.topics),
                _numbers(self.groups),
                self.white_list,
                self.changed_ms,
            )
        )
        return packed


def unpack_account(access_key: str, definition: bytes) -> Account:
    """The reverse of :meth:`Account.pack`. Raises :class:`AccountError`."""
    sealed, admin, topic, group, topics, groups, white_list, changed_ms = _fields(definition, 8)
    try:
        return Account(
            access_key,
            bytes(sealed),
            admin is True,
            Permission(topic),
            Permission(group),
            {str(name): Permission(each) for name, each in topics},
            {str(name): Permission(each) for name, each in groups},
            str(white_list),
            int(changed_ms),
        )
    except (ValueError, TypeError) as error:
        raise AccountError(f"the definition of an account cannot be read: {error}") from error


def pack_white_list(patterns: Iterable[str], changed_ms: int) -> bytes:
    """The definition of the global white list."""
    packed: bytes = msgpack.packb((list(patterns), changed_ms))
    return packed


def has_accounts(table: Iterable[str]) -> bool:
    """Whether any of these names is an account's."""
    return any(name != WHITE_LIST for name in table)


def unpack_white_list(definition: bytes | None) -> tuple[list[str], int]:
    """The patterns and the time of the change. Raises :class:`AccountError`."""
    if definition is None:
        return [], 0
    patterns, changed_ms = _fields(definition, 2)
    try:
        return [str(each) for each in patterns], int(changed_ms)
    except (ValueError, TypeError) as error:
        raise AccountError(f"the white list cannot be read: {error}") from error


def check_access_key(access_key: str) -> None:
    """Raises :class:`AccountError` for an invalid access key. RocketMQ requires more than six
    characters. HTTP separates it from the secret key by a colon."""
    if not _ACCESS_KEY.fullmatch(access_key):
        raise AccountError(
            "an access key has 7 to 128 characters of ASCII, without spaces and colons"
        )


def check_secret_key(secret_key: str) -> None:
    """Raises :class:`AccountError` for an invalid secret key; the text does not repeat it."""
    if not _SECRET_KEY.fullmatch(secret_key):
        raise AccountError("a secret key has 7 to 128 characters of ASCII, without spaces")


def _numbers(permissions: Mapping[str, Permission]) -> list[tuple[str, int]]:
    return [(name, int(each)) for name, each in sorted(permissions.items())]


def _fields(definition: bytes, count: int) -> list[Any]:
    try:
        fields = msgpack.unpackb(definition)
    except (ValueError, msgpack.UnpackException) as error:
        raise AccountError(f"a definition is not MessagePack: {error}") from error
    if type(fields) is not list or len(fields) != count:
        raise AccountError(f"a definition is not an array of {count}")
    return fields
