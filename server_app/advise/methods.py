"""The methods that advice compares, and the runs that they take."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from florets.conf.compose import compose
from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app.advise.findings import Finding

VALIDATION = 0.2
"""Of each client's training records, unless `task.validation_fraction` says otherwise."""

TITLES = {
    "fedavg": "One model for all (FedAvg)",
    "discovery": "One model for each group (discovery)",
    "tuned": "One model for all, fine-tuned by each (FedAvg + fine-tuning)",
    "two_groups": "Two groups all the same (discovery, k=2)",
    "clove": "One model for each group (CLoVE)",
    "local": "Everybody alone (Local-only)",
    "standardised": "One model for all, inputs standardised (FedAvg)",
}
"""The methods, the simplest first: what clients share costs nobody more than what they do alone."""

NAMES = {
    "fedavg": "FedAvg",
    "discovery": "a model for each group",
    "tuned": "FedAvg with fine-tuning",
    "two_groups": "two groups all the same",
    "clove": "CLoVE",
    "local": "each {site} alone",
    "standardised": "FedAvg on standardised inputs",
}
"""Names of the methods within a sentence."""

COMMANDS = {
    "fedavg": "strategy=fedavg",
    "discovery": "strategy=discovery k=auto",
    "tuned": "strategy=fedavg fine_tune_epochs={epochs:g}",
    "two_groups": "strategy=discovery k=2",
    "clove": "strategy=clove k={k}",
    "local": "strategy=local",
    "standardised": "strategy=fedavg task.data_options.standardise=true",
}
"""The keys that use a method."""

_OURS = ("strategy", "k", "k_max", "stop_at_ari")
_HOW = ("quiet", "results_dir", "pictures", "checkpoint_every", "loss_matrix")
"""Keys that say nothing of what is used."""
_MAY_STAY = ("strategy.fraction_train",)


@dataclass(frozen=True)
class Question:
    """What is asked: an experiment, without a strategy.

    Attributes
    ----------
    overrides
        As they were typed.
    base
        The experiment with FedAvg, which says everything that all runs share.
    """

    overrides: tuple[str, ...]
    base: Config

    @classmethod
    def of(cls, overrides: Sequence[str]) -> "Question":
        """Read what was typed.

        Raises
        ------
        ConfigError
            With every problem; also where a key is given that advice itself decides.
        """
        problems: list[str] = []
        for entry in read_overrides(overrides, problems):
            if entry.key in _OURS or (entry.key.startswith("strategy.") and entry.key not in _MAY_STAY):
                problems.append(f"{entry.text}: `florets advise` compares strategies itself; leave it out.")
        if problems:
            raise ConfigError(problems)
        return cls(tuple(overrides), compose([*overrides, "strategy=fedavg"]))

    @property
    def is_own(self) -> bool:
        """Whether clients are nodes with data of their own."""
        return self.base.task.partition == "own"

    @property
    def fine_tune_epochs(self) -> float:
        """Local epochs of fine-tuning: those of one round, unless it is said."""
        return self.base.fine_tune_epochs or (1.0 if self.base.train.local_steps else self.base.train.local_epochs)

    @property
    def validation(self) -> float:
        """Fraction of the training records that the choice is made on."""
        return self.base.task.validation_fraction or VALIDATION

    @property
    def can_standardise(self) -> bool:
        """Whether the inputs can be standardised by each client, and are not yet."""
        task = self.base.task
        return task.data == "own" and task.data_options.get("standardise") is not True

    def config(self, *own: str) -> Config:
        """Return the experiment with a strategy, tested at its end alone, on validation records as well."""
        given = {text.partition("=")[0] for text in self.overrides}
        shared = {
            "task.validation_fraction": self.validation,
            "eval_every": self.base.num_rounds,
            "loss_matrix": "false",
        }
        keys = [text.partition("=")[0] for text in own]
        ours = [f"{key}={value}" for key, value in shared.items() if key not in (*given, *keys)]
        return compose([*(text for text in self.overrides if text.partition("=")[0] not in keys), *ours, *own])


def first_run(question: Question) -> Config:
    """Return the run that looks for groups."""
    return question.config("strategy=discovery", "k=auto")


def other_runs(question: Question, finding: Finding) -> dict[str, Config]:
    """Return the other runs by the name of their method, in the order in which they are run."""
    runs = {
        "fedavg": question.config("strategy=fedavg", f"fine_tune_epochs={question.fine_tune_epochs}"),
        "local": question.config("strategy=local"),
        "clove": question.config("strategy=clove", f"k={num_groups(finding)}"),
    }
    if finding.kind not in ("groups", "lone"):
        runs["two_groups"] = question.config("strategy=discovery", "k=2")
    return runs


def dry_check(question: Question, finding: Finding) -> Config | None:
    """Return the run of one round that looks for groups once everybody has standardised its inputs; None: no need.

    It costs one local training, and tells nobody anything of anybody's columns.
    """
    if finding.kind not in ("groups", "lone", "all_differ") or not question.can_standardise:
        return None
    return question.config("strategy=discovery", "k=auto", "num_rounds=1", "task.data_options.standardise=true")


def standardised_run(question: Question) -> Config:
    """Return FedAvg on standardised inputs."""
    return question.config("strategy=fedavg", "task.data_options.standardise=true")


def num_groups(finding: Finding) -> int:
    """Return the number of models of a method that needs one."""
    return max(2, len(finding.groups)) if finding.kind in ("groups", "lone") else 2


def command(question: Question, method: str, finding: Finding) -> str:
    """Return the command that uses a method."""
    keys = COMMANDS[method].format(epochs=question.fine_tune_epochs, k=num_groups(finding))
    shown = [text for text in question.overrides if text.partition("=")[0] not in _HOW]
    return " ".join(["florets", *map(shlex.quote, shown), keys])
