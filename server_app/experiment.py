"""One experiment on one grid: check, build, run the rounds, record the results."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import yaml
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from florets.conf.consent import imported_functions
from florets.conf.problems import ConfigError
from florets.conf.saved import resume_command
from florets.conf.schema import OWN, Config, as_plain
from florets.conf.validate import tracker_names
from florets.reports.console import counted
from florets.reports.diagnostics import (
    chance_level,
    divergence,
    refusals,
    too_few_models,
    worse_than_constant,
)
from florets.reports.folder import STOP, FolderLock, WriteFailed, private, write_whole
from florets.reports.summary import RoundLine, RunSummary
from florets.server_app.build import build_checked, build_task, refused
from florets.server_app.checkpoint import Checkpoint, CheckpointError, Checkpointing, Checkpoints
from florets.server_app.final_models import Truth, loss_matrix
from florets.server_app.own_code import record_code
from florets.server_app.own_data import is_own, not_described, saved_data
from florets.server_app.patience import Patience, validation_figure
from florets.server_app.recorder import Recorder
from florets.server_app.resume import (
    find_checkpoint,
    finished_summary,
    refuse_interrupted,
)
from florets.server_app.run_models import save_clusters, save_own_models
from florets.strategies.base.federation import FederationError, TrainingDiverged
from florets.strategies.base.loop import Earlier
from florets.strategies.base.report import ADVICE, EVIDENCE, STABLE_FROM, RoundReport
from florets.strategies.base.strategy import Strategy
from florets.strategies.layers.budget import BUDGET_FILE, Budget, read_budget
from florets.strategies.registry import find_strategy
from florets.task.layers import at_home_arrays, at_home_hash
from florets.task.task import Task
from florets.task.wire import bank

log = logging.getLogger("florets")


def run_experiment(
    grid: Grid,
    config: Config,
    folder: Path,
    resume: bool = False,
    by_flower: bool = False,
) -> RunSummary:
    """Run an experiment and leave its results in `folder`; with `resume` go on with the interrupted run there.

    `by_flower`: started with `flwr run`, which is then the command that a failed run names to go on. ConfigError
    where the parts do not fit together, or a new run would replace an interrupted one, before any client is asked;
    CheckpointError if an interrupted run cannot go on; FederationError if too few clients reply; WriteFailed if a
    file cannot be written: what was written before stays.
    """
    log.info("results folder: %s", folder)
    with ExitStack() as stack:
        stack.enter_context(private(config.task.partition == OWN))
        if not resume:
            refuse_interrupted(folder, config, by_flower)
            return _run(grid, config, folder, by_flower)
        # Held before its checkpoints are read: the run may be going on in another process.
        try:
            lock = stack.enter_context(FolderLock(folder))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if (summary := finished_summary(folder, config)) is not None:
            log.info("the run in %s has finished: there is nothing left to do", folder)
            return summary
        return _run(grid, config, folder, by_flower, lock, find_checkpoint(folder, config))


def _run(
    grid: Grid,
    config: Config,
    folder: Path,
    by_flower: bool,
    lock: FolderLock | None = None,
    checkpoint: Checkpoint | None = None,
) -> RunSummary:
    """Start a new run or, with its folder's lock, go on with an interrupted one."""
    tracking = None
    if tracker_names(config.tracker):
        # No other run needs what they import.
        from florets.server_app.tracker_stores import tracking_of

        tracking = tracking_of(config)
    with _kept_warnings() as earlier:
        if checkpoint is not None:
            own = saved_data(config, folder)
        elif not is_own(config):
            own = not_described(config)
        else:
            # It imports all that reads tables.
            from florets.server_app.data_agreement import agree_on_data

            own = agree_on_data(grid, config)
        config = own.config
        task = build_task(config, own.table)
        strategy, models, settings = build_checked(config, task)
        with refused():
            config = _prepared(grid, config, task)
        total = strategy.settings.rounds_before + config.num_rounds
        if checkpoint is not None:
            _take_up(checkpoint, strategy, config, task)
        # Clients first, folder second: a run that cannot start leaves the results of an earlier one alone.
        strategy.federation.refresh(grid, settings)
        strategy.federation.remember(checkpoint.clients if checkpoint is not None else ())
        done_rounds = checkpoint.server_round if checkpoint is not None else 0
        budget = _earlier_budget(config, folder, done_rounds) if lock is not None else None
        ledger = strategy.protect(config.num_rounds, budget)
        if ledger is not None and config.num_rounds > _began(config, checkpoint):
            with refused():
                ledger.require_more(f"num_rounds={config.num_rounds}", strategy.federation.online())
        recorder = _open_folder(config, folder, total, done_rounds, lock, earlier.buffer)
    if config.task.partition == OWN:
        # It may be there already, and be open to others.
        recorder.folder.chmod(0o700)
    with recorder:
        own.save(recorder.folder)
        if ledger is not None:
            ledger.save = lambda budget: write_whole(recorder.folder / BUDGET_FILE, json.dumps(asdict(budget)) + "\n")
        run = _Run(config, task, strategy, recorder, checkpoint, by_flower, total)
        changed = record_code(recorder.folder, config, checkpoint is not None)
        for warning in filter(None, (changed, too_few_models(config))):
            recorder.warn(warning)
        for line in own.lines:
            recorder.note(line)
        # Nobody expects the larger part of a run before the rounds that were asked for.
        if warm_up := max(0, strategy.settings.rounds_before - done_rounds):
            recorder.note(f"{counted(warm_up, 'warm-up round')} before the num_rounds={config.num_rounds}")
        tracked = nullcontext() if tracking is None else tracking(recorder, total, done_rounds)
        with tracked, run.explained_failures():
            strategy.start(
                grid,
                models.record if checkpoint is None else checkpoint.models,
                num_rounds=config.num_rounds,
                train_config=settings,
                on_round=run.on_round,
                earlier=run.earlier(),
            )
            return run.finish()


