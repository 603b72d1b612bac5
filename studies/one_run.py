"""One run of a command or a study: its configuration from overrides, the line that sums it up, why it failed."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from florets.conf.compose import compose
from florets.conf.overrides import Given, read_overrides
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.conf.schema import Config
from florets.reports.console import counted
from florets.reports.summary import RunSummary, ari_words, stability_words, unplaced_words
from florets.server_app.progress import truth_words, with_clients
from florets.studies.advise.measures import named as named_figure
from florets.task.imported import raised_in
from florets.task.training.scores import name_of

_OURS = (
    *("florets.engines.", "florets.server_app.", "florets.reports."),
    *("florets.strategies.", "florets.zoo.", "florets.task.wire."),
)

Runner = Callable[[Config, Sequence[str]], RunSummary]
"""Runs a checked experiment; the overrides name its results folder."""


def prepare(overrides: Sequence[str], caller: Path) -> Config:
    """Return the experiment that `compose` makes of the overrides, with absolute folders.

    Flower's processes run elsewhere, so a folder relative to `caller` would be another one there.
    """
    config = compose(overrides)
    data_dir, results_dir = absolute(config.data_dir, caller), absolute(config.results_dir, caller)
    return dataclasses.replace(config, data_dir=str(data_dir), results_dir=str(results_dir))


def refuse_decided(overrides: Sequence[str], command: str, decides: Callable[[str], bool]) -> list[Given]:
    """Return what was typed; raise ConfigError where it holds keys that a command decides itself."""
    problems: list[str] = []
    given = read_overrides(overrides, problems)
    own = [entry.text for entry in given if decides(entry.key)]
    problems += [f"{text}: `florets {command}` decides that itself; leave it out." for text in own]
    if problems:
        raise ConfigError(problems)
    return given


def measure_name(config: Config) -> str:
    """Return the name of the validation figure by which settings are chosen; empty without validation data."""
    if config.task.validation_fraction == 0:
        return ""
    return "loss" if config.measure == "auto" else name_of(config.measure)


def headline(summary: RunSummary) -> str:
    """Return the figures of a run in one line."""
    parts = []
    unplaced = unplaced_words(summary.final_unplaced, summary.final_num_clusters)
    if summary.final_accuracy is not None:
        parts.append(with_clients(f"accuracy {100 * summary.final_accuracy:.1f} %", unplaced))
    elif summary.final_loss is not None:
        parts.append(with_clients(f"loss {summary.final_loss:.4g}", unplaced))
    if summary.final_tuned_accuracy is not None:
        parts.append(f"fine-tuned {100 * summary.final_tuned_accuracy:.1f} %")
    elif summary.final_tuned_loss is not None:
        parts.append(f"fine-tuned {summary.final_tuned_loss:.4g}")
    if pooled := {name: value for name, value in summary.final_pooled.items() if name != "clients"}:
        shown = ", ".join(named_figure(value, name) for name, value in pooled.items())  # type: ignore[arg-type]
        parts.append(f"over the test records of {counted(int(summary.final_pooled['clients']), 'client')}: {shown}")
    if summary.final_ari is not None:
        of = ari_words(summary.final_ari_clients, summary.final_ari_of)
        parts.append(with_clients(f"ARI {summary.final_ari:.2f}", of))
    parts += truth_words(summary.final_model_error, summary.final_cluster_error, summary.final_cluster_loss)
    if words := stability_words(summary):
        parts.append(words)
    parts.append(f"{counted(summary.rounds, 'round')} in {summary.seconds:.1f} s")
    if summary.left_out:
        # Flower, which takes a second that a mistyped key should not.
        from florets.strategies.base.report import named

        parts.append(f"{counted(len(summary.left_out), 'node')} could not take part ({named(summary.left_out)})")
    return ", ".join(parts)


def is_foreseen(error: Exception) -> bool:
    """Return whether an error is one of the project's own, whose text says what to do."""
    own = type(error).__module__.startswith(_OURS)
    return isinstance(error, ConfigError) or (own and bool(str(error).strip()))


def explain(error: Exception) -> str:
    """Return why a job failed, for a reader who has not seen the code."""
    text = str(error).strip()
    place = raised_in(error, in_own_code=bool(text))
    if is_foreseen(error):
        return text or place
    # Anything else was not foreseen: its type says more than its text, which may be a bare name.
    said = f"{text} ({place})" if text and place else text or place
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
