"""The settings of one NameServer: the file of ``dledger namesrv --config FILE``, and options."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.node_config import HOST_WITHOUT_PORT, NAME
from broker.config.security_config import OFF, SECURITY_OFF, SECURITY_SETTINGS, SecurityConfig
from broker.config.setting import Allowed, between, one_of, section, setting
from broker.system.log_lines import FORMATS, LEVELS
from broker.system.server_log import LogSettings
from dledger.wire.endpoint import EndpointError, is_loopback, join_host_port, parse_host


def _is_host(text: str) -> bool:
    try:
        return bool(parse_host(text))
    except EndpointError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """The settings of one NameServer."""

    host: str = setting(
        "127.0.0.1",
        "The name or address at which it listens; `::`: all addresses of the machine.",
        allowed=Allowed(_is_host, "a name or an address"),
    )
    port: int = setting(
        9876, "The port of RocketMQ's remoting protocol; 0: any.", allowed=between(0, 65535)
    )
    cluster: str = setting(
        "DefaultCluster",
        "With security on, brokers of other clusters may not register.",
        allowed=NAME,
    )
    name: str = setting("namesrv", "Its name in its certificate, namesrv.pem.", allowed=NAME)
    insecure: bool = setting(False, "true: listens for other machines without protection.")
    http_port: int | None = setting(
        None,
        "The port of /metrics, /livez and /readyz; 0: any; omitted: no HTTP.",
        allowed=between(0, 65535),
        kind=int,
    )
    http_hosts: tuple[str, ...] = setting(
        (),
        "Host names to which HTTP answers, besides localhost, `host` and its own addresses.",
        allowed=HOST_WITHOUT_PORT,
    )
    log_level: str = setting(
        "info", "The lowest level that is logged.", allowed=one_of(*LEVELS), reload=True
    )
    log_format: str = setting(
        "text", "The format of log lines.", allowed=one_of(*FORMATS), reload=True
    )
    security: SecurityConfig = section(SECURITY_OFF, *SECURITY_SETTINGS)

    @property
    def exposed(self) -> bool:
        """Whether other machines reach an unprotected port."""
        open_to_all = self.security.access_control == OFF
        return open_to_all and not is_loopback(self.host)

    @property
    def logging(self) -> LogSettings:
        """The settings of its log."""
        return LogSettings(self.log_level, self.log_format)

    @property
    def at(self) -> str:
        """The configured ``host:port``."""
        return join_host_port(self.host, self.port)
