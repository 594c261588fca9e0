"""The section ``[security]`` of a ``node.toml`` and of a NameServer's file.

The defaults hold once the section exists. Without it all is off (:data:`SECURITY_OFF`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from broker.config.setting import Allowed, Setting, one_of

OFF, DISABLED, PERMISSIVE, ENFORCING = "off", "disabled", "permissive", "enforcing"

SECURITY_SETTINGS = (
    Setting(
        key="directory",
        kind=str,
        default="security",
        doc="Where its files are, relative to the file that names it; `dledger security init` "
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
        doc="TLS on the ports of clients (remoting, HTTP), found by the first byte.",
        allowed=one_of(DISABLED, PERMISSIVE, ENFORCING),
    ),
    Setting(
        key="access_control",
        kind=str,
        default=ENFORCING,
        doc="Signatures and permissions; permissive counts and logs what it would refuse.",
        allowed=one_of(OFF, PERMISSIVE, ENFORCING),
    ),
)


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
    def revoked(self) -> str:
        """The serial numbers of certificates that count no more; it may be missing."""
        return os.path.join(self.directory, "revoked")

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
    """The settings of ``[security]``. ``directory`` is absolute, or empty if all is off."""

    directory: str = ""
    peers: str = OFF
    tls: str = DISABLED
    access_control: str = OFF

    @property
    def protects(self) -> bool:
        """Whether anything is switched on, if only permissively."""
        return self != SecurityConfig(directory=self.directory)

    @property
    def files(self) -> SecurityFiles:
        """Where its files are."""
        return SecurityFiles(self.directory)


EXPOSED = (
    "INSECURE: other machines reach this server, and whoever does may read, change and delete "
    "everything; see docs/security.md"
)
"""What is said of a server to which nothing but ``insecure = true`` lets others."""

SECURITY_OFF = SecurityConfig()
"""What holds without the section."""
