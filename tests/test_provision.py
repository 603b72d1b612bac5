"""Start-up kits: the rules of their YAML file, who can read what, what a second run keeps, and what they start."""

import re
import shutil
import ssl
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from florets.commands.main import main
from florets.conf.problems import ConfigError
from florets.deploy.provision import HOME, Plan, Site, provision, read_plan

HOSTS = ["fl.example.org", "10.0.0.5"]


def site(name: str, **config: str | int | bool) -> Site:
    return Site(name, 9094, {"data-dir": "/srv/data", **config})


def plan(*names: str, **given: object) -> Plan:
    return Plan(**{"addresses": HOSTS, "sites": [site(name) for name in names], **given})  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WRONG = """
server:
  addresses: ["https://fl.example.org", 10.0.0.500, "fe80::1%$(id)"]
  ports: 8000
  bind: everywhere
nodes:
  - {name: St. Mary/2, data-dir: data}
  - {name: north, data-dir: /srv/data, max-epoch: 3, max-steps: 0, device: 1}
  - {name: north, data-dir: /srv, port: 65536}
  - {name: server, data-dir: /srv/../etc, device: tpu}
extra: 1
"""


def test_every_mistake_in_the_file_is_named_before_anything_is_written(tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(WRONG)
    with pytest.raises(ConfigError) as refusal:
        read_plan(file)
    said = "\n".join(refusal.value.problems)
    for text in (
        "extra: unknown key",
        "server.addresses=10.0.0.500: must be a host's name or an IP address",
        "server.ports: unknown key. Did you mean port?",
        "first or last; for example st-mary-2",
        "nodes[north].max-steps=0: must be above 0",
        "nodes[north].name=north: two nodes have this name",
        f"nodes[north].data-dir=/srv: must not hold the node's key ({HOME}/north)",
        "nodes[server].name=server: is the name of a folder of the federation's own",
    ):
        assert text in said
    assert len(refusal.value.problems) == 17
    assert [path.name for path in tmp_path.iterdir()] == ["federation.yaml"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("nodes: []\nnodes: []\n", "a key is given twice"), ("- 1\n", "the file: must hold keys with values")],
)
def test_a_file_of_another_form_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read_plan(file)


def test_the_command_writes_kits_that_nobody_else_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "heart.yaml", tmp_path / "heart"
    nodes = [
        {"name": name, "data-dir": "/srv/data", "allow": "my_data", "max-epochs": 20} for name in ("north", "south")
    ]
    file.write_text(yaml.safe_dump({"server": {"addresses": HOSTS}, "nodes": nodes}))
    assert main(["provision", str(file)]) == 0
    assert f"Kits in {folder}, new: server, north, south" in capsys.readouterr().out
    for path in (folder, *folder.rglob("*")):
        executable = path.is_dir() or path.suffix == ".sh"
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if executable else 0o600), path
    private = {path for path, content in contents(folder).items() if b"PRIVATE KEY" in content}
    assert private == {"authority/ca.key", "server/server.key", "north/node.key", "south/node.key"}
    keys = {
        name: load_ssh_private_key((folder / name / "node.key").read_bytes(), None) for name in ("north", "south")
    }
    for name, key in keys.items():
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        public = load_ssh_public_key((folder / "server" / "nodes" / f"{name}.pub").read_bytes())
        assert key.public_key() == public
    assert keys["north"].private_numbers() != keys["south"].private_numbers()  # type: ignore[union-attr]
    config = (folder / "north" / "node.toml").read_text()
    for line in ('client-id = "north"', 'data-dir = "/srv/data"', 'allow = "my_data"', "max-epochs = 20"):
        assert f"\n{line}\n" in config
    assert main(["provision", str(file)]) == 2
    assert "has the kits of all 2 nodes and of the server, and none is overwritten" in capsys.readouterr().err


