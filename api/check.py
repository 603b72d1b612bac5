"""`florets.check`: problems of clients' data on this machine, before anything is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.api.clients import clients_of
from florets.api.keys import overrides_of
from florets.conf.compose import OWN_DATA, compose
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.conf.schema import Config
from florets.engines.own_nodes import own_nodes, stated
from florets.reports.console import counted
from florets.reports.folder import private
from florets.server_app.data_agreement import declaration_of, describe_here, described, lines
from florets.server_app.data_findings import Finding, find
from florets.server_app.own_data import CHECK, is_own, save_findings
from florets.task.data.own import find_files, holds_data
from florets.task.data.tables.agreement import Agreed
from florets.task.data.tables.declaration import Declaration, site_file, unread_files
from florets.task.data.tables.description import Description
from florets.task.data.tables.names import NODE_FILE_WORDS, as_numbers, listed, toml_key
from florets.task.data.tables.site_table import read_once
from florets.task.node_config import CLIENT_ID, DATA_DIR
from florets.task.spec import TaskSpec
from florets.task.wire import kinds

if TYPE_CHECKING:
    import pandas as pd

_REPEATS, _FEWEST_OTHERS = 3, 5
"""Records that have a code for a missing value, and different other values of its column, at least."""


@dataclass(frozen=True, repr=False)
class Check:
    """Findings about clients' data.

    Parameters
    ----------
    folder : Path
        With ``check.json`` and ``description.json``.
    sites : mapping of str to Description
        Of each client that can be read.
    agreed : Agreed, optional
        What they have in common; None where they do not fit together.
    found : list of Finding
        Errors first.
    unfit : list of str
        Clients that cannot take part.
    """

    folder: Path
    sites: Mapping[str, Description]
    agreed: Agreed | None
    found: Sequence[Finding]
    unfit: Sequence[str]

    @property
    def findings(self) -> "pd.DataFrame":
        """A row for each finding, errors first: level, client (empty: all), text, remedy."""
        import pandas as pd

        rows = [(one.level, one.site, one.text, one.remedy) for one in self.found]
        return pd.DataFrame(rows, columns=["level", "client", "text", "remedy"])

    @property
    def is_usable(self) -> bool:
        """Whether every client could take part."""
        return not self._number("error")

    @property
    def text(self) -> str:
        """The findings and what the clients have in common, as the command prints them."""
        texts = [f"{one.level:7s} {one}" for one in self.found]
        texts += [] if self.agreed is None else lines(self.sites, self.agreed)
        if self.unfit:
            texts.append(f"{counted(len(self.unfit), 'site')} cannot take part: {listed(self.unfit)}")
        return "\n".join([*texts, f"{self._counts('error', 'warning')}; {self.folder / CHECK}"])

    def _number(self, level: str) -> int:
        return sum(one.level == level for one in self.found)

    def _counts(self, *levels: str) -> str:
        return ", ".join(counted(self._number(level), level) for level in levels)

    def __repr__(self) -> str:
        kinds = self._counts("error", "warning", "note")
        return f"<florets.Check of {counted(len(self.sites), 'client')}: {kinds}; .findings, .text>"


def check(clients: Any = None, /, **keys: Any) -> Check:
    """Examine clients' data before anything is trained: what they have in common, and what is odd.

    A folder (or a table) for each site in ``data_dir``, or the data of one site before it joins; one line for each
    finding, with its remedy.

    Parameters
    ----------
    clients : Federation, data, or str, optional
        A `Federation` or what it takes, such as a list of data frames with ``target=``; or the name of a preset for
        nodes with data of their own. Without them ``data_dir=`` names a folder with a folder or a table for each.
    **keys
        The keys of the command; the arguments of a `Federation` may stand among them.

    Returns
    -------
    Check
        Its folder is the one that the command would write.

    Raises
    ------
    ConfigError
        If the keys are wrong, or the data have no form that could be read.

    Notes
    -----
    ::

        florets check data_dir=sites target=disease
        florets check data_dir=pupils.csv target=math owner=school

    <results_dir>/check/<name of data_dir>/ has check.json and description.json. Exit code 1: a site could not take
    part.
    """
    experiment, keys, _ = clients_of(clients, keys, fewest=1)
    overrides, caller = overrides_of(experiment, keys), Path.cwd()
    if not any(text.startswith("experiment=") for text in overrides):
        overrides = [f"experiment={OWN_DATA}", *overrides]
    config = compose(overrides)
    if not is_own(config):
        raise ConfigError(f"experiment={config.experiment}: florets check looks at sites' own data; leave it out.")
    data = absolute(config.data_dir, caller)
    folder = absolute(config.results_dir, caller) / "check" / (data.name or "data")
    return check_here(config, data, folder)


def check_here(config: Config, data: Path, folder: Path) -> Check:
    """Describe each site's data in this process, and write the findings into a folder.

    `data` is the folder of all sites, or the data of one.
    """
    has_folders = data.is_dir() and any(holds_data(path) for path in data.iterdir() if path.is_dir())
    is_one = not config.task.table.owner and not has_folders and holds_data(data)
    nodes = (
        [{CLIENT_ID: data.name, **stated(site_file(data)), DATA_DIR: str(data)}]
        if is_one
        else own_nodes(replace(config, data_dir=str(data)))
    )
    failed: dict[str, str] = {}
    sites: dict[str, Description] = {}
    agreed = None

    def describe(spec: TaskSpec) -> dict[str, Description]:
        found = describe_here([node for node in nodes if str(node[CLIENT_ID]) not in failed], spec, failed)
        sites.update(found)
        return found

    try:
        final, agreed = described(config, describe, again=True)
        sites.update(final)
    except ConfigError as error:
        failed |= {} if len(failed) == len(nodes) else {"": str(error).removesuffix(".")}
    if agreed is not None:
        # Described again, a site that was left out fails for the same reason.
        failed = {key: reason for key, reason in failed.items() if key not in agreed.left_out}
    findings = find(sites, agreed, failed)
    more = _codes(declaration_of(config), nodes, sites)
    if not is_one and data.is_dir():
        more += [
            Finding("warning", "", f"{name} is not read", f"{remedy[:1].upper()}{remedy[1:]}.")
            for name, remedy in unread_files(data).items()
        ]
    errors = [one for one in findings if one.level == "error"]
    unfit = [key for key in dict.fromkeys([*failed, *(agreed.left_out if agreed else ())]) if key]
    findings = [*errors, *more, *findings[len(errors) :]]
    with private():
        folder.mkdir(parents=True, exist_ok=True)
        save_findings(folder, sites, findings)
    return Check(folder, sites, agreed, findings, unfit)


def _codes(
    declared: Declaration, nodes: Sequence[Mapping[str, Any]], sites: Mapping[str, Description]
) -> list[Finding]:
    """Return a warning for each column with codes for missing values, which only this machine looks for and names."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for node in nodes:
        site = sites.get(key := str(node[CLIENT_ID]))
        if site is None or site.form != "table" or site.target is None:
            continue
        parts = [read_once(path, declared).frame for path in find_files(Path(str(node[DATA_DIR]))).paths]
        if kinds.ROWS_OF in node:
            parts = [frame[frame[declared.owner] == node[kinds.ROWS_OF]] for frame in parts]
        for name in [*(column.name for column in site.columns if column.kind == "numeric"), site.target.name]:
            values = np.concatenate([as_numbers(frame[name]) for frame in parts])
            if codes := _far_and_repeated(values):
                cells = ", ".join(f'"{code:.0f}"' for code in codes)
                found.setdefault((name, cells), {})[key] = int(np.isin(values, codes).sum())
    return [
        Finding(
            "warning",
            "",
            f"{name!r} is {cells} in {sum(counts.values())} records of {listed(sorted(counts))}, far outside its "
            "other values",
            f"If that stands for a missing value, declare it in {NODE_FILE_WORDS}: "
            f"missing_in = {{{toml_key(name)} = [{cells}]}}.",
        )
        for (name, cells), counts in found.items()
    ]


def _far_and_repeated(values: NDArray[np.float64]) -> list[float]:
    """Return up to three integers that repeat, further from all other values than these are from one another.

    Among few other values, such as classes, only a number of nines counts.
    """
    different, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    for sign in (1, -1):
        ordered, number = sign * different[::sign], counts[::sign]
        for cut in range(1, min(4, len(ordered) - 1)):
            is_far = ordered[cut] - ordered[cut - 1] > ordered[-1] - ordered[cut]
            codes = sign * ordered[:cut]
            are_nines = all(set(f"{abs(code):.0f}") == {"9"} for code in codes)
            if not are_nines and len(ordered) - cut < _FEWEST_OTHERS:
                continue
            if is_far and number[:cut].min() >= _REPEATS and (codes == np.floor(codes)).all():
                return [float(code) for code in codes]
    return []
