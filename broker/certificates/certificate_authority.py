"""A cluster's own certificate authority, for X.509 certificates on the curve P-256.

A certificate names a node or a NameServer by a URI (:mod:`dledger.wire.peer_identity`), which peers
check, and the hosts on which it listens, which clients check.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dledger.wire.peer_identity import PeerIdentity

CA_DAYS = 3650
_AUTHORITY = "dledger authority of "
BACKDATED = datetime.timedelta(hours=1)
"""How far the start of the validity is in the past, because clocks of other machines may be
behind."""


class AuthorityError(ValueError):
    """The files are not a certificate authority; the text has the reason."""


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """Signs the certificates of one cluster."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, cluster: str) -> Self:
        """Makes a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(_AUTHORITY + cluster)
        builder = _builder(name, name, key, CA_DAYS)
        usage = _key_usage(signs_certificates=True)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(_own_key_id(key), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> Self:
        """The authority in these files: the first certificate that fits the key, because others may
        be trusted too. Raises :class:`AuthorityError`."""
        try:
            key = serialization.load_pem_private_key(key_pem, password=None)
            certificates = x509.load_pem_x509_certificates(certificate_pem)
        except (ValueError, TypeError) as error:
            raise AuthorityError(f"not the PEM files of an authority: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise AuthorityError("the key is of another kind than the authority's")
        for certificate in certificates:
            if certificate.public_key() == key.public_key():
                return cls(certificate, key)
        raise AuthorityError("the key fits none of the certificates")

    def is_of(self, cluster: str) -> bool:
        """Whether it may certify nodes of that cluster. An authority that was made by other tools
        may."""
        name = self.certificate.subject
        return not name.rfc4514_string().startswith(f"CN={_AUTHORITY}") or name == _name(
            _AUTHORITY + cluster
        )

    def issue(self, identity: PeerIdentity, hosts: Iterable[str], days: int) -> tuple[bytes, bytes]:
        """A certificate and its key, as PEM. ``hosts`` are names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("/".join(filter(None, identity)))
        names = [x509.UniformResourceIdentifier(identity.uri), *map(_host, hosts)]
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _builder(name, self.certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(_own_key_id(key), critical=False)
            .add_extension(authority, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return pem_of(certificate), key_pem_of(key)


def pem_of(certificate: x509.Certificate) -> bytes:
    """The certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PEM, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(common_name: str) -> x509.Name:
    # A common name has at most 64 characters, and is not checked.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _own_key_id(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
