"""`florets.advise` and its result: whether clients should be grouped, and what they should use."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from florets.api.federation import clients_of
from florets.api.keys import overrides_of
from florets.engines import engine
from florets.reports import pages
from florets.studies.advise.methods import Question
from florets.studies.advise.study import answer
from florets.task.device import one_thread_within
from florets.task.imported import import_from


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
    """
    experiment, keys, _ = clients_of(clients, keys)
    return advise_overrides(overrides_of(experiment, keys))


def advise_overrides(overrides: Sequence[str]) -> Advice:
    """Answer for the experiment that `key=value` texts describe."""
    caller = Path.cwd()
    import_from(caller)
    question = Question.of(overrides)
    with engine.same_data():
        return Advice(answer(question, engine.run_in, caller)[1])
