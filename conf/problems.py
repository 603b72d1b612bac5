"""`ConfigError`: every problem of a configuration in one error, with its remedy."""

import difflib
import re
from collections.abc import Iterable, Sequence


class ConfigError(ValueError):
    """The configuration cannot run; each of `problems` names the key, the rule that it breaks, and the remedy."""

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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like `name`, or None; `learning_rate` means `train.learning_rate`."""
    names = list(known)
    for meant in (name.lower().replace("-", "_"), f"num_{name}"):
        if meant in names:
            return meant
    last_parts = [key for key in names if key.rpartition(".")[2] == name.rpartition(".")[2]]
    if last_parts:
        return last_parts[0] if len(last_parts) == 1 else None
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" for the nearest known name, or an empty text."""
    close = nearest(name, known)
    return f" Did you mean {close}?" if close else ""
