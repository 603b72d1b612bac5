"""`florets.extend`: go on from a finished run with other data, in a new folder."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from florets.api.federation import Federation
from florets.api.keys import overrides_of
from florets.api.run import Run, interrupted
from florets.conf.consent import TRUST, read_trust
from florets.conf.overrides import Given, read_overrides
from florets.conf.problems import ConfigError
from florets.conf.run_config import task_spec
from florets.conf.saved import absolute, resume_command, saved_config
from florets.conf.schema import Config, as_plain
from florets.engines import engine
from florets.reports.clients import CLIENTS_OVER_ROUNDS
from florets.reports.embedding import EMBEDDINGS
from florets.reports.folder import FINISHED, MARKER, refuse_taken, whole_folder, write_whole
from florets.reports.summary import RunSummary
from florets.server_app.own_code import CODE, look_for_given
from florets.server_app.recorder import read_summary
from florets.server_app.resume import CHANGEABLE, Parent, read_accept, refuse_changed_code, refuse_other_frozen
from florets.strategies.layers.noise import LEDGER, Budget, read_budget
from florets.task.imported import import_from

OTHERS = tuple(key for key in CHANGEABLE if key not in ("num_rounds", "data_dir", "results_dir"))
"""Keys of the run that may change besides data and rounds."""


def extend(
    run: str | Path | Run,
    data_dir: str | Path | None = None,
    *,
    clients: Any = None,
    to: str | Path | None = None,
    num_rounds: int | None = None,
    trust: bool = False,
    **keys: Any,
) -> Run:
    """Go on from a finished run with new data of its sites, and with new sites, in a new folder.

    The models, the clients' groups and all that the strategy remembers are the earlier run's, and so is the way in
    which tables become inputs; a new site is placed by the strategy as a newcomer in the next round. Rounds continue
    counting. The earlier run's folder is only read, but for what is left of its
    privacy budget, which goes to the new one.

    Parameters
    ----------
    run : Run, str or Path
        The finished run, or its folder.
    data_dir : str or Path, optional
        The sites' data, in the form of the earlier `data_dir`. Sites with the same keys are the same clients; one
        that is missing keeps its group and sits out.
    clients : Federation or data, optional
        The sites' data in memory in place of `data_dir`, see `Federation`, whose arguments ``owner=`` and ``names=``
        may be given as well; targets mean what they mean in the run.
    to : str or Path, optional
        The new folder; by default next to the earlier one, its name with ``-extended`` and, from the second on, a
        number.
    num_rounds : int, optional
        Further rounds; by default as many as the earlier run was asked for.
    trust : bool
        Whether code that the run names by an import path may be imported and called.
    **keys
        Of the run's other keys those that `resume` may change, and ``code_changed="accept"``.

    Returns
    -------
    Run
        The extended run; ``parent.json`` in its folder names the earlier one.

    Raises
    ------
    ConfigError
        If the run is not finished, kept no checkpoint or was on simulated clients, a key may not change, or a site's
        data do not have the form of the run's.
    """
    folder = run.folder if isinstance(run, Run) else run
    if not isinstance(folder, str | Path):
        raise ConfigError(f"run: is a {type(run).__name__}; give a finished run or its folder.")
    if not isinstance(data_dir, str | Path | None):
        raise ConfigError(f"data_dir: is a {type(data_dir).__name__}; data in memory are given as clients=.")
    if (data_dir is None) == (clients is None):
        raise ConfigError("data_dir: give the folder of the sites' data, or clients=, and not both.")
    if clients is not None:
        data_dir, keys = _written(clients, absolute(str(folder), Path.cwd()), trust, keys)
    given: dict[str, Any] = {"run": str(folder), "data_dir": str(data_dir), **keys}
    given |= {key: value for key, value in (("to", to), ("num_rounds", num_rounds)) if value is not None}
    if trust:
        given[TRUST] = True
    return Run(extend_overrides(overrides_of(None, given)).folder, trust)


def _written(clients: Any, run: Path, trust: bool, keys: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Return the folder of clients' data in memory, and the keys that are not theirs."""
    _finished(run)
    if trust:
        look_for_given(run)
    config = saved_config(run, trust=trust)
    own = {name: keys[name] for name in ("target", "owner", "names", "clusters") if name in keys}
    rest = {name: value for name, value in keys.items() if name not in own}
    if not isinstance(clients, Federation):
        clients = Federation.like(clients, config.task, **own)
    elif own:
        raise ConfigError([f"{name}: give it to Federation(...) itself." for name in own])
    return clients.write(absolute(str(rest.get("results_dir", config.results_dir)), Path.cwd())), rest


