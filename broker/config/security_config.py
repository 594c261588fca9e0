"""The section ``[security]`` of a ``node.toml`` and of a NameServer's file. ::

    [security]
    directory = "security"            # relative to the file that names it; `dledger security init`
                                      # writes it
    peers = "enforcing"               # off, permissive or enforcing: mutual TLS between nodes
    tls = "permissive"                # disabled, permissive or enforcing: TLS on the ports of
                                      # clients (remoting, HTTP), found by the first byte
    access_control = "enforcing"      # off, permissive or enforcing: signatures and permissions;
                                      # permissive counts and logs what it would refuse

These are the defaults once the section exists. Without it all is off (:data:`SECURITY_OFF`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from types import MappingProxyType

from broker.config.setting_checks import require

OFF, DISABLED, PERMISSIVE, ENFORCING = "off", "disabled", "permissive", "enforcing"
MODES = (OFF, PERMISSIVE, ENFORCING)
TLS_MODES = (DISABLED, PERMISSIVE, ENFORCING)

SECTION_DEFAULTS = MappingProxyType(
    {
        "directory": "security",
        "peers": ENFORCING,
        "tls": PERMISSIVE,
        "access_control": ENFORCING,
    }
)
"""What a setting is that a section leaves out."""


@dataclass(frozen=True, slots=True)
class SecurityFiles:
    """The files of a security directory. The admin's profile has the names ``access_key``,
    ``secret_key`` and ``ca``, a path relative to the profile."""

    directory: str

    @property
    def ca(self) -> str:
        """The certificates that are trusted."""
        return os.path.join(self.directory, "ca.pem")

    @property
    def ca_key(self) -> str:
        """The key that makes certificates. Nodes do not need it."""
        return os.path.join(self.directory, "ca-key.pem")

    @property
    def cluster_secret(self) -> str:
        """64 hexadecimal digits."""
        return os.path.join(self.directory, "cluster-secret")

    @property
    def admin_profile(self) -> str:
        """What a client needs to be the first admin."""
        return os.path.join(self.directory, "admin.toml")

    def certificate(self, name: str) -> str:
        """Of the node ``group/n0``, or of a NameServer: ``group-n0.pem``."""
        return os.path.join(self.directory, f"{name.replace('/', '-')}.pem")

    def key(self, name: str) -> str:
        """The private key of :meth:`certificate`."""
        return os.path.join(self.directory, f"{name.replace('/', '-')}-key.pem")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """The settings of ``[security]``. ``directory`` is absolute, or empty where all is off.

    Raises :class:`~broker.config.setting_checks.ConfigError`.
    """

    directory: str = ""
    peers: str = OFF
    tls: str = DISABLED
    access_control: str = OFF

    def __post_init__(self) -> None:
        require("\0" not in self.directory, "security.directory", self.directory, "a path")
        for key, modes in (("peers", MODES), ("tls", TLS_MODES), ("access_control", MODES)):
            value = getattr(self, key)
            wanted = ", ".join(f'"{mode}"' for mode in modes)
            require(value in modes, f"security.{key}", value, wanted)

    @property
    def protects(self) -> bool:
        """Whether anything is switched on, if only permissively."""
        return self != SecurityConfig(directory=self.directory)

    @property
    def files(self) -> SecurityFiles:
        """Where its files are."""
        return SecurityFiles(self.directory)

    def to_toml(self) -> list[str]:
        """The lines of the section."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return ["[security]", *(f"{key} = {json.dumps(value)}" for key, value in values)]


EXPOSED = (
    "INSECURE: other machines reach this server, and whoever does may read, change and delete "
    "everything; see docs/security.md"
)
"""What is said of a server to which nothing but ``insecure = true`` lets others."""

SECURITY_OFF = SecurityConfig()
"""What holds without the section."""
