"""What a NameServer is told: the file of ``dledger namesrv --config FILE``. ::

host = "127.0.0.1"
port = 9876
cluster = "DefaultCluster"      # brokers of other clusters may not register, with security on
name = "namesrv"                # of its certificate, namesrv.pem
insecure = false                # true: listens for other machines though nothing protects it
http_port = 8079                # of /metrics, /livez and /readyz; without it there is no HTTP
log_level = "info"              # or "debug", "warning", "error"
log_format = "text"             # or "json"

[security]                      # see broker/config/security_config.py; without it all is off
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from broker.config.node_config import GROUP_NAME
from broker.config.security_config import SECURITY_OFF, SecurityConfig
from broker.config.setting_checks import require, require_between
from broker.config.toml_file import (
    check_keys,
    parse_toml,
    read_settings,
    refuse_exposed,
    require_types,
    take_security,
    types_of,
)
from broker.system.log_lines import FORMATS, LEVELS
from dledger.wire.endpoint import is_loopback, join_host_port


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """The settings of one NameServer; see the module.

    Raises :class:`~broker.config.setting_checks.ConfigError`.
    """

    host: str = "127.0.0.1"
    port: int = 9876
    cluster: str = "DefaultCluster"
    name: str = "namesrv"
    insecure: bool = False
    http_port: int | None = None
    log_level: str = "info"
    log_format: str = "text"
    security: SecurityConfig = SECURITY_OFF

    def __post_init__(self) -> None:
        for key, name in (("cluster", self.cluster), ("name", self.name)):
            require(GROUP_NAME.fullmatch(name), key, name, "letters, digits, - and _, up to 127")
        require_between("port", self.port, 0, 65535)
        if self.http_port is not None:
            require_between("http_port", self.http_port, 0, 65535)
        require(self.log_level in LEVELS, "log_level", self.log_level, " or ".join(LEVELS))
        require(self.log_format in FORMATS, "log_format", self.log_format, " or ".join(FORMATS))
        require(self.host.isprintable() and self.host, "host", self.host, "a name or an address")

    @property
    def exposed(self) -> bool:
        """Whether others than this machine reach a port that nothing protects."""
        return not self.security.protects and not is_loopback(self.host)

    def refuse_exposed(self) -> None:
        """Raises :class:`~broker.config.setting_checks.ConfigError` where it is exposed and
        ``insecure`` does not say that it shall be."""
        if self.exposed and not self.insecure:
            refuse_exposed("host", join_host_port(self.host, self.port))


def read_name_server_config(path: str, changed: Mapping[str, object]) -> NameServerConfig:
    """Reads and checks a file; ``changed`` settings go before what it says.

    Raises :class:`~broker.config.setting_checks.ConfigError`.
    """
    return read_settings(path, partial(parse_name_server_config, changed=changed))


def parse_name_server_config(
    text: str, directory: str, changed: Mapping[str, object] = MappingProxyType({})
) -> NameServerConfig:
    """As :func:`read_name_server_config`, for a text that would stand in ``directory``."""
    given, types = parse_toml(text), types_of(NameServerConfig)
    check_keys(given, list(types), "")
    take_security(given, directory)
    require_types(given, types)
    config = NameServerConfig(**{**given, **changed})
    config.refuse_exposed()
    return config