def extend_overrides(overrides: Sequence[str]) -> RunSummary:
    """Extend the run that `key=value` texts describe; see `extend`."""
    config, folder = prepare_extension(overrides)
    try:
        return engine.resume(config, folder)
    except KeyboardInterrupt:
        raise interrupted(config, folder) from None


def prepare_extension(overrides: Sequence[str], on_nodes: bool = False) -> tuple[Config, Path]:
    """Write the folder of an extended run, which then goes on as an interrupted one; return what `resume` takes.

    With `on_nodes` the sites are nodes with their own data: `data_dir` is not needed, and no data are checked here.
    """
    from florets.server_app.build import build_task
    from florets.server_app.data_agreement import saved_data

    caller = Path.cwd()
    import_from(caller)
    problems: list[str] = []
    given = {entry.key: entry for entry in read_overrides(overrides, problems)}
    consent = given.pop(TRUST, None)
    trust = consent is not None and read_trust(consent.value, consent.text, problems)
    accepts = read_accept(given.pop("code_changed", None), problems)
    paths = {key: given.pop(key, None) for key in ("run", "data_dir", "to")}
    needed = ("run",) if on_nodes else ("run", "data_dir")
    problems += [f"{key} is missing: give {key}=<folder>." for key in needed if paths[key] is None]
    problems += [
        f"{entry.text}: an extended run is the earlier one on other data; besides run, data_dir, to and num_rounds "
        f"it takes {', '.join(OTHERS)}."
        for key, entry in given.items()
        if key not in ("num_rounds", *OTHERS)
    ]
    if problems:
        raise ConfigError(problems)
    folders = {key: absolute(str(entry.value), caller) for key, entry in paths.items() if entry is not None}
    parent = folders["run"]
    summary = _finished(parent)
    config, checkpoint = _earlier(parent, summary, trust)
    done = checkpoint.server_round
    first_rounds = config.strategy.settings.first_rounds
    further = given.pop("num_rounds", None)
    more = config.num_rounds if further is None else further.value
    if type(more) is not int or more < 1:
        raise ConfigError(f"num_rounds={more}: the further rounds must be an integer from 1.")
    data = str(folders.get("data_dir", config.data_dir))
    changed = [
        Given("data_dir", data, f"data_dir={data}"),
        Given("num_rounds", done - first_rounds + more, f"num_rounds={more}"),
        *given.values(),
    ]
    extended = saved_config(parent, changed, trust)
    if not accepts:
        refuse_changed_code(f"run={parent}", parent, extended)
    own = saved_data(extended, parent)
    refuse_other_frozen(f"run={parent}", checkpoint, build_task(own.config, own.table))
    if not on_nodes:
        _check_sites(extended, own.table)
    target = folders.get("to") or _free_name(parent)
    refuse_taken(target)
    budget = _budget_of(parent, extended, on_nodes) if config.privacy.has_noise else None
    with whole_folder(target) as aside:
        _write(aside, parent, config, extended, checkpoint)
        if budget is not None:
            # What a client's data have left can be spent once.
            write_whole(parent / LEDGER, json.dumps(asdict(replace(budget, extended_to=str(target)))) + "\n")
    return extended, target


def _budget_of(parent: Path, extended: Config, on_nodes: bool) -> Budget:
    """Return what the earlier run has spent of its budget; ConfigError where too little is left for a round."""
    from florets.engines.own_nodes import own_nodes

    if extended.privacy.hides_records:
        raise ConfigError(f"run={parent}: with privacy.kind=example noise was made for its rounds and data alone.")
    try:
        budget = read_budget(parent / LEDGER)
    except ValueError as error:
        raise ConfigError(f"run={parent}: {error}.") from None
    if budget.extended_to:
        raise ConfigError(
            f"run={parent}: what was left of its privacy.epsilon went to {budget.extended_to}, and cannot be spent "
            "twice; extend that run."
        )
    if not on_nodes:
        able = sum(budget.affords(str(node["client-id"]), budget.update) for node in own_nodes(extended))
        if able < (least := extended.privacy.min_group):
            raise ConfigError(
                f"run={parent}: privacy.epsilon={budget.epsilon:g} allows {able} of the sites another round, which "
                f"needs {least} (privacy.min_group); start a new run, whose epsilon adds to this one's."
            )
    return budget


