"""`florets.check`: problems of clients' data, before anything is trained."""

from pathlib import Path
from typing import Any

from florets.api.clients import clients_of
from florets.api.keys import overrides_of
from florets.conf.compose import OWN_DATA, compose
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.server_app.data_agreement import is_own
from florets.studies.check_data import Check
from florets.studies.check_data import check as check_data


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
    return check_data(config, data, folder)
