"""`florets provision`: start-up kits for the server and the nodes of a federation."""

from pathlib import Path

from florets.conf.saved import absolute
from florets.reports.console import say


def provision(file: str, /, *, to: str | Path | None = None) -> None:
    """Write a start-up kit for the server and one for each node of a federation.

    A kit has keys and certificates, node.toml, systemd units, compose.yaml with its Dockerfile, the scripts that they
    start, and a README for the engineer at the site. Run it again with more nodes to add them: nothing that exists is
    overwritten.

    Parameters
    ----------
    file : str
        The federation's YAML file, see below.
    to : str or Path, optional
        Folder of the kits, new or with kits of this federation; by default the file's name without .yaml.

    Notes
    -----
    ::

        server:
          addresses: [fl.example.org, 10.0.0.5]   names and addresses in the certificate; nodes use the first
          port: 8000                              the only one that nodes and flwr run connect to
        nodes:
          - name: hospital-a
            data-dir: /srv/data                   on the node's machine
            max-epochs: 20                        any key of the node config
    """
    from florets.deploy.credentials import SERVER as CERTIFICATE
    from florets.deploy.provision import SERVER, read_plan
    from florets.deploy.provision import provision as write_kits

    path = absolute(file, Path.cwd())
    folder = absolute(str(to or path.with_suffix("")), Path.cwd())
    new = "the server's certificate" if (folder / SERVER).exists() else SERVER
    renewed = not (folder / SERVER / CERTIFICATE).exists()
    added = write_kits(read_plan(path), folder)
    say(f"Kits in {folder}, new: {', '.join([*([new] if renewed else []), *added])}")
