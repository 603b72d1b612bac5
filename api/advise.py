"""`florets.advise` and its result: whether clients should be grouped, and what they should use."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from florets.api.clients import clients_of
from florets.api.keys import overrides_of
from florets.engines import engine
from florets.reports import pages
from florets.studies.advise.methods import Question
from florets.studies.advise.study import answer
from florets.task.device import one_thread_within


class Advice(pages.Paged):
    """What clients should use, and why.

    Parameters
    ----------
    folder : Path
        Of the advice, with ``advice.html``, ``advice.json``, ``advice.txt`` and a folder for each run.
    """

    def __init__(self, folder: Path | str) -> None:
        super().__init__(folder, "advice.html")

    @cached_property
    def values(self) -> dict[str, Any]:
        """All figures, as ``advice.json`` has them."""
        values: dict[str, Any] = json.loads((self.folder / "advice.json").read_text(encoding="utf-8"))
        return values

    @property
    def chosen(self) -> str | None:
        """The advised method, such as ``fedavg``, ``local`` or ``discovery``; None where none beats a constant."""
        chosen: str | None = self.values["chosen"]
        return chosen

    @property
    def command(self) -> str | None:
        """The command that uses the advised method with the settings that were chosen; None without one."""
        command: str | None = self.values["command"]
        return command

    @property
    def text(self) -> str:
        """The answer in words, as the command prints it."""
        return (self.folder / "advice.txt").read_text(encoding="utf-8").rstrip()

    def __repr__(self) -> str:
        return f"<florets.Advice: {self.values['answer']} {self.page}>"


@one_thread_within()
def advise(clients: Any = None, /, **keys: Any) -> Advice:
    """Say whether clients should be grouped and which method they should use, by comparing methods on their data.

    Groups are searched for; then FedAvg, Local-only and a model per group are compared with a constant prediction.
    Linear models of tables are fitted by Newton's steps with several ridges (``train.ridge``), also with an intercept
    or coefficients per client; others are tried with three learning rates and fine-tuning, and trained until they no
    longer improve on validation records. Keys are those of an experiment, without a strategy and k; what is given of
    them is kept.

    Parameters
    ----------
    clients : Federation, data, or str, optional
        A `Federation` or what it takes, such as a list of ``(x, y)``, one for each client; or the name of a preset,
        by default the quickstart.
    **keys
        The keys of the command; the arguments of a `Federation` may stand among them.

    Returns
    -------
    Advice
        Its folder is the one that the command would write.

    Raises
    ------
    ConfigError
        With every problem of the clients' data and the keys, before anything is run.

    Notes
    -----
    ::

        florets advise                                           the quickstart's clients
        florets advise data_dir=DIR target=COLUMN                a folder or a table for each site, in process
        florets advise engine=flwr ...                           on Flower's simulation
        flwr run . <connection> --stream --run-config "advise=true overrides='target=COLUMN ...'"    on real nodes

    Results: <results_dir>/<experiment>/advise/<other keys>/seed-<seed>/: advice.html to read, advice.json, the runs.
    Exit code 1: no method is better than a constant answer.
    """
    experiment, keys, _ = clients_of(clients, keys)
    question = Question.of(overrides_of(experiment, keys))
    with engine.same_data():
        return Advice(answer(question, engine.run_in, Path.cwd())[1])
