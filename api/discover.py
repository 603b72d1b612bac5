"""`florets.discover` and its result: whether clients form groups, how many, and which."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.api.clients import clients_of
from florets.api.keys import overrides_of
from florets.api.run import Run
from florets.conf.problems import ConfigError
from florets.conf.saved import results_folder
from florets.conf.schema import Config
from florets.engines import engine
from florets.reports.clients import read_clients
from florets.reports.console import counted, listed
from florets.reports.pooled import read_test_statistics
from florets.reports.summary import last_evidence, read_lines
from florets.strategies.registry import find_strategy
from florets.studies import one_run
from florets.task.device import one_thread_within

if TYPE_CHECKING:
    from florets.reports.figures import Picture

_DECIDED = ("strategy", "stop_at_groups", "patience", "personal")
_ROUNDS = 45
"""Rounds at most: a regression's groups are looked for once its model has learned what all clients share."""
_MOST_NAMED = 12
_ONE_CLASS = (
    "groups cannot be tested: the records of each client are all of one class, and only a client with several "
    "classes shows what distinguishes them. To group clients by their class, give strategy.place_one_class=false; if "
    "a client should have several classes, look at how the records were dealt out (owner, partition)"
)


class Groups:
    """Groups of clients, as a discovery returned them.

    Parameters
    ----------
    folder : Path
        Of the run that looked for them.
    names : sequence of str, optional
        The clients in the order that `labels` has; by default sorted.
    """

    def __init__(self, folder: Path | str, names: Sequence[str] | None = None) -> None:
        self.run = Run(folder, trust=True)
        found = {
            row.client: row.found_cluster for row in read_clients(self.run.folder) if row.found_cluster is not None
        }
        self._names = tuple(sorted(found) if names is None else names)
        # The largest group first.
        sizes = {group: sum(own == group for own in found.values()) for group in set(found.values())}
        order = sorted(sizes, key=lambda group: (-sizes[group], group))
        self.assignment = {name: order.index(found[name]) if name in found else -1 for name in self._names}

    @property
    def labels(self) -> NDArray[np.int64]:
        """The group of each client, from 0, the largest group first, in the clients' order; -1: no group fits it."""
        return np.array(list(self.assignment.values()), dtype=np.int64)

    @property
    def k(self) -> int:
        """Number of groups; 1 where clients cannot be distinguished, or grouping them explains nothing."""
        return max(1, len(set(self.assignment.values()) - {-1}))

    @property
    def p_value(self) -> float | None:
        """P value of the test that all clients are alike; None where nothing could be tested."""
        p_value: float | None = self.evidence["p_value"]
        return p_value

    @cached_property
    def evidence(self) -> dict[str, Any]:
        """What was found, as the run's ``rounds.jsonl`` has it.

        Among it the ``verdict``, the scores of each k, the ``similarity`` of clients, the ``stability`` of groups,
        whether they are ``sharp``, in what clients of a linear model ``differs``, and the ``tree`` of groups within
        groups.
        """
        found = last_evidence(read_lines(self.run.folder))
        assert found is not None
        return found

    @cached_property
    def _is_one_class(self) -> bool:
        """Whether nothing was decided because every client's training records are of one class."""
        counts = [client.train for client in read_test_statistics(self.run.folder).values()]
        one = [own is not None and np.count_nonzero(own) == 1 for own in counts]
        return self.evidence["verdict"] == "open" and bool(one) and all(one)

    @property
    def text(self) -> str:
        """The finding in words, with the members of each group."""
        said: str = self.evidence["text"]
        if self._is_one_class:
            said = _ONE_CLASS
        elif self.evidence["verdict"] == "open":
            said = f"not decided after {counted(self.run.summary.rounds, 'round')}: {said}"
        lines = [said[:1].upper() + said[1:]]
        groups = self._members() if self.k > 1 else {}
        lines += [f"  group {group}: {listed(names, _MOST_NAMED)}" for group, names in groups.items() if group >= 0]
        if -1 in groups:
            lines.append(f"  in no group: {listed(groups[-1], _MOST_NAMED)}")
        if advice := self.evidence["advice"]:
            lines.append(f"{advice[:1].upper()}{advice[1:]}.")
        return "\n".join(lines)

    def plot(self) -> "Picture":
        """Return a figure of the evidence: the score of each number of groups, and the similarity of the clients.

        Raises
        ------
        ConfigError
            If nothing could be tested.
        """
        if not self.evidence["scores"] or not self.evidence["similarity"]:
            raise ConfigError(f"plot: no evidence to draw: {self.evidence['text']}.")
        from florets.reports.run_figures import evidence_figure

        return evidence_figure(self.evidence)

    def __repr__(self) -> str:
        return f"<florets.Groups of {len(self._names)} clients: {self.text.splitlines()[0]}>"

    def _members(self) -> dict[int, list[str]]:
        """Return the members of each group, in order; those that no group fits come last."""
        found: dict[int, list[str]] = {}
        for name, group in self.assignment.items():
            found.setdefault(group, []).append(name)
        return dict(sorted(found.items(), key=lambda item: item[0] if item[0] >= 0 else len(self._names)))