def test_the_servers_certificate_is_signed_by_the_authority_for_its_hosts(tmp_path: Path) -> None:
    provision(plan("north"), tmp_path)
    root, server = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
        for name in ("north/ca.crt", "server/server.pem")
    )
    server.verify_directly_issued_by(root)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    # The server's own processes and command line come over loopback.
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(host) for host in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "127.0.0.1", "::1"]
    # The key belongs to the certificate, or this raises.
    files = (tmp_path / "server" / name for name in ("server.pem", "server.key"))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)


def test_a_node_is_added_and_all_else_is_kept(tmp_path: Path) -> None:
    provision(plan("north", "south"), tmp_path)
    # Given to its site.
    shutil.rmtree(tmp_path / "south")
    before = contents(tmp_path)
    assert provision(plan("north", "south", "east"), tmp_path) == ["east"]
    after = contents(tmp_path)
    del before["server/federation.yaml"]
    assert {path: after[path] for path in before} == before
    # South's owner has left: its kit's values stay known.
    assert provision(plan("north", "east", "west"), tmp_path) == ["west"]
    assert [each.name for each in read_plan(tmp_path / "server" / "federation.yaml").sites] == [
        *("north", "east", "west", "south")
    ]
    after = contents(tmp_path)
    assert {path for path in after.keys() - before.keys() if path[:5] not in ("east/", "west/")} == {
        *("server/nodes/east.pub", "server/nodes/west.pub", "server/federation.yaml")
    }


def test_a_node_and_the_server_get_new_keys_where_the_old_ones_were_moved_away(tmp_path: Path) -> None:
    provision(plan("north", "south"), tmp_path)
    before = contents(tmp_path)
    (tmp_path / "server" / "nodes" / "north.pub").unlink()
    with pytest.raises(ConfigError, match=r"north/ exists, and server/nodes/north.pub does not; move the one away"):
        provision(plan("north", "south"), tmp_path)
    shutil.rmtree(tmp_path / "north")
    assert provision(plan("north", "south"), tmp_path) == ["north"]
    renewed = {"north/node.key", "server/nodes/north.pub"}
    assert {path for path, content in contents(tmp_path).items() if content != before[path]} == renewed
    with pytest.raises(
        ConfigError, match=r"server.addresses=\[other\]: the certificate in .* is for fl.example.org, "
    ):
        provision(plan("north", "south", addresses=["other"]), tmp_path)
    for name in ("server.pem", "server.key"):
        (tmp_path / "server" / name).unlink()
    assert provision(plan("north", "south", addresses=["other"]), tmp_path) == []
    renewed |= {"server/server.pem", "server/server.key", "server/federation.yaml"}
    assert {path for path, content in contents(tmp_path).items() if content != before[path]} == renewed


