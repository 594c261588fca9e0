"""The credentials of a client: its keys, and the authority that it trusts.

A profile is a TOML file. ``ca`` is relative to the file; if it is set, the client uses TLS::

    access_key = "admin-7f3a"
    secret_key = "..."
    ca = "ca.pem"
    namesrv = "10.0.0.9:9876"

A file of clusters has a profile in a table for each cluster, under a name that the user chooses::

    [production]
    namesrv = "10.0.0.9:9876;10.0.1.9:9876"
    access_key = "..."

It is ``$DLEDGER_CLUSTERS``, or ``dledger/clusters.toml`` in the user's configuration directory. In
the environment ``DLEDGER_PROFILE`` names a profile or a cluster, and ``DLEDGER_ACCESS_KEY``,
``DLEDGER_SECRET_KEY`` and ``DLEDGER_CA`` override it.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from broker.security.accounts import AccountError, check_access_key, check_secret_key
from broker.security.signature import ACCESS_KEY, ON_BEHALF, SIGNATURE, signature_of
from broker.system.bounded_file_read import read_bounded
from store.io.filesystem import Bytes

PROFILE_SIZE_MAX = 64 << 10
"""Setting: bytes of a profile."""

PROFILE_VARIABLE = "DLEDGER_PROFILE"
ACCESS_KEY_VARIABLE = "DLEDGER_ACCESS_KEY"
SECRET_KEY_VARIABLE = "DLEDGER_SECRET_KEY"  # noqa: S105 - the name of a variable
CA_VARIABLE = "DLEDGER_CA"
CLUSTERS_VARIABLE = "DLEDGER_CLUSTERS"
CLUSTER_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
PROFILE_KEYS = ("access_key", "secret_key", "ca", "namesrv")


class CredentialsError(ValueError):
    """An unusable profile or environment. The text never repeats a key."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of one account."""

    access_key: str
    secret_key: str = field(repr=False)

    def sign(self, ext: Mapping[str, str] | None, body: Sequence[Bytes]) -> dict[str, str]:
        """The ext fields with those of the signature."""
        signed = {**(ext or {}), ACCESS_KEY: self.access_key}
        signed[SIGNATURE] = signature_of(self.secret_key.encode(), signed, body).decode()
        return signed

    def http_header(self) -> dict[str, str]:
        """The header ``Authorization`` of an HTTP request (RFC 7617)."""
        told = base64.b64encode(f"{self.access_key}:{self.secret_key}".encode()).decode()
        return {"Authorization": f"Basic {told}"}


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The keys of a client, and the authority that it trusts. ``ca`` is a file, empty for no TLS.
    With ``plain_too`` a server without TLS is asked without TLS. With ``on_behalf`` a request is
    that of somebody else: no white list lets it pass for the address of this machine."""

    credentials: Credentials | None = None
    ca: str = ""
    plain_too: bool = False
    on_behalf: bool = False

    def sign(self) -> Callable[[Mapping[str, str] | None, Sequence[Bytes]], dict[str, str]] | None:
        """What adds the fields that say who asks to a request; None if nothing does."""
        keys = self.credentials
        if not self.on_behalf:
            return None if keys is None else keys.sign

        def sign(ext: Mapping[str, str] | None, body: Sequence[Bytes]) -> dict[str, str]:
            told = {**(ext or {}), ON_BEHALF: "true"}
            return told if keys is None else keys.sign(told, body)

        return sign

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for connections, or None without TLS. Raises :class:`CredentialsError`.

        A certificate is accepted if the cluster's authority has signed it. It names a node, not a
        host, so it is not compared with the address.
        """
        if not self.ca:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        try:
            context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            raise CredentialsError(f"{self.ca}: cannot be read: {error}") from error
        return context


NO_SECURITY = ClientSecurity()


class Profile(NamedTuple):
    """A profile. ``namesrv`` is empty if the profile has none."""

    security: ClientSecurity
    namesrv: str


def read_profile(name: str) -> ClientSecurity:
    """The security part of :func:`open_profile`."""
    return open_profile(name).security


def open_profile(name: str) -> Profile:
    """The profile in a file; a name that is not a file is that of a cluster.

    Raises :class:`CredentialsError` with the file and the mistake.
    """
    if os.path.exists(name) or not CLUSTER_NAME.fullmatch(name):
        return _profile(name, name, _toml(name))
    path = clusters_file(os.environ)
    clusters = _clusters(path)
    if name not in clusters:
        known = ", ".join(clusters)
        raise CredentialsError(f"{path}: has no cluster {name}; there are {known or 'none'}")
    return _profile(path, f"{path}: {name}", clusters[name])


def cluster_names(environment: Mapping[str, str]) -> list[str]:
    """The names in the user's file of clusters. Raises :class:`CredentialsError`."""
    return [*_clusters(clusters_file(environment))]


def _clusters(path: str) -> dict[str, dict[str, Any]]:
    return {key: value for key, value in _toml(path).items() if isinstance(value, dict)}


def clusters_file(environment: Mapping[str, str]) -> str:
    """The path of the user's file of clusters."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return environment.get(CLUSTERS_VARIABLE) or os.path.join(home, "dledger", "clusters.toml")


def _toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read_bounded(path, PROFILE_SIZE_MAX).decode())
    except OSError as error:
        raise CredentialsError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise CredentialsError(f"{path}: is not TOML") from None


def _profile(path: str, told: str, given: Mapping[str, Any]) -> Profile:
    for key, value in given.items():
        if key not in PROFILE_KEYS or type(value) is not str:
            raise CredentialsError(
                f"{told}: {key[:80]!r}: a profile has {', '.join(PROFILE_KEYS)}, all strings"
            )
    try:
        keys = _credentials(given.get("access_key", ""), given.get("secret_key", ""))
    except CredentialsError as error:
        raise CredentialsError(f"{told}: {error}") from None
    ca = given.get("ca", "")
    security = ClientSecurity(keys, os.path.join(os.path.dirname(path), ca) if ca else "")
    return Profile(security, given.get("namesrv", ""))


def security_from(environment: Mapping[str, str]) -> ClientSecurity:
    """The security by the environment variables. Raises :class:`CredentialsError`."""
    profile = environment.get(PROFILE_VARIABLE, "")
    found = read_profile(profile) if profile else NO_SECURITY
    access_key = environment.get(ACCESS_KEY_VARIABLE, "")
    secret_key = environment.get(SECRET_KEY_VARIABLE, "")
    if access_key or secret_key:
        found = replace(found, credentials=_credentials(access_key, secret_key))
    ca = environment.get(CA_VARIABLE, "")
    return replace(found, ca=ca) if ca else found


def _credentials(access_key: str, secret_key: str) -> Credentials | None:
    if not access_key and not secret_key:
        return None
    try:
        check_access_key(access_key)
        check_secret_key(secret_key)
    except AccountError as error:
        raise CredentialsError(str(error)) from None
    return Credentials(access_key, secret_key)
