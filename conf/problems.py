"""`ConfigError`: every problem of a configuration in one error, with its remedy."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence


class ConfigError(ValueError):
    """The configuration cannot run; the text lists every problem that was found.

    Parameters
    ----------
    problems : str or sequence of str
        One line per problem: the key, the rule that it breaks, the remedy.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = tuple(map(_short, [problems] if isinstance(problems, str) else problems))
        super().__init__(str(self))

    def __str__(self) -> str:
        """Return one line for a single problem, and a list for more."""
        if len(self.problems) == 1:
            return self.problems[0]
        return f"{len(self.problems)} problems:\n" + "\n".join(f"  - {problem}" for problem in self.problems)

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[str, ...]]]:
        # Without this a sweep's worker process could not hand the error over: pickle would pass the text.
        return ConfigError, (self.problems,)


# `key=value: rule`, where the value is a list, a mapping, or a text that is longer than paths are.
_LONG_VALUE = re.compile(r"([\w./-]+=)(\[.{200,}\]|\{.{200,}\}|\S{500,}): ", re.DOTALL)


def _short(problem: str) -> str:
    """Return a problem with the beginning of a long value that it quotes."""
    found = _LONG_VALUE.match(problem)
    return problem if found is None else f"{found[1]}{found[2][:100]} ...: {problem[found.end() :]}"


NAMES: Mapping[str, str] = {
    "madmo": "cfl_s", "cfl": "cfl_s", "fedmd": "two_phase", "fedx": "two_phase", "hypcluster": "ifca",
    "global_model": "fedavg", "local_only": "local",
    "t": "num_rounds", "m_h": "strategy.anchors", "slv": "strategy.square_root",
    "n_h": "strategy.min_anchor_examples", "p": "strategy.period", "rho": "strategy.fraction_train",
    "tau": "train.local_epochs", "eta": "train.learning_rate", "lr": "train.learning_rate",
}  # fmt: skip
"""Names of strategies and keys in the papers, in lower case, with the names that they have here."""


def plain(name: str) -> str:
    """Return a name written as those here are; of a paper's name the one that is used here."""
    written = name.lower().replace("-", "_")
    return NAMES.get(written.removeprefix("strategy."), written)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like `name`, or None when nothing is close.

    A name also counts as close without its `num_`, or when it is the last part of exactly one dotted key:
    `learning_rate` means `train.learning_rate`. Of names in folders only those in the folder given are close, where
    there is one.
    """
    names = list(known)
    if plain(name) in names:
        return plain(name)
    folder, _, own = name.rpartition("/")
    inside = {path.rpartition("/")[2]: path for path in names if folder and path.rpartition("/")[0] == folder}
    if inside:
        # A folder's names are longer than a slip of one word shows: mnist may stand for mnist_n_way.
        found = difflib.get_close_matches(own, inside, n=1, cutoff=0.5)
        return inside[found[0]] if found else None
    if f"num_{name}" in names:
        return f"num_{name}"
    last_parts = [key for key in names if key.rpartition(".")[2] == name.rpartition(".")[2]]
    if last_parts:
        return last_parts[0] if len(last_parts) == 1 else None
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" for the nearest known name, or an empty text."""
    close = nearest(name, known)
    return f" Did you mean {close}?" if close else ""