def _earlier_budget(config: Config, folder: Path, done_rounds: int) -> Budget | None:
    """Return what an interrupted run has spent; None where it has released nothing."""
    path = folder / BUDGET_FILE
    if not config.privacy.has_noise or not (done_rounds or path.exists()):
        return None
    try:
        budget = read_budget(path)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    if done_rounds and not budget.spent:
        rule = "nobody has spent anything of privacy.epsilon, which the rounds that are done contradict"
        raise CheckpointError(f"{path}: {rule}; start the run anew")
    return budget


def _take_up(checkpoint: Checkpoint, strategy: Strategy[Any, Any], config: Config, task: Task) -> None:
    """Give a strategy the state of a checkpoint; refuse one beyond the run's end, or of a model that froze others."""
    if checkpoint.server_round > strategy.settings.rounds_before + config.num_rounds:
        done = checkpoint.server_round - strategy.settings.rounds_before
        raise ConfigError(
            f"num_rounds={config.num_rounds}: the run has done {counted(done, 'round')} already; give more."
        )
    if at_home_hash(task.module_to_load()) != checkpoint.frozen:
        raise ConfigError(
            f"task.model={task.spec.model}: the parameters that it freezes (requires_grad=False) are not those of "
            "this run's rounds: restore the file that the model function reads them from, and the versions of its "
            "packages, or run the experiment again."
        )
    strategy.state = checkpoint.state


@contextmanager
def _kept_warnings() -> Iterator[MemoryHandler]:
    """Keep the warnings of a block in which the run has no folder yet, such as those of nodes that are left out."""
    # Without a target it hands on nothing, however many it holds.
    kept = MemoryHandler(capacity=0, flushOnClose=False)
    kept.setLevel(logging.WARNING)
    log.addHandler(kept)
    try:
        yield kept
    finally:
        log.removeHandler(kept)


