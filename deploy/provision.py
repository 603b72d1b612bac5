"""Start-up kits of a federation: from one YAML file a folder for the server and one for each node."""

import datetime
import ipaddress
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import tomli_w
import yaml
from jinja2 import DictLoader, Environment, StrictUndefined
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from florets.conf.extras import version
from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.schema import show
from florets.conf.validate import DEVICE
from florets.deploy import credentials
from florets.reports.folder import whole_folder
from florets.task.consent import ALLOW
from florets.task.keys import Mismatch, convert, describe
from florets.task.node_config import (
    ALL_CAPS,
    ANSWERS,
    DATA_DIR,
    LEAST_RECORDS,
    LOG_FOLDER,
    MOST_EPSILON,
)
from florets.task.wire import kinds
from florets.task.wire.leaving import named

HOME = Path("/srv/florets")
"""Folder of a kit on its machine."""
USER_ID = 10001
"""Number of the user that owns a kit, in containers and outside."""
AUTHORITY, SERVER, PUBLIC_KEYS = "authority", "server", "nodes"
"""Folders of a federation that are no node's, and the one of the nodes' public keys in the server's."""
PLAN = "federation.yaml"
"""In the server's kit: the plan that the kits were made from."""

_PAST_PROXIES = """\
# This machine reaches itself past any proxy, and other hosts as before; see `past_proxies` in Florets.
lower="${no_proxy:-${NO_PROXY:-}}" upper="${NO_PROXY:-${no_proxy:-}}" itself=127.0.0.1,localhost,::1
grpc="${no_grpc_proxy:-$lower}"
[ "$lower" = "*" ] || lower="${lower:+$lower,}$itself"
[ "$upper" = "*" ] || upper="${upper:+$upper,}$itself"
export no_proxy="$lower" NO_PROXY="$upper" no_grpc_proxy="${grpc:+$grpc,}$itself"
"""
_SERVER_KEYS: Mapping[str, Any] = {"addresses": list[str], "port": int, "bind": str}
_NODE_KEYS: Mapping[str, Any] = {
    **{"name": str, "port": int, DATA_DIR: str, ALLOW: str, kinds.DEVICE: str, kinds.CLUSTER: int},
    kinds.SHARE_STATISTICS: bool,
    **{
        kinds.NEVER_SEND: str,
        ANSWERS: str,
        LOG_FOLDER: str,
        LEAST_RECORDS: int,
        MOST_EPSILON: float,
    },
    **{cap.key: int for cap in ALL_CAPS},
}
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?")
_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
_PATH = re.compile(r"(/[\w.-]+)+", re.ASCII)
_TEMPLATES = Path(__file__).with_name("kit.md")
"""One after the other, each below a line with its name; Flower packs no other kinds of text into an app."""


@dataclass(frozen=True)
class Site:
    """A node: its name, the SuperNode's own port, and what its node config says."""

    name: str
    port: int
    config: Mapping[str, str | int | bool]


@dataclass(frozen=True)
class Plan:
    """A federation as its YAML file describes it."""

    addresses: Sequence[str]  # Of the server, or names; nodes use the first
    port: int = 8000  # Of the SuperLink
    bind: str = "0.0.0.0"  # Where it listens
    sites: Sequence[Site] = field(default_factory=tuple)

    @property
    def hosts(self) -> list[str]:
        """Names and addresses that the server's certificate is for: those of the file, and its own machine's."""
        listens = [] if ipaddress.ip_address(self.bind).is_unspecified else [self.bind]
        return list(dict.fromkeys([*self.addresses, *listens, "localhost", "127.0.0.1", "::1"]))

    def to_yaml(self) -> bytes:
        """Return the text of a file that `read_plan` reads as this plan."""
        server = {key: getattr(self, key) for key in _SERVER_KEYS}
        server["addresses"] = list(self.addresses)
        nodes = [{"name": site.name, "port": site.port, **site.config} for site in self.sites]
        return yaml.safe_dump({"server": server, "nodes": nodes}, sort_keys=False, allow_unicode=True).encode()