def test_systemd_and_compose_start_the_same_file_which_starts_flower(tmp_path: Path) -> None:
    provision(plan("north"), tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    started = {}
    for name, program in (("north", "florets"), ("server", "flower-superlink")):
        (programs / program).write_text('#!/bin/sh\npwd; umask; echo "$FLWR_HOME"; echo "$@"\n')
        (programs / program).chmod(0o755)
        kit = tmp_path / name
        (half := kit / "state" / "flwr" / "apps" / "half").mkdir(parents=True)
        settings = {"PATH": f"{programs}:/usr/bin:/bin"}
        said = subprocess.run([kit / "start.sh"], env=settings, cwd="/", capture_output=True, text=True, check=True)
        *place, started[name] = said.stdout.replace(f"{kit}/", "").splitlines()
        assert place == ["state", "0077", "state/flwr"]
        assert not half.exists()
        start = f"{HOME}/{name}/start.sh"
        (service,) = yaml.safe_load((kit / "compose.yaml").read_text())["services"].values()
        mounts = {mount["target"]: mount["bind"]["create_host_path"] for mount in service["volumes"]}
        data = {"/srv/data"} if name == "north" else set()
        assert mounts == dict.fromkeys({f"{HOME}/{name}", f"{HOME}/{name}/state", *data}, False)
        assert (service["command"], service["read_only"], service["user"]) == ([start], True, "10001:10001")
        assert f"\nExecStart={start}\n" in (kit / "systemd" / f"florets-{name}.service").read_text()
    assert started == {
        "north": "node start approved=approved.json --superlink fl.example.org:8000 --root-certificates ca.crt "
        "--auth-supernode-private-key node.key --node-config node.toml --port 9094",
        "server": "--host 0.0.0.0 --port 8000 --database state/state.db --enable-supernode-auth --ssl-ca-certfile "
        "ca.crt --ssl-certfile server.pem --ssl-keyfile server.key",
    }


# Stands in for Flower's command line: notes what it is asked, and gives each key the next ID.
FLWR = """#!/bin/sh
echo "$2 $3" >> asked
if [ "$2" = unregister ] && [ -e unreachable ]; then exit 1; fi
if [ "$2" = register ]; then printf '{\\n  "success": true,\\n  "node-id": "%s"\\n}' "$(wc -l < asked)"; fi
"""


def test_keys_are_registered_once_and_a_new_one_replaces_the_old(tmp_path: Path) -> None:
    provision(plan("north", "south"), tmp_path / "kits")
    server = tmp_path / "kits" / "server"
    (tmp_path / "flwr").write_text(FLWR)
    (tmp_path / "flwr").chmod(0o755)

    def run(*command: str, rc: int = 0) -> tuple[str, list[str]]:
        (tmp_path / "asked").write_text("before\n")
        settings = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(
            [server / command[0], *command[1:]],
            env=settings,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == rc, done.stderr
        return done.stdout if rc == 0 else done.stderr, (tmp_path / "asked").read_text().replace(
            f"{server}/", ""
        ).split("\n")[1:-1]

    said, asked = run("register.sh")
    assert asked == ["register nodes/north.pub", "register nodes/south.pub", "list "]
    assert said == "north: node ID 2\nsouth: node ID 3\n"
    assert run("register.sh")[1] == ["list "]
    (server / "nodes" / "north.pub").write_text("a new key")
    # While the old key cannot be revoked, its ID stays known.
    (tmp_path / "unreachable").touch()
    said, asked = run("register.sh", rc=1)
    assert asked == ["unregister 2"]
    assert "north: node ID 2 is not revoked" in said
    (tmp_path / "unreachable").unlink()
    assert run("register.sh")[1] == ["unregister 2", "register nodes/north.pub", "list "]
    assert run("revoke.sh", "north")[1] == ["unregister 3"]
    for arguments in (["north"], ["sooth"], [], ["../nodes/south"]):
        said, asked = run("revoke.sh", *arguments, rc=2)
        assert said.startswith("usage: ./revoke.sh <name>.")
        assert asked == []
    assert run("register.sh")[0] == "north: revoked\nsouth: node ID 3\n"
    # Flower's own settings follow a kit that is copied.
    shutil.copytree(server, tmp_path / "copy")
    subprocess.run(
        [tmp_path / "copy" / "flwr.sh"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, cwd=tmp_path, check=True
    )
    settings = (tmp_path / "copy" / "state" / "flwr" / "config.toml").read_text()
    assert tomllib.loads(settings)["superlink"]["federation"] == {
        **{"address": "127.0.0.1:8000", "root-certificates": f"{tmp_path}/copy/ca.crt"}
    }


def test_a_container_listens_everywhere_inside_and_publishes_the_servers_address(tmp_path: Path) -> None:
    provision(plan("north", bind="10.0.0.5"), tmp_path)
    compose = yaml.safe_load((tmp_path / "server" / "compose.yaml").read_text())["services"]["server"]
    assert compose["environment"] == {"FLORETS_LISTEN": "0.0.0.0"}
    assert compose["ports"] == [{"target": 8000, "published": "8000", "host_ip": "10.0.0.5"}]
    assert "florets[server]" in (tmp_path / "server" / "image" / "Dockerfile").read_text()
    start = (tmp_path / "server" / "start.sh").read_text()
    assert '--host "${FLORETS_LISTEN:-10.0.0.5}" --port 8000' in start
