"""Path of a run's results: it names what was run, and Hydra can take it back."""

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from florets.conf.consent import TRUST
from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError
from florets.conf.run_config import quote
from florets.conf.schema import Config
from florets.conf.typed import show
from florets.strategies.registry import find_strategy

# These are in the path anyway or in another form (the data's folder), or do not change what is computed.
_LEFT_OUT = (
    "experiment",
    "strategy",
    "seed",
    TRUST,
    "data_dir",
    "results_dir",
    "quiet",
    "checkpoint_every",
    "checkpoint_keep",
    "loss_matrix",
    "loss_matrix_timeout",
    "pictures",
    "tracker",
    "workers",
    "ray_address",
)
_LONGEST = 120


def run_folder(config: Config, overrides: Sequence[str]) -> Path:
    """Return `<experiment>/<strategy>/<other overrides>/seed-<s>`, relative to the results folder.

    The other overrides are sorted, each as `key-value`, joined by `__`, and the part is left out if there are
    none. Characters that a shell or Hydra would mind become `-`; a short hash then keeps apart what would
    otherwise fall together, and also shortens what no file system would take. Of a `data_dir` that is given the
    absolute path counts, however it was written, and a hash stands for it.

    Raises
    ------
    ConfigError
        If the overrides cannot be read.
    """
    problems: list[str] = []
    given = read_overrides(overrides, problems)
    if problems:
        raise ConfigError(problems)
    texts = [f"{entry.key}-{show(entry.value)}" for entry in given if entry.key not in _LEFT_OUT]
    if any(entry.key == "data_dir" for entry in given):
        texts.append(f"data_dir-{_digest(str(Path(config.data_dir).expanduser().resolve()))}")
    texts.sort()
    folder = Path(config.experiment) / find_strategy(config.strategy.name).folder
    if texts:
        exact = "__".join(texts)
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", exact)
        if safe != exact or len(safe) > _LONGEST:
            safe = f"{safe[:_LONGEST].strip('-')}-{_digest(exact)}"
        folder /= safe
    return folder / f"seed-{config.seed}"


def _digest(text: str) -> str:
    # A path may hold bytes that are no text.
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]


def results_folder(config: Config, overrides: Sequence[str]) -> Path:
    """Return the absolute folder of a run's results; see `run_folder`."""
    return (Path(config.results_dir).expanduser() / run_folder(config, overrides)).absolute()


def resume_command(folder: Path, trust: bool = False) -> str:
    """Return the command, as one types it in a shell, that goes on with the run in a folder.

    Parameters
    ----------
    trust
        The run uses functions of its author's, whose import has to be allowed.
    """
    plain = f"resume={folder}"
    # A second layer of quotes, Hydra's, only where there is no other way: it is hard to read.
    special = set(str(folder)) & set(",'\"[]{}()\\")
    command = f"florets {shlex.quote(f'resume={quote(str(folder))}' if special else plain)}"
    return f"{command} trust=true" if trust else command


def flower_resume_command(folder: Path, trust: bool = False) -> str:
    """Return the command that goes on with a run of `flwr run`; `trust` as in `resume_command`.

    It lacks what the run config does not know: the connection, or the simulation's federation config.
    """
    # JSON's texts are TOML's.
    settings = f"resume={json.dumps(str(folder), ensure_ascii=False)}" + (" overrides='trust=true'" if trust else "")
    return f"flwr run . --stream --run-config {shlex.quote(settings)}"


def absolute(folder: str, caller: Path) -> Path:
    """Return a folder as an absolute path, `~` expanded."""
    return (caller / Path(folder).expanduser()).resolve()
