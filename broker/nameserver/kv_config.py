"""The key-value configuration of a NameServer, in namespaces."""

from __future__ import annotations

from collections.abc import Mapping

from broker.limits import NAMESERVER
from broker.remoting.protocol.errors import TooManyError


class KvConfig:
    """The configuration, in memory."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        self._count = 0
        self._bytes = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets a value. Raises :class:`~broker.remoting.protocol.errors.TooManyError` if there is
        no room."""
        known = self.get(namespace, key)
        count = self._count + (known is None)
        size = self._bytes + _size(namespace, key, value)
        if known is not None:
            size -= _size(namespace, key, known)
        if count > NAMESERVER.key_values_max and known is None:
            raise TooManyError(
                f"there are {self._count} key-value pairs", NAMESERVER.key_values_max
            )
        if size > NAMESERVER.key_value_bytes_max and size > self._bytes:
            raise TooManyError(
                f"all key-value pairs would have {size} bytes", NAMESERVER.key_value_bytes_max
            )
        self._namespaces.setdefault(namespace, {})[key] = value
        self._count, self._bytes = count, size

    def get(self, namespace: str, key: str) -> str | None:
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Does nothing if there is no such key."""
        table = self._namespaces.get(namespace, {})
        value = table.pop(key, None)
        if value is not None:
            self._count -= 1
            self._bytes -= _size(namespace, key, value)
            if not table:
                del self._namespaces[namespace]

    def namespace(self, name: str) -> Mapping[str, str] | None:
        """The content of a namespace; None if it is empty."""
        return self._namespaces.get(name)


def _size(namespace: str, key: str, value: str) -> int:
    return len(namespace.encode()) + len(key.encode()) + len(value.encode())
