"""An address to listen at, and to be dialled at."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple, Self

from broker.config.setting_checks import ConfigError, one_line
from store.quoting import quoted

ENDPOINT_MAX = 40
"""Setting: characters; an IPv4 address and a port have 21 at most."""


class Endpoint(NamedTuple):
    """Where to listen and to be dialled. The host is IPv4: records hold four bytes for it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``host:port``. Raises :class:`ConfigError`."""
        if len(text) > ENDPOINT_MAX:
            raise ConfigError(f'{quoted(text)} is not host:port, such as "127.0.0.1:10911"')
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f'"{one_line(text)}" is not host:port, such as "127.0.0.1:10911"')
        try:
            return cls(str(ipaddress.IPv4Address(host)), int(port))
        except ipaddress.AddressValueError:
            raise ConfigError(f'"{one_line(text)}": the host must be an IPv4 address') from None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can dial it."""
        return ipaddress.IPv4Address(self.host).is_loopback