def _finished(parent: Path) -> RunSummary:
    if not (parent / "config.yaml").is_file():
        raise ConfigError(f"run={parent}: there is no run in this folder; name a finished run's.")
    if not (parent / FINISHED).is_file():
        raise ConfigError(
            f"run={parent}: is not finished, and only a finished run is extended; finish it with: "
            f"{resume_command(parent)}"
        )
    try:
        return read_summary(parent)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{parent / 'summary.json'} cannot be read ({error}); run the experiment again.") from None


def _earlier(parent: Path, summary: RunSummary, trust: bool) -> tuple[Config, Any]:
    """Return the earlier run's configuration and its last checkpoint."""
    from florets.server_app.checkpoint import CheckpointError
    from florets.server_app.resume import find_checkpoint

    if trust:
        look_for_given(parent)
    config = saved_config(parent, trust=trust)
    if config.task.partition != "own":
        raise ConfigError(
            f"run={parent}: its clients are simulated and have no data of their own in a data_dir; further "
            "rounds on the same data are resume=<folder> num_rounds=<more>."
        )
    try:
        checkpoint = find_checkpoint(parent, config)
    except CheckpointError as error:
        raise ConfigError(f"run={parent}: {error}.") from None
    if checkpoint is None or checkpoint.server_round != summary.rounds:
        saved = "none" if checkpoint is None else f"the last one of round {checkpoint.server_round}"
        raise ConfigError(
            f"run={parent}: its {summary.rounds} rounds ended without a checkpoint ({saved}), and what its "
            "strategy remembered is lost; run it again with checkpoint_every=1."
        )
    return config, checkpoint


def _check_sites(config: Config, table: Mapping[str, Any]) -> None:
    """Read every site's data in this process as its client will, and refuse all that do not fit."""
    from florets.engines.own_nodes import own_nodes
    from florets.server_app.data_agreement import task_of
    from florets.task.task import TaskSpec

    spec = replace(TaskSpec(**task_spec(config)), table=table)
    problems = []
    for node in own_nodes(config):
        task = task_of(node, spec)
        try:
            found, wanted = task.data.input_shape, task.input_shape
            if found != wanted:
                raise ValueError(f"its inputs have shape {found}, but the run's {wanted}.")
        except ValueError as error:
            problems.append(f"data_dir={config.data_dir}: {node['client-id']}: {error}")
    if problems:
        raise ConfigError(problems)


def _free_name(parent: Path) -> Path:
    names = (f"{parent.name}-extended{f'-{number}' if number > 1 else ''}" for number in range(1, 1_000_000))
    return next(path for name in names if not (path := parent.with_name(name)).exists())


def _write(folder: Path, parent: Path, before: Config, config: Config, checkpoint: Any) -> None:
    """Write what the folder of a run would hold that was interrupted after the parent's rounds."""
    from florets.server_app.checkpoint import Checkpoints
    from florets.server_app.data_agreement import ASKED, CHECK, DESCRIPTION, PREPROCESSING

    of_rounds, of_data = (MARKER, CLIENTS_OVER_ROUNDS, EMBEDDINGS, LEDGER), (ASKED, CHECK, DESCRIPTION, PREPROCESSING)
    for name in (*of_rounds, *of_data, CODE):
        if (parent / name).is_file():
            shutil.copyfile(parent / name, folder / name)
    plain: Mapping[str, Any] = as_plain(config)
    write_whole(folder / "config.yaml", yaml.safe_dump(plain, sort_keys=False))
    Parent(str(parent), checkpoint.server_round, before.data_dir).save(folder)
    # With `patience` a run's final models are those of its best round.
    best = checkpoint.best or checkpoint
    Checkpoints(folder).save(replace(checkpoint, models=best.models, state=best.state, config=dict(plain), best=None))
