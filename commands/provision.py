"""`florets provision`: start-up kits for the server and the nodes of a federation."""

from collections.abc import Sequence
from pathlib import Path

from florets.commands.given_keys import read_keys
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.reports.console import say

HELP = """florets provision <federation.yaml> [to=<folder>]
  Write a start-up kit for the server and one for each node of a federation: keys and certificates, node.toml, systemd
  units, compose.yaml with its Dockerfile, the scripts that these start, and a README for the engineer at the site.

  server:
    addresses: [fl.example.org, 10.0.0.5]   names and addresses in the certificate; nodes use the first
    port: 8000                              the only one that nodes and flwr run connect to
  nodes:
    - name: hospital-a
      data-dir: /srv/data                   on the node's machine
      max-epochs: 20                        any key of the node config

Run it again with more nodes to add them: nothing that exists is overwritten.

  to=   folder of the kits, new or with kits of this federation; default: the file's name without .yaml"""


def main(arguments: Sequence[str]) -> int:
    """Write the kits and return the exit code."""
    files = [text for text in arguments if "=" not in text and not text.startswith("-")]
    if len(files) != 1:
        raise ConfigError(f"florets provision: needs one YAML file, and was given {', '.join(files) or 'none'}.")
    given = read_keys("provision", [text for text in arguments if text not in files], ("to",))
    from florets.deploy.credentials import SERVER as CERTIFICATE
    from florets.deploy.provision import SERVER, provision, read_plan

    file = absolute(files[0], Path.cwd())
    folder = absolute(given.get("to", str(file.with_suffix(""))), Path.cwd())
    new = "the server's certificate" if (folder / SERVER).exists() else SERVER
    renewed = not (folder / SERVER / CERTIFICATE).exists()
    added = provision(read_plan(file), folder)
    say(f"Kits in {folder}, new: {', '.join([*([new] if renewed else []), *added])}")
    return 0
