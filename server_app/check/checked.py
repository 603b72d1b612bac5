"""Check of sites' data on this machine: describe them, list problems, and write a page."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.engines.own_nodes import own_nodes
from florets.reports.folder import write_whole
from florets.server_app.check.findings import Finding, find
from florets.server_app.check.page import write_page
from florets.server_app.data_agreement import agreement, declaration_of, describe_here
from florets.task.data.own import holds_data
from florets.task.data.tables.agreement import Agreed
from florets.task.data.tables.description import Description

NAME = "check.html"


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Parameters
    ----------
    sites
        Description of each site that can be read.
    agreed
        What they have in common; None where they do not fit together.
    findings
        Errors first.
    """

    sites: dict[str, Description]
    agreed: Agreed | None
    findings: list[Finding]

    def save(self, folder: Path, title: str) -> Path:
        """Write ``check.html``, ``check.json`` and ``description.json`` into a folder, and return the page's path."""
        folder.mkdir(parents=True, exist_ok=True)
        described = {key: json.loads(site.to_json()) for key, site in self.sites.items()}
        write_whole(folder / "description.json", json.dumps(described, ensure_ascii=False) + "\n")
        write_whole(folder / "check.json", json.dumps([asdict(one) for one in self.findings], indent=1) + "\n")
        return write_page(folder / NAME, title, self.sites, self.agreed, self.findings)


def check(config: Config, data: Path) -> Checked:
    """Describe each site's data in this process, and return the findings.

    Parameters
    ----------
    config
        Of nodes with data of their own.
    data
        The folder of all sites, or the data of one.

    Raises
    ------
    ConfigError
        If there are no sites, or what is declared contradicts itself.
    """
    declared = declaration_of(config)
    has_folders = data.is_dir() and any(holds_data(path) for path in data.iterdir() if path.is_dir())
    is_one = not config.task.table.owner and not has_folders and holds_data(data)
    nodes = (
        [{"client-id": data.name, "data-dir": str(data)}]
        if is_one
        else own_nodes(replace(config, data_dir=str(data)))
    )
    sites, failed = describe_here(config, nodes)
    agreed = None
    if sites:
        try:
            agreed = agreement(config, declared, sites)
        except ConfigError as error:
            failed[""] = str(error).removesuffix(".")
    return Checked(sites, agreed, find(sites, agreed, failed))
