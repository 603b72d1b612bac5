"""`florets.check` and its result: problems of clients' data, before anything is trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.api.federation import clients_of
from florets.api.keys import overrides_of
from florets.conf.compose import OWN_DATA, compose
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.reports import pages
from florets.reports.console import counted
from florets.server_app.data_agreement import is_own, lines
from florets.server_app.data_findings import Finding, worst
from florets.studies.check_data import Checked
from florets.studies.check_data import check as check_data
from florets.task.imported import import_from

if TYPE_CHECKING:
    import pandas as pd


class Check:
    """What a check of clients' data found.

    Parameters
    ----------
    checked : Checked
        Descriptions and findings.
    page : Path
        The page that shows them.
    """

    def __init__(self, checked: Checked, page: Path) -> None:
        self._checked, self.page = checked, page

    @property
    def folder(self) -> Path:
        """Where the page lies, with ``check.json`` and ``description.json``."""
        return self.page.parent

    @property
    def findings(self) -> "pd.DataFrame":
        """A row for each finding, errors first: level, client (empty: all), text, remedy."""
        import pandas as pd

        rows = [(one.level, one.site, one.text, one.remedy) for one in self._findings]
        return pd.DataFrame(rows, columns=["level", "client", "text", "remedy"])

    @property
    def is_usable(self) -> bool:
        """Whether every client could take part."""
        return worst(self._findings) != "error"

    @property
    def text(self) -> str:
        """The findings and what the clients have in common, as the command prints them."""
        said = [f"{finding.level:7s} {finding}" for finding in self._findings]
        if self._checked.agreed is not None:
            said += lines(self._checked.sites, self._checked.agreed)
        levels = [finding.level for finding in self._findings]
        count = f"{counted(levels.count('error'), 'error')}, {counted(levels.count('warning'), 'warning')}"
        return "\n".join([*said, f"{count}. Page: {self.page}"])

    def show(self) -> None:
        """Display the page in a notebook; elsewhere print the text and, on a terminal, open the page."""
        pages.show(self, self.page, self.text)

    def __repr__(self) -> str:
        levels = [finding.level for finding in self._findings]
        kinds = [counted(levels.count(level), level) for level in ("error", "warning", "note")]
        return f"<florets.Check of {counted(len(self._checked.sites), 'client')}: {', '.join(kinds)}; {self.page}>"

    def _repr_html_(self) -> str:
        return pages.framed(self.page)

    @property
    def _findings(self) -> list[Finding]:
        return self._checked.findings


def check(clients: Any = None, /, **keys: Any) -> Check:
    """Look at clients' data before anything is trained: what they have in common, and what is odd.

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
    """
    experiment, keys, _ = clients_of(clients, keys, fewest=1)
    return check_overrides(overrides_of(experiment, keys))


def check_overrides(overrides: Sequence[str], caller: Path | None = None) -> Check:
    """Check the data that `key=value` texts name; relative paths are meant from `caller`."""
    caller = caller or Path.cwd()
    import_from(caller)
    if not any(text.startswith("experiment=") for text in overrides):
        overrides = [f"experiment={OWN_DATA}", *overrides]
    config = compose(overrides)
    if not is_own(config):
        raise ConfigError([f"experiment={config.experiment}: florets check looks at sites' own data; leave it out."])
    data = absolute(config.data_dir, caller)
    found = check_data(config, data)
    folder = absolute(config.results_dir, caller) / "check" / (data.name or "data")
    return Check(found, found.save(folder, str(data.name)))