@one_thread_within()
def discover(clients: Any = None, /, **keys: Any) -> Groups:
    """Look for groups among clients, and stop training as soon as that is decided.

    Do these clients form groups, how many, and which? Keys are those of an experiment, without a strategy; ``k=3``
    asks for three groups in place of testing how many there are.

    Parameters
    ----------
    clients : Federation, data, or str, optional
        A `Federation` or what it takes, such as a list of ``(x, y)``, one for each client; or the name of a preset,
        by default the quickstart.
    **keys
        The keys of the command; the arguments of a `Federation` may stand among them.

    Returns
    -------
    Groups
        What was found. The clients of a list are called by their places; labels are in the clients' order.

    Raises
    ------
    ConfigError
        With every problem of the clients' data and the keys, before anything is run.

    Notes
    -----
    ::

        florets discover                                         the quickstart's clients
        florets discover data_dir=DIR                            a folder (data.npz, ...) or a table for each client
        florets discover data_dir=pupils.csv target=math owner=school

    Results: <results_dir>/<experiment>/discover/<other keys>/seed-<seed>/, a run's folder: clients.csv has groups.
    """
    experiment, keys, federation = clients_of(clients, keys)
    overrides, caller = overrides_of(experiment, keys), Path.cwd()
    typed = {entry.key for entry in one_run.refuse_decided(overrides, "discover", _DECIDED.__contains__)}
    base = one_run.prepare([*overrides, "strategy=discovery"], caller)
    asks = base.task.partition == "own"
    ours = {
        "stop_at_groups": "true",
        "num_rounds": max(base.num_rounds, _ROUNDS),
        "eval_every": 1,
        "loss_matrix": "false",
        "pictures": "false",
        "checkpoint_every": 0,
        "strategy.fraction_train": 1,
        # Sites with records of one class say nothing about a classifier: they are placed afterwards.
        **({"strategy.place_one_class": "true"} if asks else {}),
        # Tells who has one class where nobody can be compared.
        **({"statistics": "true"} if asks and base.task.loss == "cross_entropy" else {}),
    }
    own = [f"{key}={value}" for key, value in ours.items() if key not in typed]
    config = one_run.prepare([*overrides, "strategy=discovery", *own], caller)
    folder = _folder(base, [*overrides, "strategy=discovery"])
    try:
        engine.run_in(config, folder)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("start it again") from None
    return Groups(folder, None if federation is None else federation.names)


def _folder(config: Config, overrides: Sequence[str]) -> Path:
    """Return the folder of the run: that of a discovery, with another name in the strategy's place."""
    root = Path(config.results_dir) / config.experiment
    run = results_folder(config, overrides)
    return root / "discover" / run.relative_to(root / find_strategy(config.strategy.name).folder)
