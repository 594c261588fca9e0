"""The section ``[security]`` of a ``node.toml`` and of a NameServer's file.

The defaults count if the section exists. Without it everything is off (:data:`SECURITY_OFF`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from broker.config.setting import Allowed, Setting, one_of

OFF, DISABLED, PERMISSIVE, ENFORCING = "off", "disabled", "permissive", "enforcing"

SECURITY_SETTINGS = (
    Setting(
        key="directory",
        kind=str,
        default="security",
        doc="The directory of its files, relative to this file; `dledger security init` "
        "writes them.",
        allowed=Allowed(lambda text: "\0" not in text, "a path"),
    ),
    Setting(
        key="peers",
        kind=str,
        default=ENFORCING,
        doc="Mutual TLS between nodes.",
        allowed=one_of(OFF, PERMISSIVE, ENFORCING),
    ),
    Setting(
        key="tls",
        kind=str,
        default=PERMISSIVE,
        doc="TLS on the ports of clients (remoting, HTTP), detected by the first byte.",
        allowed=one_of(DISABLED, PERMISSIVE, ENFORCING),
    ),
    Setting(
        key="access_control",
        kind=str,
        default=ENFORCING,
        doc="Signatures and permissions; permissive only counts and logs refusals.",
        allowed=one_of(OFF, PERMISSIVE, ENFORCING),
    ),
)


class SecurityFiles(NamedTuple):
    """The files of a security directory. The admin's profile has ``access_key``, ``secret_key`` and
    ``ca``, a path relative to the profile."""

    directory: str

    @property
    def ca(self) -> str:
        """The trusted certificates."""
        return os.path.join(self.directory, "ca.pem")

    @property
    def ca_key(self) -> str:
        """The key of the certificate authority. Nodes do not need it."""
        return os.path.join(self.directory, "ca-key.pem")

    @property
    def cluster_secret(self) -> str:
        """The cluster secret: lines of 64 hexadecimal digits."""
        return os.path.join(self.directory, "cluster-secret")

    @property
    def revoked(self) -> str:
        """The serial numbers of revoked certificates; the file may be missing."""
        return os.path.join(self.directory, "revoked")

    @property
    def admin_profile(self) -> str:
        """The profile of the first admin."""
        return os.path.join(self.directory, "admin.toml")

    def certificate(self, name: str) -> str:
        """The certificate of a node ``group/n0``, ``group-n0.pem``, or of a NameServer."""
        return os.path.join(self.directory, f"{name.replace('/', '-')}.pem")

    def key(self, name: str) -> str:
        """The private key of :meth:`certificate`."""
        return os.path.join(self.directory, f"{name.replace('/', '-')}-key.pem")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """The settings of ``[security]``. ``directory`` is absolute, or empty if everything is off."""

    directory: str = ""
    peers: str = OFF
    tls: str = DISABLED
    access_control: str = OFF

    @property
    def protects(self) -> bool:
        """Whether anything is switched on, also if permissive."""
        return self != SecurityConfig(directory=self.directory)

    @property
    def files(self) -> SecurityFiles:
        """The files of the directory."""
        return SecurityFiles(self.directory)


EXPOSED = (
    "INSECURE: other machines reach this server, and anyone there may read, change and delete "
    "everything; see docs/security.md"
)
"""The warning for a server that other machines reach only because of ``insecure = true``."""

SECURITY_OFF = SecurityConfig()
"""The settings without the section."""
