"""Making the files of a cluster's security, and looking at them."""

from __future__ import annotations

import ssl
import stat
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.certificates.certificate_authority import CertificateAuthority, pem_of
from broker.certificates.security_directory import (
    Made,
    SecurityDirectoryError,
    init_directory,
    look_at,
    revoke,
)
from broker.config.security_config import SecurityFiles
from broker.security.cluster_secrets import read_cluster_secrets
from dledger.wire.peer_identity import PeerIdentity
from dledger.wire.revoked_certificates import read_serials
from dledger.wire.tls_contexts import TlsContexts, TlsFiles, TlsFilesError

N0 = PeerIdentity("c", "broker-a", "n0")
N1 = PeerIdentity("c", "broker-a", "n1")
NAMESRV = PeerIdentity("c", "", "namesrv")
FIRST = ["ca-key.pem", "ca.pem", "cluster-secret", "admin.toml"]


def init(directory: Path, *nodes: PeerIdentity, renew: bool = False, days: int = 99) -> Made:
    hosts = {node: ["10.0.0.1", "broker.example.com"] for node in nodes}
    return init_directory(SecurityFiles(str(directory)), "c", hosts, days=days, renew=renew)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def problems(directory: Path, **later: int) -> dict[str, list[str]]:
    now = datetime.now(UTC) + timedelta(**later)
    reports, others = look_at(SecurityFiles(str(directory)), now)
    return {r.file: r.problems for r in reports if r.problems} | ({"": others} if others else {})


def test_one_call_makes_all_that_a_cluster_needs(tmp_path: Path) -> None:
    made = init(tmp_path / "security", N0, NAMESRV)
    files = SecurityFiles(str(tmp_path / "security"))
    assert [*made.written[:4]] == FIRST
    assert made.kept == []
    for name in ("broker-a/n0", "namesrv"):
        TlsContexts(TlsFiles(files.ca, files.certificate(name), files.key(name)))
    secrets = read_cluster_secrets(files.cluster_secret, files.admin_profile)
    assert secrets.admin is not None
    assert tomllib.loads(Path(files.admin_profile).read_text())["ca"] == "ca.pem"
    assert problems(tmp_path / "security") == {}


def test_secret_files_are_their_owners_alone(tmp_path: Path) -> None:
    init(tmp_path / "s", N0)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "s").iterdir()}
    public = {"ca.pem", "broker-a-n0.pem"}
    assert {name for name, mode in modes.items() if mode != 0o600} == public


def test_another_call_adds_what_is_missing_and_touches_nothing_else(tmp_path: Path) -> None:
    init(tmp_path, N0)
    before = contents(tmp_path)
    made = init(tmp_path, N0, N1)
    assert made.written == ["broker-a-n1-key.pem", "broker-a-n1.pem"]
    assert before.items() <= contents(tmp_path).items()


def test_renewing_replaces_certificates_and_no_secret(tmp_path: Path) -> None:
    init(tmp_path, N0)
    before = contents(tmp_path)
    made = init(tmp_path, N0, renew=True)
    after = contents(tmp_path)
    assert made.written == ["broker-a-n0-key.pem", "broker-a-n0.pem"]
    assert {name for name in before if before[name] != after[name]} == {*made.written}
    assert problems(tmp_path) == {}


def test_an_authority_of_another_cluster_certifies_nobody(tmp_path: Path) -> None:
    init(tmp_path, N0)
    with pytest.raises(SecurityDirectoryError, match=r"ca\.pem: is of another cluster than d"):
        init_directory(SecurityFiles(str(tmp_path)), "d", {}, days=1, renew=False)


def test_without_the_key_of_the_authority_nothing_is_made(tmp_path: Path) -> None:
    init(tmp_path, N0)
    (tmp_path / "ca-key.pem").unlink()
    with pytest.raises(SecurityDirectoryError, match=r"ca-key\.pem: No such file"):
        init(tmp_path, N1)
    assert not (tmp_path / "broker-a-n1.pem").exists()
    (tmp_path / "ca-key.pem").write_bytes((tmp_path / "broker-a-n0-key.pem").read_bytes())
    with pytest.raises(SecurityDirectoryError, match="the key fits none of the certificates"):
        init(tmp_path, N1)


def test_an_authority_goes_on_to_certify_beside_another_that_is_trusted(tmp_path: Path) -> None:
    init(tmp_path, N0)
    other = pem_of(CertificateAuthority.create("c").certificate)
    (tmp_path / "ca.pem").write_bytes(other + (tmp_path / "ca.pem").read_bytes())
    init(tmp_path, N1)
    assert problems(tmp_path) == {}


