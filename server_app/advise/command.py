"""`florets advise`: run the methods one after the other, and leave the answer on the screen and in a folder."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from florets.conf.problems import ConfigError
from florets.conf.run_folder import results_folder
from florets.conf.schema import Config
from florets.server_app.advise.advice import Advice, advise
from florets.server_app.advise.findings import Finding, finding_of
from florets.server_app.advise.methods import (
    Question,
    dry_check,
    first_run,
    other_runs,
    standardised_run,
)
from florets.server_app.advise.outcomes import Outcome, read_outcome
from florets.server_app.advise.page import write_page
from florets.server_app.advise.words import Words
from florets.server_app.console import say
from florets.server_app.jobs import absolute
from florets.server_app.results.folder import write_whole
from florets.server_app.results.summary import RunSummary, last_evidence

HELP = """florets advise [<key>=<value> ...]
  Should these clients be grouped, and what should they use? Looks for groups, then runs FedAvg (plain, and with
  fine-tuning), Local-only, CLoVE and a model for each group on one budget of rounds, with a part of each client's
  training records held out for the choice. Keys are those of an experiment, without a strategy and k:

    florets advise                                           the quickstart's clients
    florets advise experiment=own_data data_dir=DIR ...      a folder for each site, in process
    florets advise engine=flwr ...                           on Flower's simulation
    flwr run . <connection> --stream --run-config "advise=true experiment='own_data' ..."   on real nodes

Results: <results_dir>/<experiment>/advise/<other keys>/seed-<seed>/: advice.html to read, advice.json, the runs."""


class Play(Protocol):
    """Runs an experiment whose results go into a folder."""

    def __call__(self, config: Config, folder: Path) -> RunSummary:
        """Run it and return its summary."""


def main(arguments: Sequence[str], play: Play) -> int:
    """Answer the question of a command line and return the exit code."""
    options = [text for text in arguments if text.startswith("-")]
    if {"-h", "--help"} & set(options):
        print(HELP)
        return 0
    if unknown := [text for text in options if text not in ("--debug", "-q", "--quiet")]:
        raise ConfigError([f"{text}: florets advise has no such option (-h, -q, --debug)." for text in unknown])
    overrides = [text for text in arguments if not text.startswith("-")]
    question = Question.of([*overrides, *(["quiet=true"] if {"-q", "--quiet"} & set(options) else [])])
    _, folder = answer(question, play)
    say((folder / "advice.txt").read_text(encoding="utf-8").rstrip())
    return 0


def answer(question: Question, play: Play, caller: Path | None = None) -> tuple[Advice, Path]:
    """Run everything that the answer takes, and leave it in a folder.

    Parameters
    ----------
    question
        What is asked.
    play
        Runs one experiment.
    caller
        The folder that relative paths are meant from; None: the working folder.

    Returns
    -------
    Advice, Path
        The answer, and the folder with ``advice.html``, ``advice.json``, ``advice.txt`` and a folder for each run.
    """
    here = caller or Path.cwd()
    folder = advice_folder(question, here)
    outcomes: dict[str, Outcome] = {}

    def run(name: str, config: Config) -> Path:
        say(f"advise: {name}")
        data, results = (str(absolute(path, here)) for path in (config.data_dir, config.results_dir))
        return Path(play(dataclasses.replace(config, data_dir=data, results_dir=results), folder / name).folder)

    place = run("discovery", first_run(question))
    finding = _finding(place)
    if finding.num_clients < 2:
        raise ConfigError(["advise: compares what several clients should do, and there is one; add clients."])
    outcomes["discovery"] = read_outcome("discovery", place)
    for name, config in other_runs(question, finding).items():
        place = run(name, config)
        outcomes[name] = read_outcome(name, place)
        if name == "fedavg":
            outcomes["tuned"] = read_outcome("tuned", place, tuned=True)
    after = None
    if (check := dry_check(question, finding)) is not None:
        after = _finding(run("standardised-discovery", check))
        if after.kind == "none":
            outcomes["standardised"] = read_outcome("standardised", run("standardised", standardised_run(question)))
    advice = advise(finding, outcomes, after)
    _write(folder, advice, question)
    return advice, folder


def advice_folder(question: Question, caller: Path) -> Path:
    """Return the folder of an answer, beside those of the experiment's runs."""
    base = dataclasses.replace(question.base, results_dir=str(absolute(question.base.results_dir, caller)))
    run = results_folder(base, question.overrides)
    # <experiment>/fedavg/<other keys>/seed-<seed>, with another name in the strategy's place.
    root = Path(base.results_dir) / base.experiment
    return root / "advise" / run.relative_to(root / "fedavg")


def _finding(place: Path) -> Finding:
    lines = [json.loads(line) for line in (place / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    evidence = last_evidence(lines)
    assert evidence is not None
    return finding_of(evidence, read_outcome("discovery", place).groups)


def _write(folder: Path, advice: Advice, question: Question) -> None:
    words = Words(advice, question)
    values = {
        "answer": words.answer,
        "reasons": words.reasons,
        "changes": words.changes,
        "chosen": advice.chosen,
        **dataclasses.asdict(advice),
    }
    write_whole(folder / "advice.json", json.dumps(_finite(values), indent=2, allow_nan=False) + "\n")
    page = write_page(folder, advice, question)
    write_whole(folder / "advice.txt", f"{words.short}\nPage: {page}\n")


def _finite(value: Any) -> Any:
    """Return plain values with None for what is no finite number: JSON has none."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
