"""Parts of the demonstration that need no process: certificates, keys, following a run, what it cost."""

import json
import ssl
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from deploy import demo
from deploy.credentials import make_certificates, make_node_key
from deploy.federation import DeploymentError, Federation


def test_the_servers_certificate_is_signed_by_the_authority_for_its_hosts(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["127.0.0.1", "localhost"])
    root, server = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes()) for name in ("ca.crt", "server.pem")
    )
    server.verify_directly_issued_by(root)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(host) for host in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    # The key belongs to the certificate, or this raises.
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    assert not list(tmp_path.glob("ca.key"))


def test_a_nodes_key_has_the_form_that_flower_reads_and_is_its_owners_alone(tmp_path: Path) -> None:
    make_node_key(tmp_path / "node")
    private = load_ssh_private_key((tmp_path / "node").read_bytes(), None)
    public = load_ssh_public_key((tmp_path / "node.pub").read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.public_key() == public
    assert stat.S_IMODE((tmp_path / "node").stat().st_mode) == 0o600


LINES = [
    {"round": 1, "phase": "clustering", "ari": 0.0, "accuracy": None, "evaluated": 0, "seconds": {"total": 4.0}},
    {
        "round": 2,
        "phase": "clustering",
        "ari": 1.0,
        "accuracy": 0.5,
        "evaluated": 4,
        "seconds": {"losses": 2.0, "total": 9.0},
    },
]


def fake(status: str, details: str = "") -> Federation:
    return cast(Federation, SimpleNamespace(status=lambda _: (status, details), log=lambda _: "its log"))


def finished(results: Path) -> Path:
    folder = results / "own_data" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    (folder / "report.html").write_text("")
    return folder


def test_a_run_is_told_to_its_last_round_and_costed(tmp_path: Path, capsys: Any) -> None:
    folder = finished(tmp_path)
    assert demo.follow(fake("finished:completed"), "1", tmp_path) == folder
    demo.print_costs(demo.rounds_of(folder))
    said = capsys.readouterr().out
    assert "Round 1 (clustering): ARI 0.00\n" in said
    assert "Round 2 (clustering): ARI 1.00, accuracy 50.0 %\n" in said
    assert [line.split() for line in said.splitlines() if line.strip()][-2:] == [
        ["2", "clustering", "3", "9.0", "3.0"],
        ["all", "4", "13.0", "3.2"],
    ]


def test_a_run_that_fails_ends_the_demonstration_with_the_reason(tmp_path: Path) -> None:
    finished(tmp_path)
    with pytest.raises(DeploymentError, match="the run ended as finished:failed: no client is online\nits log"):
        demo.follow(fake("finished:failed", "no client is online"), "1", tmp_path)