def _open_folder(
    config: Config,
    folder: Path,
    total: int,
    done_rounds: int,
    lock: FolderLock | None,
    earlier: Sequence[logging.LogRecord],
) -> Recorder:
    """Return the recorder of a new run or, with its folder's lock, of one that goes on after some rounds."""
    try:
        return Recorder(
            folder=folder,
            config_yaml=yaml.safe_dump(as_plain(config), sort_keys=False),
            experiment=config.experiment,
            strategy=find_strategy(config.strategy.name).label,
            seed=config.seed,
            num_rounds=total,
            quiet=config.quiet,
            task_title=f"{config.task.data}, {config.task.partition}, {config.task.model}",
            done_rounds=done_rounds if lock is not None else None,
            lock=lock,
            earlier=earlier,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except WriteFailed as error:
        if lock is None:
            raise
        command = resume_command(folder, bool(imported_functions(config)))
        raise WriteFailed(f"{error}. Once the cause is gone, go on with: {command}") from None


class _Run:
    """A run whose folder is open: what it records after each round and at its end, and when it ends."""

    def __init__(
        self,
        config: Config,
        task: Task,
        strategy: Strategy[Any, Any],
        recorder: Recorder,
        checkpoint: Checkpoint | None,
        by_flower: bool,
        total: int,
    ) -> None:
        self._total, self._stopped = total, False
        self._config, self._task, self._strategy = config, task, strategy
        self._recorder, self._checkpoint = recorder, checkpoint
        self._by_flower = by_flower
        self._truth = Truth(task, config.cluster_test)
        checkpoints = Checkpoints(recorder.folder)
        frozen = at_home_hash(task.module_to_load())
        self._checkpointing = Checkpointing(checkpoints, config, strategy, checkpoint, by_flower, frozen)
        best = None if checkpoint is None else checkpoint.best
        self._patience = Patience(config, recorder.lines, best)
        self._note_clients()
        recorder.names = task.client_names

    def earlier(self) -> Earlier:
        """Return what the strategy must know of the rounds that the run has done."""
        if self._checkpoint is None:
            return Earlier()
        lines = self._recorder.lines
        stopped = bool(lines) and _is_reached(self._config, lines[-1])
        return Earlier(self._checkpoint.server_round, self._patience.is_over or stopped)

    def on_round(self, report: RoundReport, arrays: ArrayRecord) -> bool:
        """Record a round that has ended; return whether the run ends with it."""
        config, strategy, recorder, now = self._config, self._strategy, self._recorder, report.server_round
        self._note_clients()
        distances = self._truth.distances(
            lambda: strategy.final_models(strategy.context.models).record, bool(report.evaluations), now
        )
        validation = validation_figure(report.evaluations, config.measure)
        line = recorder.round(report, distances, self._truth.data_changed(now), validation)
        # For regressions the end alone is judged: their loss may fall slowly, and the clusters be right.
        froze = STABLE_FROM in line["details"] and config.task.loss == "cross_entropy"
        if froze and (warning := chance_level(self._task.num_outputs, recorder.lines)):
            recorder.note(f"warning: {warning}")
        if advice := line["details"].get(ADVICE):
            recorder.warn(advice)
        # The line first: a run that goes on takes back the lines of rounds without a checkpoint.
        self._patience.after(line, arrays, strategy)
        self._checkpointing.best = self._patience.best
        self._checkpointing.after(now, arrays)
        if self._patience.is_over or _is_reached(config, line):
            return True
        self._stopped = now < self._total and (recorder.folder / STOP).exists()
        if self._stopped:
            self._checkpointing.last()
        return self._stopped

    def finish(self) -> RunSummary:
        """Write the results of a run after its last round, of its best round where it has `patience`."""
        config, strategy, recorder = self._config, self._strategy, self._recorder
        best_round = self._patience.restore(strategy)
        final = strategy.final_models(strategy.context.models)
        arrays = {
            f"{index}/{name}": array.numpy()
            for index, model in enumerate(bank.models(final.record))
            for name, array in model.items()
        }
        # Once for all models.
        arrays |= at_home_arrays(self._task.module_to_load())
        save_clusters(recorder.folder, strategy, self._task)
        save_own_models(recorder.folder, strategy, final)
        losses = None
        if strategy.privacy is not None and strategy.privacy.ended:
            recorder.warn(strategy.privacy.ended)
        if config.loss_matrix and strategy.privacy is not None and strategy.privacy.is_local:
            recorder.note(
                f"no loss matrix: with privacy.kind={config.privacy.kind} clients send no losses without noise"
            )
        elif config.loss_matrix:
            serial = config.engine == "local" and not self._by_flower
            losses = loss_matrix(strategy, final, serial, recorder.note)
        if words := self._patience.words(len(recorder.lines)):
            recorder.note(words)
        if self._stopped:
            rounds = f"round {len(recorder.lines)} of {self._total}"
            recorder.warn(f"stopped after {rounds}. {self._checkpointing.how_to_go_on('')}")
        lines = recorder.lines[:best_round]
        end = (
            divergence(config.task.loss, lines)
            or worse_than_constant(strategy.state.evaluations)
            or chance_level(self._task.num_outputs, lines)
        )
        for warning in filter(None, (end, *refusals(recorder.lines))):
            recorder.warn(warning)
        # A run that was resumed after its last round has had no round since.
        self._note_clients()
        return recorder.finish(
            arrays,
            strategy.state.evaluations,
            strategy.assignment,
            losses,
            strategy.federation.left_out,
            config.pictures,
            strategy.mixtures,
            best_round,
            self._stopped,
        )

    @contextmanager
    def explained_failures(self) -> Iterator[None]:
        """Add to the failures that end a run what can be done about them."""
        try:
            yield
        except TrainingDiverged as error:
            # Nothing to go on from: the last checkpoint's models are about to diverge.
            self._checkpointing.drop()
            raise TrainingDiverged(f"{error}. {_other_rate(self._config)}") from None
        except FederationError as error:
            raise FederationError(f"{error}. {self._checkpointing.last()}") from None
        except WriteFailed as error:
            raise WriteFailed(f"{error}. {self._checkpointing.how_to_go_on()}") from None

    def _note_clients(self) -> None:
        self._recorder.clients(list(self._strategy.federation.clients.values()))


def _prepared(grid: Grid, config: Config, task: Task) -> Config:
    """Let a grid of Florets's own engines take the task; on Flower's the keys of the others are refused."""
    if (prepare := getattr(grid, "prepare", None)) is not None:
        chosen: Config = prepare(config, task)
        return chosen
    asked = {name: getattr(config, name) for name in ("batch_clients", "workers")}
    problems = [
        f"{name}={value}: needs the in-process engine; leave it out, or use engine=local."
        for name, value in asked.items()
        if value not in (None, 1, "off", "auto") or (name, value) == ("workers", "auto")
    ]
    if problems:
        raise ConfigError(problems)
    return replace(config, batch_clients="off")


def _other_rate(config: Config) -> str:
    """Return what to do about training that has diverged."""
    rate = config.train.learning_rate
    what = "inputs" if config.task.loss == "cross_entropy" else "inputs or targets"
    return (
        f"Training has diverged, most likely because the learning rate ({rate:g}) is too high: start again with "
        f"train.learning_rate={rate / 3:.2g}, and lower it further if need be; {what} of a large scale "
        "should be standardised"
    )


def _began(config: Config, checkpoint: Checkpoint | None) -> int:
    """Return the `num_rounds` of a run when its checkpoint was written."""
    return config.num_rounds if checkpoint is None else int(checkpoint.config.get("num_rounds", config.num_rounds))


def _is_reached(config: Config, line: RoundLine) -> bool:
    """Say whether the run ends early, with the round of this line."""
    evidence = line["details"].get(EVIDENCE)
    if not config.stop_at_groups or not evidence:
        return False
    return evidence["verdict"] != "open" or _never_decides(config, evidence, line["replies"])


def _never_decides(config: Config, evidence: Mapping[str, Any], replies: Mapping[str, int]) -> bool:
    """Say whether all clients have answered and fewer than two can be compared: no later round changes that."""
    everybody = config.strategy.settings.fraction_train == 1 and sum(replies.values()) == replies["ok"]
    return bool(evidence["needed"]) and everybody and evidence["seen"] < 2
