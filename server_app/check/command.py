"""`florets check`: describe the sites' data on this machine, list problems, and write a page."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from florets.conf.compose import OWN_DATA, compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app.check.findings import Finding, find, worst
from florets.server_app.check.page import write_page
from florets.server_app.console import counted, say
from florets.server_app.data_agreement import agreement, declaration_of, describe_here, is_own, lines
from florets.server_app.jobs import absolute
from florets.server_app.own_nodes import own_nodes
from florets.server_app.results.folder import write_whole
from florets.task.data.own import holds_data
from florets.task.data.tables.agreement import Agreed
from florets.task.data.tables.description import Description

HELP = """florets check data_dir=<folder> [target=<column>] [<key>=<value> ...]
  Look at sites' data before anything is trained: a folder (or a table) for each site in data_dir, or the data of one
  site alone before it joins. One line a finding, with its remedy; exit code 1 where a site could not take part.

    florets check data_dir=sites target=disease
    florets check data_dir=pupils.csv target=math owner=school

Page: <results_dir>/check/<name of data_dir>/check.html, with check.json and description.json."""

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
        """Write ``check.html`` and ``check.json`` into a folder, and return the page's path."""
        write_whole(folder / "check.json", json.dumps([asdict(one) for one in self.findings], indent=1) + "\n")
        return write_page(folder / NAME, title, self.sites, self.agreed, self.findings)


def main(arguments: Sequence[str], caller: Path) -> int:
    """Check the data that a command line names, and return the exit code."""
    options = [text for text in arguments if text.startswith("-")]
    if {"-h", "--help"} & set(options):
        print(HELP)
        return 0
    if unknown := [text for text in options if text != "--debug"]:
        raise ConfigError([f"{text}: florets check has no such option (-h, --debug)." for text in unknown])
    overrides = [text for text in arguments if not text.startswith("-")]
    if not any(text.startswith("experiment=") for text in overrides):
        overrides = [f"experiment={OWN_DATA}", *overrides]
    config = compose(overrides)
    if not is_own(config):
        raise ConfigError([f"experiment={config.experiment}: florets check looks at sites' own data; leave it out."])
    data = absolute(config.data_dir, caller)
    found = check(config, data)
    for finding in found.findings:
        say(f"{finding.level:7s} {finding}")
    if found.agreed is not None:
        for line in lines(found.sites, found.agreed):
            say(line)
    folder = absolute(config.results_dir, caller) / "check" / (data.name or "data")
    folder.mkdir(parents=True, exist_ok=True)
    described = {key: json.loads(site.to_json()) for key, site in found.sites.items()}
    write_whole(folder / "description.json", json.dumps(described, ensure_ascii=False) + "\n")
    page = found.save(folder, str(data.name))
    levels = [finding.level for finding in found.findings]
    say(f"{counted(levels.count('error'), 'error')}, {counted(levels.count('warning'), 'warning')}. Page: {page}")
    return 1 if worst(found.findings) == "error" else 0


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
