"""`florets.run` and its result, `florets.load`, and `florets.prepare` for a ServerApp of the user's own."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from florets.conf.compose import compose
from florets.conf.consent import imported_functions
from florets.conf.problems import ConfigError
from florets.conf.saved import reading, results_folder, resume_command
from florets.conf.schema import Config
from florets.engines import engine
from florets.reports import frames
from florets.reports.summary import RunSummary
from florets.studies import one_run
from florets.task.device import one_thread_within
from florets.task.edited_modules import reload_edited
from florets.task.imported import import_from

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, ConfigRecord
    from pandas import DataFrame
    from torch.nn import Module

    from florets.api.new_data import Assignment, Predictions
    from florets.api.sweep import Sweep
    from florets.reports.embedding import Embedding
    from florets.server_app.run_models import RunModels


class Run:
    """A finished run: its figures, its models, and what they say of new data.

    Parameters
    ----------
    folder : Path
        The run's folder.
    trust : bool
        Whether code that the run names by an import path may be imported, as `trust=true` on the command line.

    Raises
    ------
    ConfigError
        If the folder holds no finished run.
    """

    def __init__(self, folder: Path | str, trust: bool = False) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._trust = trust
        try:
            text = (self.folder / "summary.json").read_text(encoding="utf-8")
            self.summary = RunSummary.from_json(text)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            why = "no summary.json" if isinstance(error, FileNotFoundError) else f"summary.json: {error}"
            raise ConfigError(
                f"{self.folder}: holds no finished run ({why}); give the folder that a run named as its results."
            ) from None

    @cached_property
    def config(self) -> dict[str, Any]:
        """The whole configuration, as ``config.yaml`` holds it."""
        path = self.folder / "config.yaml"
        with reading(path, "run the experiment again"):
            config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        return config

    @property
    def accuracy(self) -> float | None:
        """Mean test accuracy over the clients, 0 to 1; None in a task without classes."""
        return self.summary.final_accuracy

    @property
    def loss(self) -> float | None:
        """Mean test loss over the clients."""
        return self.summary.final_loss

    @property
    def ari(self) -> float | None:
        """Adjusted Rand index of the clusters against the true ones; None where these are not known."""
        return self.summary.final_ari

    @property
    def rounds(self) -> "DataFrame":
        """A row for each round: the figures of ``rounds.jsonl``, see `florets.reports.frames.rounds`."""
        return frames.rounds(self.folder)

    @property
    def clients(self) -> "DataFrame":
        """A row for each client at the end of the run: group, true cluster where known, samples and tests."""
        return frames.clients(self.folder)

    @property
    def assignments(self) -> "DataFrame":
        """The model of each client (columns) after each round (rows)."""
        return frames.assignments(self.folder)

    @property
    def clients_over_rounds(self) -> "DataFrame":
        """A row for each round and client: group, tests, training loss, samples, seconds, bytes, replies."""
        return frames.clients_over_rounds(self.folder)

    def embedding(self, round: int | None = None) -> "Embedding":
        """Return the vectors by which a round compared the clients, which can be drawn; None: the last such round.

        Raises
        ------
        ConfigError
            If the run has none of that round.
        """
        from florets.reports.embedding import embedding

        return embedding(self.folder, round)

    @cached_property
    def models(self) -> Sequence["Module"]:
        """The K models as torch modules in eval mode."""
        from florets.task.new_client import whole_modules

        return whole_modules(self._models.task, self._models.models)

    def export(self, to: str | Path) -> Path:
        """Write the models into a new folder for use without Florets; see `florets.export`."""
        from florets.api.export import export

        return export(self.folder, to, trust=self._trust)

    def predict(self, x: Any, *, client: str | int | None = None, model: int | None = None) -> "Predictions":
        """Return a model's predictions for new inputs, each from its own sample alone.

        Parameters
        ----------
        x : array, tensor, DataFrame, torch Dataset or path
            Inputs (n, ...) as the clients have them; raw records, where the run was on tables; or a file or folder as
            `florets predict` takes it.
        client : str, optional
            Client of the run whose model predicts: its own where it has one, else its group's.
        model : int, optional
            Number of the model in place of a client.

        Returns
        -------
        Predictions
            `labels`, `probabilities` and `frame()`.

        Raises
        ------
        ConfigError
            If there is no such client or model, or the inputs do not fit the run.
        """
        from florets.api.new_data import predict_new

        return predict_new(self.folder, self._models, x, client, model)

    def assign(self, x: Any, y: Any = None) -> "Assignment":
        """Return which model fits data with their targets, and how well.

        Parameters
        ----------
        x : array, tensor, DataFrame, torch Dataset or path
            As `predict` takes it; a data frame, data set, file or folder has the targets in it.
        y : array, optional
            Targets (n,) of arrays.

        Returns
        -------
        Assignment
            `model`, `losses` of all models, `accuracy`, and `why` it is that model.

        Raises
        ------
        ConfigError
            If the data do not fit the run.
        """
        from florets.api.new_data import assign_new

        return assign_new(self._models, x, y)

    @cached_property
    def _models(self) -> "RunModels":
        from florets.server_app.run_models import load_run

        return load_run(self.folder, self._trust)

    def __repr__(self) -> str:
        summary = self.summary
        head = f"{summary.experiment}, {summary.strategy}, seed {summary.seed}"
        return f"<florets.Run {head}: {one_run.headline(summary)}; {self.folder}>"


@one_thread_within()
def run(experiment: Any = None, /, **keys: Any) -> Run:
    """Run one experiment and return its results.

    Parameters
    ----------
    experiment : str, Federation or data, optional
        Name of the preset; by default the quickstart. Or clients' data, as ``clients=``.
    **keys
        The keys of the command, checked in the same way: ``strategy="clove", k=4, seed=0``. A group is a mapping,
        ``train={"learning_rate": 0.1}``. `model`, `data` and `partition` are short for ``task.model`` and so on; they
        and the strategy may be classes and functions, the model a module and the strategy an instance as well. Data
        in memory are given as ``clients=``, a `Federation` or what it takes; its arguments ``target=``, ``owner=``,
        ``clusters=``, ``classes=`` and ``regression=`` may be given as well.

    Returns
    -------
    Run
        The finished run, whose folder is the one that the command would write.

    Raises
    ------
    ConfigError
        With every problem of the keys, before anything is run.
    """
    # They know data in memory, which the command has not.
    from florets.api.clients import clients_of
    from florets.api.keys import overrides_of

    experiment, keys, _ = clients_of(experiment, keys)
    return Run(run_overrides(overrides_of(experiment, keys)).folder, trust=True)


def run_overrides(overrides: Sequence[str]) -> RunSummary:
    """Run the experiment that `key=value` texts describe."""
    caller = Path.cwd()
    import_from(caller)
    if any(text.startswith("resume=") for text in overrides):
        return _resumed(overrides, caller)
    for text in overrides:
        if text.lstrip("+~").startswith(("hydra/", "hydra.")):
            raise ConfigError(f"{text}: Hydra's own keys shape sweeps; add -m.")
    config = one_run.prepare(overrides, caller)
    try:
        return engine.run(config, overrides)
    except KeyboardInterrupt:
        raise interrupted(config, results_folder(config, overrides)) from None


def _resumed(overrides: Sequence[str], caller: Path) -> RunSummary:
    from florets.reports.console import say
    from florets.server_app.resume import finished_summary, read_resume

    found = read_resume(overrides, caller)
    assert found is not None
    config, folder = found
    if (summary := finished_summary(folder, config)) is not None:
        say(f"{folder} holds a finished run: nothing is left to do.")
        return summary
    try:
        return engine.resume(config, folder)
    except KeyboardInterrupt:
        raise interrupted(config, folder) from None


def interrupted(config: Config, folder: Path) -> KeyboardInterrupt:
    """Return an interrupt whose text says how the run in a folder goes on."""
    from florets.server_app.checkpoint import Checkpoints

    if not Checkpoints(folder).files():
        return KeyboardInterrupt("no round was saved yet: start it again")
    return KeyboardInterrupt(f"go on with: {resume_command(folder, bool(imported_functions(config)))}")


def load(folder: str | Path, *, trust: bool = False) -> "Run | Sweep":
    """Return the finished run, or the sweep, that a folder holds.

    Parameters
    ----------
    folder : str or Path
        The folder that the run or the sweep named as its results.
    trust : bool
        Whether code that the run names by an import path may be imported and called.

    Raises
    ------
    ConfigError
        If the folder holds neither.
    """
    reload_edited()
    path = Path(folder).expanduser().absolute()
    if (path / "jobs.json").is_file():
        from florets.api.sweep import Sweep

        return Sweep(path)
    if not path.is_dir():
        raise ConfigError(f"{path}: there is no such folder; give the folder of a finished run or of a sweep.")
    return Run(path, trust)


def prepare(experiment: str | None = None, /, **keys: Any) -> "tuple[ArrayRecord, ConfigRecord]":
    """Return the initial models of an experiment, and the settings that travel with every message.

    With ``florets.apps.client`` as the ClientApp, any ServerApp can hand both to a strategy::

        strategy = florets.strategies.CLoVE(k=5)
        models, settings = florets.prepare("digits_label_skew", strategy=strategy)
        strategy.start(grid, models, num_rounds=3, train_config=settings)

    Parameters
    ----------
    experiment : str, optional
        Name of the preset; by default the quickstart.
    **keys
        The keys of the command, as `run` takes them. With ``strategy=`` the strategy that is to be started: it is
        checked against the others, by its `Settings.problems` as well, and gets as many models as it needs.

    Returns
    -------
    ArrayRecord, ConfigRecord
        K models, with K as the strategy or the experiment has it; one model takes the first. The settings name the
        task, so that clients build their data and model from them.

    Raises
    ------
    ConfigError
        With every problem of the keys.
    """
    from florets.api.keys import overrides_of
    from florets.server_app.build import build_models, build_task, message_settings

    config = compose(overrides_of(experiment, keys))
    task = build_task(config)
    return build_models(config, task), message_settings(config, task)
