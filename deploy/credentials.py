"""Keys and certificates of a federation: its authority, the server's certificate, the nodes' keys."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AUTHORITY_KEY, AUTHORITY = "ca.key", "ca.crt"
SERVER_KEY, SERVER = "server.key", "server.pem"

_AUTHORITY_DAYS, SERVER_DAYS = 3650, 365


def make_authority(folder: Path) -> None:
    """Write the key and the certificate of a new authority."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("Federation CA")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    root = (
        _certificate(name, name, key.public_key(), _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_secret(folder / AUTHORITY_KEY, key, serialization.PrivateFormat.PKCS8)
    write_new(folder / AUTHORITY, root.public_bytes(serialization.Encoding.PEM))


def make_server_certificate(authority: Path, folder: Path, hosts: Sequence[str]) -> None:
    """Write the server's key and its certificate, signed with the key in the folder `authority`.

    A client accepts the server under the names and addresses in `hosts` alone.
    """
    root = x509.load_pem_x509_certificate((authority / AUTHORITY).read_bytes())
    signing = serialization.load_pem_private_key((authority / AUTHORITY_KEY).read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    server = (
        _certificate(_name(hosts[0][:64]), root.subject, key.public_key(), SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .sign(signing, hashes.SHA256())
    )
    _write_secret(folder / SERVER_KEY, key, serialization.PrivateFormat.PKCS8)
    write_new(folder / SERVER, server.public_bytes(serialization.Encoding.PEM))


def hosts_of(certificate: Path) -> list[str]:
    """Return the names and addresses that a certificate is for."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def make_node_key(path: Path) -> bytes:
    """Write a node's private key and return the public one, as the SuperLink registers it."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(path, key, serialization.PrivateFormat.OpenSSH)
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"


def write_new(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file that nobody else can read, from its first byte on; an existing file or link is refused."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    # A minute of the past: clocks differ.
    builder = x509.CertificateBuilder().not_valid_before(now - datetime.timedelta(minutes=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days)).serial_number(x509.random_serial_number())
    return builder.subject_name(subject).issuer_name(issuer).public_key(key)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_secret(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    write_new(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