def test_certificates_that_expire_soon_or_have_are_told(tmp_path: Path) -> None:
    init(tmp_path, N0)
    assert problems(tmp_path, days=80) == {"broker-a-n0.pem": ["expires in 18 days"]}
    assert problems(tmp_path, days=100) == {"broker-a-n0.pem": ["has expired"]}


def test_what_is_wrong_with_files_is_told(tmp_path: Path) -> None:
    init(tmp_path, N0, N1)
    other = tmp_path / "other"
    init(other, N0)
    (tmp_path / "broker-a-n0.pem").write_bytes((other / "broker-a-n0.pem").read_bytes())
    (tmp_path / "broker-a-n1.pem").write_bytes(b"no certificate")
    (tmp_path / "cluster-secret").chmod(0o640)
    found = problems(tmp_path)
    assert found["broker-a-n0.pem"] == [
        "is not signed by an authority in ca.pem",
        "has no matching key",
    ]
    assert found["broker-a-n1.pem"][0].startswith("cannot be read: ")
    assert found[""] == ["cluster-secret: others than its owner may read it"]


def test_a_certificate_names_its_node_and_the_hosts_where_clients_find_it(tmp_path: Path) -> None:
    init(tmp_path, N0)
    reports, _ = look_at(SecurityFiles(str(tmp_path)), datetime.now(UTC))
    report = next(each for each in reports if each.file == "broker-a-n0.pem")
    assert report.identity == "dledger://c/broker-a/n0"
    assert report.hosts == ["10.0.0.1", "broker.example.com"]


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
@pytest.mark.parametrize("content", [None, b"", b"junk", b"-----BEGIN CERTIFICATE-----\n"])
def test_a_server_refuses_files_that_it_cannot_use_in_one_line_that_names_them(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    init(tmp_path, N0)
    files = SecurityFiles(str(tmp_path))
    own = TlsFiles(files.ca, files.certificate("broker-a/n0"), files.key("broker-a/n0"))
    path = Path(getattr(own, name))
    secret = Path(own.key).read_text().splitlines()[1]
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(TlsFilesError) as caught:
        TlsContexts(own)
    told = str(caught.value)
    assert str(tmp_path) in told
    assert secret not in told
    assert told.isprintable()


def test_a_key_with_a_password_is_refused_and_none_is_asked_for(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to import

    init(tmp_path, N0)
    path = tmp_path / "broker-a-n0-key.pem"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    with pytest.raises(TlsFilesError):
        TlsContexts(
            TlsFiles(str(tmp_path / "ca.pem"), str(tmp_path / "broker-a-n0.pem"), str(path))
        )


def test_contexts_take_tls_1_3_and_certificates_only(tmp_path: Path) -> None:
    init(tmp_path, N0)
    files = SecurityFiles(str(tmp_path))
    own = TlsFiles(files.ca, files.certificate("broker-a/n0"), files.key("broker-a/n0"))
    contexts = TlsContexts(own)
    for context in (contexts.server_context(), contexts.client_context()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_certificate_is_revoked_by_its_number_and_a_new_one_is_not(tmp_path: Path) -> None:
    init(tmp_path, N0, N1)
    files, now = SecurityFiles(str(tmp_path)), datetime.now(UTC)
    (first,) = revoke(files, ["broker-a/n1"], now)
    assert revoke(files, ["broker-a/n1", "broker-a/n0"], now)[0] == first
    lines = Path(files.revoked).read_text().splitlines()
    assert [line.partition("  # ")[2].partition(",")[0] for line in lines] == [
        "broker-a/n1",
        "broker-a/n0",
    ]
    assert int(first, 16) in read_serials(Path(files.revoked).read_text())
    assert problems(tmp_path) == {f"broker-a-n{n}.pem": ["is revoked"] for n in (0, 1)}
    init(tmp_path, N1, renew=True)
    assert problems(tmp_path) == {"broker-a-n0.pem": ["is revoked"]}


def test_what_cannot_be_revoked_is_told(tmp_path: Path) -> None:
    init(tmp_path, N0)
    files, now = SecurityFiles(str(tmp_path)), datetime.now(UTC)
    with pytest.raises(SecurityDirectoryError, match=r"broker-a-n7\.pem"):
        revoke(files, ["broker-a/n7"], now)
    Path(files.revoked).write_text("nonsense\n")
    with pytest.raises(SecurityDirectoryError, match="line 1 is no serial number"):
        revoke(files, ["broker-a/n0"], now)