def read_plan(path: Path) -> Plan:
    """Read a federation's YAML file."""
    try:
        values: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); name a YAML file.") from error
    except (ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(
            f"{path}: is not YAML, or a key is given twice ({' '.join(str(error).split())})."
        ) from error
    problems: list[str] = []
    given = _read(values, {"server": dict, "nodes": list}, "", problems)
    server = _read(given.get("server", {}), _SERVER_KEYS, "server.", problems)
    nodes = [
        _read(node, _NODE_KEYS, f"nodes[{_label(node, number)}].", problems)
        for number, node in enumerate(given.get("nodes", ()))
    ]
    problems += [*_server_problems(server), *_node_problems(nodes)]
    if problems:
        raise ConfigError([f"{path.name}: {problem}" for problem in problems])
    sites = [Site(node.pop("name"), node.pop("port", 9094), {DATA_DIR: node.pop(DATA_DIR), **node}) for node in nodes]
    if "bind" in server:
        server["bind"] = _plain(server["bind"])
    server["addresses"] = [_plain(host) for host in server["addresses"]]
    return Plan(**server, sites=sites)


def _label(node: object, number: int) -> object:
    return node.get("name", number) if isinstance(node, Mapping) else number


def _read(values: object, keys: Mapping[str, Any], place: str, problems: list[str]) -> dict[str, Any]:
    """Return the values that are of their keys' types; all else is a problem."""
    if not isinstance(values, Mapping):
        problems.append(f"{place.rstrip('.') or 'the file'}: must hold keys with values ({', '.join(keys)}).")
        return {}
    found = {}
    for key, value in values.items():
        if key not in keys:
            problems.append(f"{place}{key}: unknown key.{did_you_mean(str(key), keys)}")
        elif keys[key] in (dict, list):
            found[key] = value if isinstance(value, keys[key]) else keys[key]()
        else:
            try:
                found[key] = convert(value, keys[key])
            except Mismatch:
                problems.append(f"{place}{key}={show(value)}: must be {describe(keys[key])}.")
    return found


def _server_problems(server: Mapping[str, Any]) -> list[str]:
    problems = []
    if not server.get("addresses"):
        problems.append(
            "server.addresses: is missing or empty; list the names and addresses of the server, that which nodes use "
            "first: addresses: [fl.example.org]."
        )
    problems += [
        f"server.addresses={host}: must be a host's name or an IP address, without https:// and port (key port)."
        for host in server.get("addresses", ())
        if not _is_address(host) and not (_HOST.fullmatch(host) and not host.replace(".", "").isdigit())
    ]
    if not _is_address(bind := server.get("bind", "0.0.0.0")):
        problems.append(f"server.bind={bind}: must be an IP address to listen on; 0.0.0.0 is all of the machine's.")
    return problems + _port_problems(server, "server.")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    # A zone (fe80::1%eth0) means something on one machine only, and may hold any characters.
    return "%" not in text


def _plain(host: str) -> str:
    """Return an address in its usual form, in which certificates hold it, and a name unchanged."""
    return str(ipaddress.ip_address(host)) if _is_address(host) else host


def _port_problems(values: Mapping[str, Any], place: str) -> list[str]:
    port = values.get("port", 1)
    return [] if 1 <= port < 2**16 else [f"{place}port={port}: must be from 1 to 65535."]


def _node_problems(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    problems = [] if nodes else ["nodes: is missing or empty; list one node at least: nodes: [{name: north, ...}]."]
    names = [node.get("name", "") for node in nodes]
    for number, (name, node) in enumerate(zip(names, nodes, strict=True)):
        place = f"nodes[{name or number}]."
        if not _NAME.fullmatch(name):
            near = re.sub(r"[^a-z0-9]+", "-", name.lower())[:48].strip("-") or f"node-{number + 1}"
            rule = "must have 1 to 48 lower-case letters, digits and hyphens, no hyphen first or last"
            problems.append(f"{place}name={name}: {rule}; for example {near}.")
        elif name in (AUTHORITY, SERVER):
            problems.append(f"{place}name={name}: is the name of a folder of the federation's own; take another.")
        elif name in names[:number]:
            problems.append(f"{place}name={name}: two nodes have this name; give each its own.")
        data = node.get(DATA_DIR, "")
        if not _PATH.fullmatch(data) or ".." in data.split("/"):
            rule = "must be the absolute path of the data on the node, of letters, digits and _ . - alone"
            problems.append(f"{place}{DATA_DIR}={data}: {rule}; for example /srv/data.")
        elif (HOME / name).is_relative_to(data):
            problems.append(f"{place}{DATA_DIR}={data}: must not hold the node's key ({HOME / name}).")
        problems += [
            f"{place}{key}={node[key]}: must be above 0."
            for key in (LEAST_RECORDS, MOST_EPSILON, *(cap.key for cap in ALL_CAPS))
            if node.get(key, 1) <= 0
        ]
        try:
            named(node.get(kinds.NEVER_SEND, ""))
        except ValueError as error:
            problems.append(f"{place}{error}.")
        if not DEVICE.fullmatch(device := node.get(kinds.DEVICE, "cpu")):
            problems.append(f"{place}{kinds.DEVICE}={device}: must be cpu, cuda, cuda:<number>, mps or auto.")
        problems += _port_problems(node, place)
    return problems


def provision(plan: Plan, folder: Path) -> list[str]:
    """Write the kits that `folder` lacks, and return the names of the nodes that are new.

    Nothing that exists is overwritten except the server's copy of the plan: in a federation with kits, nodes are
    added, and a server's certificate that was moved away is made anew. A node is known by its public key in the
    server's kit, since its own kit may be at its site. What was interrupted continues.
    """
    server, authority = folder / SERVER, folder / AUTHORITY
    known = {path.stem for path in (server / PUBLIC_KEYS).glob("*.pub")}
    added = [site for site in plan.sites if site.name not in known]
    has_certificate = (server / credentials.SERVER).exists()
    if problems := list(_conflicts(plan, folder, added, known)):
        raise ConfigError(problems)
    if has_certificate and not added:
        raise ConfigError(
            f"to={folder}: has the kits of all {len(plan.sites)} nodes and of the server, and none is overwritten; "
            "add a node to the file, or name a new folder with to=."
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kits = _Kits(plan, authority)
    if not authority.exists():
        with whole_folder(authority) as aside:
            aside.chmod(0o700)
            credentials.make_authority(aside)
    if not server.exists():
        with whole_folder(server) as aside:
            kits.write_server(aside)
            credentials.write_new(aside / PLAN, plan.to_yaml())
    elif not has_certificate:
        credentials.make_server_certificate(authority, server, plan.hosts)
    # Before the nodes: one without a public key is compared with nothing.
    _replace_plan(server / PLAN, plan, known)
    for site in added:
        with whole_folder(folder / site.name) as aside:
            public = kits.write_node(aside, site)
        # Last: what has no public key yet is no node.
        credentials.write_new(server / PUBLIC_KEYS / f"{site.name}.pub", public)
    return [site.name for site in added]


def _replace_plan(file: Path, plan: Plan, known: Collection[str]) -> None:
    """Write the plan, with the known nodes that it no longer names."""
    named = {site.name for site in plan.sites}
    left = [site for site in read_plan(file).sites if site.name in known and site.name not in named]
    aside = file.with_name(f".{file.name}")
    aside.unlink(missing_ok=True)
    credentials.write_new(aside, replace(plan, sites=[*plan.sites, *left]).to_yaml())
    aside.replace(file)


def _changes(before: Plan, plan: Plan, known: Collection[str]) -> Iterator[str]:
    """Yield what kits hold already and the plan has otherwise."""
    if (plan.port, plan.bind) != (before.port, before.bind):
        yield (
            f"server: the kits that exist were made with port={before.port} and bind={before.bind}; restore them, or "
            "name a new folder with to= (new keys for the server and all nodes)."
        )
    sites = {site.name: site for site in before.sites if site.name in known}
    for site in plan.sites:
        if (old := sites.get(site.name, site)) != site:
            yield (
                f"nodes[{site.name}]: its kit was made with {show({'port': old.port, **old.config})}; restore these "
                f"(the site may edit its own node.toml), or move {site.name}/ and "
                f"{SERVER}/{PUBLIC_KEYS}/{site.name}.pub away for a new kit with a new key."
            )


def _conflicts(plan: Plan, folder: Path, added: Sequence[Site], known: Collection[str]) -> list[str]:
    """Return why the kits cannot go into a folder."""
    server, authority = folder / SERVER, folder / AUTHORITY
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return [f"to={folder}: is a file or a link; name a new folder."]
    if not server.is_dir() or not authority.is_dir():
        # An authority without a server is what an interrupted run leaves, and hidden folders that were not renamed.
        unfinished = re.compile(rf"{AUTHORITY}|\.({AUTHORITY}|{SERVER})\.[0-9a-f]+")
        taken = folder.is_dir() and not all(unfinished.fullmatch(path.name) for path in folder.iterdir())
        rule = f"is not empty and lacks a federation's {SERVER}/ or {AUTHORITY}/; bring it back, or name a new folder"
        return [f"to={folder}: {rule}."] if taken else []
    problems = [
        f"to={folder}: {site.name}/ exists, and {SERVER}/{PUBLIC_KEYS}/{site.name}.pub does not; move the one away "
        "for a new key, or bring the other back."
        for site in added
        if (folder / site.name).exists()
    ]
    if (server / PLAN).is_file():
        problems += _changes(read_plan(server / PLAN), plan, known)
    else:
        problems.append(f"to={folder}: {SERVER}/ lacks {PLAN}, the plan of its kits; bring it back.")
    certificate, key = server / credentials.SERVER, server / credentials.SERVER_KEY
    if certificate.exists() != key.exists():
        problems.append(f"to={folder}: {SERVER}/ has one of {certificate.name} and {key.name}; move it away as well.")
    elif certificate.exists() and (hosts := credentials.hosts_of(certificate)) != plan.hosts:
        problems.append(
            f"server.addresses={show(plan.addresses)}: the certificate in {server} is for {', '.join(hosts)}; move "
            f"{certificate.name} and {key.name} away to have a new one signed (nodes connect to the name in their "
            "start.sh)."
        )
    return problems


class _Kits:
    """Writes the files of kits from their templates."""

    def __init__(self, plan: Plan, authority: Path) -> None:
        self._plan, self._authority = plan, authority
        parts = re.split(r"^<!-- file: (\S+) -->\n", _TEMPLATES.read_text(encoding="utf-8"), flags=re.MULTILINE)
        self._templates = Environment(
            loader=DictLoader(dict(zip(parts[1::2], parts[2::2], strict=True))),
            undefined=StrictUndefined,
            trim_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,
        )
        self._templates.filters["quoted"] = lambda value: shlex.quote(str(value))
        listens = ipaddress.ip_address(plan.bind)
        local = "127.0.0.1" if listens.is_unspecified else plan.bind
        flower = ".".join(installed("flwr").split(".")[:2])
        expires = datetime.date.today() + datetime.timedelta(credentials.SERVER_DAYS)
        self._values = {
            "past_proxies": _PAST_PROXIES,
            "address": f"{_bracketed(plan.addresses[0])}:{plan.port}",
            "own_address": f"{_bracketed(local)}:{plan.port}",
            "bind": plan.bind,
            "uid": USER_ID,
            "version": version(),
            "python": "{}.{}".format(*sys.version_info),
            "flower": f"flwr=={flower}.*",
            "expires": expires.isoformat(),
        }

    def write_server(self, folder: Path) -> None:
        """Write the server's kit, without keys of nodes."""
        values: dict[str, Any] = {
            "name": SERVER,
            "title": f"server of the federation at {self._values['address']}",
            "port": self._plan.port,
            "node": {},
        }
        scripts = ("start.sh", "health.sh", "flwr.sh", "register.sh", "revoke.sh")
        values["extra"] = "[server]"
        self._write(folder, values, scripts, {"README.md": "server.README.md"})
        (folder / PUBLIC_KEYS).mkdir(mode=0o700)
        credentials.make_server_certificate(self._authority, folder, self._plan.hosts)

    def write_node(self, folder: Path, site: Site) -> bytes:
        """Write a node's kit and return its public key."""
        values: dict[str, Any] = {
            "name": site.name,
            "title": f"node {site.name} of the federation at {self._values['address']}",
        }
        files = {"README.md": "node.README.md", "node.toml": "node.toml"}
        config = tomli_w.dumps({"client-id": site.name, **site.config})
        values |= {"port": site.port, "node": site.config, "config": config, "extra": ""}
        self._write(folder, values, ("start.sh", "health.sh"), files)
        return credentials.make_node_key(folder / "node.key")

    def _write(self, folder: Path, own: Mapping[str, Any], scripts: Sequence[str], files: Mapping[str, str]) -> None:
        unit = f"florets-{own['name']}"
        packages = [f"florets{own['extra']}=={self._values['version']}", self._values["flower"]]
        # A run may use any device then.
        gpu = own["node"].get(kinds.DEVICE, "cpu") != "cpu"
        values = {**self._values, **own, "unit": unit, "home": HOME / own["name"], "packages": packages, "gpu": gpu}
        files = {
            **{script: script for script in scripts},
            **files,
            **{"compose.yaml": "compose.yaml", "image/Dockerfile": "Dockerfile"},
            f"systemd/{unit}.service": "unit.service",
            **{f"systemd/{unit}-health.{kind}": f"health.{kind}" for kind in ("service", "timer")},
        }
        folder.chmod(0o700)
        for name in ("image", "systemd", "state"):
            (folder / name).mkdir(mode=0o700)
        for name, template in files.items():
            text = self._templates.get_template(template).render(values)
            credentials.write_new(folder / name, text.encode(), 0o700 if name in scripts else 0o600)
        authority = (self._authority / credentials.AUTHORITY).read_bytes()
        credentials.write_new(folder / credentials.AUTHORITY, authority)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
