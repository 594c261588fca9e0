"""Which node a certificate names, and so which node a peer may claim to be.

A certificate's subject alternative name is a URI: ``dledger://CLUSTER/GROUP/NODE`` of a node, and
``dledger://CLUSTER/NAME`` of a NameServer. Checking that a trusted authority has signed the
certificate is the business of TLS (:mod:`dledger.wire.tls_contexts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from dledger.errors import PeerError
from dledger.wire.greeting import Greeting, check_address
from dledger.wire.revoked_certificates import RevokedCertificates
from dledger.wire.tls_contexts import TlsContexts

SCHEME = "dledger://"


class PeerIdentity(NamedTuple):
    """Whom a certificate names. ``group`` is empty for a NameServer."""

    cluster: str
    group: str
    node: str

    @property
    def uri(self) -> str:
        """The subject alternative name."""
        return SCHEME + "/".join(filter(None, self))

    def __str__(self) -> str:
        return self.uri


def identity_in(certificate: Mapping[str, Any] | None) -> PeerIdentity | None:
    """Of a verified certificate, as :meth:`ssl.SSLObject.getpeercert` gives it. None if it names
    nobody of ours, or more than one."""
    found = [
        value
        for kind, value in (certificate or {}).get("subjectAltName", ())
        if kind == "URI" and value.startswith(SCHEME)
    ]
    if len(found) != 1:
        return None
    match found[0].removeprefix(SCHEME).split("/"):
        case [cluster, group, node] if cluster and group and node:
            return PeerIdentity(cluster, group, node)
        case [cluster, name] if cluster and name:
            return PeerIdentity(cluster, "", name)
        case _:
            return None


def identity_of(transport: asyncio.BaseTransport | None) -> PeerIdentity | None:
    """Of who is at the other end of a connection. None without TLS."""
    return identity_in(transport.get_extra_info("peercert")) if transport is not None else None


class Admission(NamedTuple):
    """Decides with whom a node talks. ``own`` is the node. ``revoked`` certificates name nobody.

    On a connection over TLS the certificate must name the peer. ``required`` refuses every other
    connection; otherwise it is believed what it says.
    """

    own: PeerIdentity
    required: bool
    revoked: RevokedCertificates | None = None

    def certified(self, transport: asyncio.BaseTransport | None) -> PeerIdentity | None:
        """Who is at the other end of a connection; None without TLS. Raises
        :class:`~dledger.errors.PeerError` if the certificate is revoked."""
        found = identity_of(transport)
        if found is not None and transport is not None and self.revoked is not None:
            serial = transport.get_extra_info("peercert")["serialNumber"]
            if serial in self.revoked:
                raise PeerError(f"the certificate {serial} of {found} is revoked")
        return found

    def check_connected(self, certified: PeerIdentity | None) -> None:
        """Checks that whoever dialled may say anything at all. Raises
        :class:`~dledger.errors.PeerError`."""
        if certified is None:
            if self.required:
                raise PeerError("it has no certificate of a node")
        elif certified[:2] != self.own[:2]:
            raise PeerError(f"its certificate is of {certified}, we are {self.own}")

    def check_greeting(
        self, greeting: Greeting, certified: PeerIdentity | None, remote: str, known: str | None
    ) -> None:
        """Checks that whoever dialled from the host ``remote`` is a peer, and is the one that it
        claims to be. ``known`` is the address of that peer as far as it is known.

        Raises :class:`~dledger.errors.PeerError`.
        """
        group, node, address = greeting
        if group != self.own.group:
            raise PeerError(f"it is of group {group!r:.100}, we are of {self.own.group}")
        if node == self.own.node:
            raise PeerError(f"{node} at {address} is no peer of {self.own.node}")
        self.check_connected(certified)
        self._check_name(node, certified)
        check_address(greeting, remote, known)

    def check_dialled(self, peer: str, certified: PeerIdentity | None) -> None:
        """Checks that ``peer``, whom we dialled, has answered. Raises
        :class:`~dledger.errors.PeerError`."""
        self.check_connected(certified)
        self._check_name(peer, certified)

    def _check_name(self, node: str, certified: PeerIdentity | None) -> None:
        wanted = self.own._replace(node=node)
        if certified is not None and certified != wanted:
            raise PeerError(f"its certificate is of {certified}, not of {wanted}")


class PeerSecurity(NamedTuple):
    """What a node shows its peers, and what it asks of them."""

    contexts: TlsContexts
    admission: Admission
