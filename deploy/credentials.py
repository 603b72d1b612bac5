"""Certificates for TLS and keys for nodes, as `openssl` and `ssh-keygen` make them in docs/deployment.md."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = datetime.timedelta(days=30)


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write ``ca.crt`` and, signed by it, ``server.pem`` with ``server.key``.

    A client accepts the server under the names and addresses in `hosts` alone. The authority's own key is not kept: a
    demonstration signs nothing else.
    """
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = _name("Florets demonstration CA")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    root = (
        _certificate(authority, authority, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    server = (
        _certificate(_name(hosts[0]), authority, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_secret(folder / "server.key", server_key, serialization.PrivateFormat.PKCS8)


def make_node_key(path: Path) -> None:
    """Write a node's private key, and next to it, with ``.pub``, the public one for the SuperLink."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(path, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    # A minute of the past: clocks differ.
    builder = x509.CertificateBuilder().not_valid_before(now - datetime.timedelta(minutes=1))
    builder = builder.not_valid_after(now + _VALID).serial_number(x509.random_serial_number())
    return builder.subject_name(subject).issuer_name(issuer).public_key(key)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_secret(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    # Readable by nobody else from its first byte on; a file or link that is there already is refused.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
