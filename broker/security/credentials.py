"""What a client has to be known by: its keys, and the authority that it believes.

A profile is a TOML file. ``ca`` is relative to it; with it, the client uses TLS::

    access_key = "admin-7f3a"
    secret_key = "..."
    ca = "ca.pem"

The environment says the same: ``DLEDGER_PROFILE`` names a profile, and ``DLEDGER_ACCESS_KEY``,
``DLEDGER_SECRET_KEY`` and ``DLEDGER_CA`` go before what stands in it.
"""

from __future__ import annotations

import base64
import os
import ssl
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from broker.security.accounts import AccountError, check_access_key, check_secret_key
from broker.security.signature import ACCESS_KEY, SIGNATURE, signature_of
from broker.system.bounded_file_read import read_bounded
from store.io.filesystem import Bytes

PROFILE_SIZE_MAX = 64 << 10
"""Setting: bytes of a profile."""

PROFILE_VARIABLE = "DLEDGER_PROFILE"
ACCESS_KEY_VARIABLE = "DLEDGER_ACCESS_KEY"
SECRET_KEY_VARIABLE = "DLEDGER_SECRET_KEY"  # noqa: S105 - the name of a variable
CA_VARIABLE = "DLEDGER_CA"


class CredentialsError(ValueError):
    """A profile or the environment says nothing that can be used. It never repeats a key."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of one account."""

    access_key: str
    secret_key: str = field(repr=False)

    def sign(self, ext: Mapping[str, str] | None, body: Sequence[Bytes]) -> dict[str, str]:
        """The ext fields with those that sign the request."""
        signed = {**(ext or {}), ACCESS_KEY: self.access_key}
        signed[SIGNATURE] = signature_of(self.secret_key.encode(), signed, body).decode()
        return signed

    def http_header(self) -> dict[str, str]:
        """The header of an HTTP request (RFC 7617)."""
        told = base64.b64encode(f"{self.access_key}:{self.secret_key}".encode()).decode()
        return {"Authorization": f"Basic {told}"}


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How a client is known, and whom it believes. ``ca`` is a file, empty for no TLS. With
    ``plain_too`` a server that speaks no TLS is asked without it."""

    credentials: Credentials | None = None
    ca: str = ""
    plain_too: bool = False

    def tls(self) -> ssl.SSLContext | None:
        """For connections, or None. Raises :class:`CredentialsError`.

        A certificate is believed if the cluster's authority has signed it. The name in it is that
        of a node and not of a host, so it is not compared with the address.
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


def read_profile(path: str) -> ClientSecurity:
    """Raises :class:`CredentialsError` naming the file and the fault."""
    try:
        given = tomllib.loads(read_bounded(path, PROFILE_SIZE_MAX).decode())
    except OSError as error:
        raise CredentialsError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise CredentialsError(f"{path}: is not TOML") from None
    for key, value in given.items():
        if key not in {"access_key", "secret_key", "ca"} or type(value) is not str:
            raise CredentialsError(
                f"{path}: {key[:80]!r}: a profile has access_key, secret_key and ca, all strings"
            )
    try:
        keys = _credentials(given.get("access_key", ""), given.get("secret_key", ""))
    except CredentialsError as error:
        raise CredentialsError(f"{path}: {error}") from None
    ca = given.get("ca", "")
    return ClientSecurity(keys, os.path.join(os.path.dirname(path), ca) if ca else "")


def security_from(environment: Mapping[str, str]) -> ClientSecurity:
    """What the variables say. Raises :class:`CredentialsError`."""
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
