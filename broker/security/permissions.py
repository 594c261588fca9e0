"""Permissions of an account for a topic or a group: RocketMQ's ``DENY``, ``PUB``, ``SUB``, ``ANY``.

Source: RocketMQ 4.9, ``org.apache.rocketmq.acl.common.Permission`` and ``plain_acl.yml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag

from store.quoting import quoted


class Permission(IntFlag):
    """``PUB`` allows sending, ``SUB`` consuming."""

    DENY = 0
    PUB = 1
    SUB = 2
    ANY = 3


_TEXTS = {
    Permission.DENY: "DENY",
    Permission.PUB: "PUB",
    Permission.SUB: "SUB",
    Permission.ANY: "PUB|SUB",
}
_PERMISSIONS = {text: permission for permission, text in _TEXTS.items()} | {
    "SUB|PUB": Permission.ANY,
    "ANY": Permission.ANY,
}


class PermissionTextError(ValueError):
    """A text is not a permission, or not a list of permissions."""


def parse_permission(text: str) -> Permission:
    """The permission ``DENY``, ``PUB``, ``SUB``, ``PUB|SUB``, ``SUB|PUB`` or ``ANY``.

    Raises :class:`PermissionTextError`.
    """
    found = _PERMISSIONS.get(text.strip())
    if found is None:
        raise PermissionTextError(f"{quoted(text)} is not DENY, PUB, SUB or PUB|SUB")
    return found


def permission_text(permission: Permission) -> str:
    """The reverse of :func:`parse_permission`."""
    return _TEXTS[permission]


def parse_permissions(text: str) -> dict[str, Permission]:
    """The permissions by name, from ``T=PUB|SUB,U=DENY``; none for an empty text.

    Raises :class:`PermissionTextError`.
    """
    found: dict[str, Permission] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, equals, permission = item.partition("=")
        if not equals or not name.strip():
            raise PermissionTextError(f"{quoted(item)} is not name=permission")
        found[name.strip()] = parse_permission(permission)
    return found


def permission_texts(permissions: Mapping[str, Permission]) -> list[str]:
    """The permissions as ``name=permission``, sorted."""
    return [f"{name}={permission_text(each)}" for name, each in sorted(permissions.items())]
