"""Text of `florets --help`, written from the schema and the presets."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field
from itertools import takewhile
from textwrap import wrap
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from florets.commands.verbs import VERBS, verb
from florets.conf.presets import choices, texts
from florets.conf.problems import ConfigError
from florets.conf.schema import Config, read_strategy, show, walk
from florets.strategies.registry import find_strategy, settings_type, strategy_names
from florets.strategies.settings import Experiment, Privacy, Settings
from florets.task.settings import TaskConfig
from florets.task.training.settings import Training

_USAGE = """florets: clustered federated learning. Clients fall into unknown groups;
Florets finds them while it trains one model per group.

Usage
  florets                                       the quickstart
  florets experiment=<preset> strategy=ifca     a run of a preset, other values
  florets -m strategy=clove,ifca seed=0,1,2     a sweep: every combination
  florets -m 'seed=range(0,10)' hydra/launcher=joblib hydra.launcher.n_jobs=4
                                                in 4 processes (extra "sweep")
  florets engine=flwr                           on Flower's own simulation
  florets resume=<folder>                       continue an interrupted run
  florets <command> --help                      one of the commands below

Options
  -m, --multirun  sweep over keys that have several values, separated by commas
  -q, --quiet     one plain line per round instead of a progress bar
  --cfg           print the configuration that would run and exit
  --continue      for a sweep: keep finished jobs, continue stopped ones;
                  jobs whose code was edited are run again
  --debug         show Python's traceback on errors
  --version       print the version and exit
  -h, --help      this text; with strategy=<name> that strategy and its keys;
                  after a command's name: help on that command

A key given by hand overrides the preset, which overrides the defaults.
task.data_options.noise=1 changes one option of a preset,
'task.data_options={noise: 1}' replaces all of them.
Code that a preset or a saved run names by an import path needs trust=true.
Below, [a | b | c] gives a key's choices, the default first.
Results: <results_dir>/<experiment>/<strategy>/<other keys>/seed-<seed>/;
for sweeps: <results_dir>/sweeps/.
FLORETS_CONFIG_DIR: folder with your own presets, experiment/<name>.yaml.
Exit code: 0 success; 1 a run or a job of a sweep failed; 2 the
configuration was refused before training."""


class Row(NamedTuple):
    """A line of the reference: name, meaning; of a key also default and choices, and the strategies that have it."""

    name: str
    text: str
    values: str | None = None
    owners: str = ""


def help_text(width: int = 110) -> str:
    """Return the whole text, wrapped to `width` columns."""
    sections = [("Commands", list(commands())), *reference()]
    return "\n\n".join([_USAGE, *(_section(title, rows, width) for title, rows in sections)])


def commands() -> Iterator[Row]:
    """Yield the commands, each with the first sentence of its help."""
    of_node = "Start a node, approve an app's version, show what left: florets node start | approve | log."
    for word in sorted((*VERBS, "node")):
        yield Row(word, verb(word).doc.partition("\n\n")[0] if word in VERBS else of_node)


def reference() -> list[tuple[str, list[Row]]]:
    """Return the presets, strategies and keys, in sections with a title each."""
    presets = [Row(name, " ".join(_comment("experiment", name)[:2])) for name in choices("experiment")]
    settings = {name: settings_type(name) for name in strategy_names()}
    strategies = [Row(name, str(kind.__doc__).splitlines()[0]) for name, kind in settings.items()]
    strategies.append(Row("<module>:<Class>", "A strategy of your own, by its import path; see docs/extending.md."))
    files = [Row(name, "".join(_comment(group, name)[:1])) for group in ("task", "train") for name in choices(group)]
    top = [row for row in _keys(Config) if "." not in row.name]
    # The keys of the run before those of its rounds, which it inherits.
    top.sort(key=lambda row: row.name not in {"seed", *Experiment.__annotations__, *Config.__annotations__})
    return [
        ("Presets (experiment=...); those under paper/ are what `florets reproduce` runs", presets),
        ("Strategies (strategy=...)", strategies),
        ("Tasks (task=...) and optimisers (train=...)", files),
        ("Keys of every experiment", top),
        (
            "Keys of task, train and privacy",
            _keys(TaskConfig, "task.") + _keys(Training, "train.") + _keys(Privacy, "privacy."),
        ),
        ("Keys of strategies", _strategy_keys(settings)),
    ]


def keys_of_strategy(strategy: str) -> list[Row]:
    """Return the keys that a strategy has, a name or a `package.module:Class`; ConfigError where there is none."""
    problems: list[str] = []
    if (settings := read_strategy(strategy, problems)) is None:
        raise ConfigError(problems)
    return _keys(settings, "strategy.")


def strategy_help(strategy: str, width: int = 110) -> str:
    """Return what one strategy is and the keys that it has, as `keys_of_strategy` takes it."""
    keys = keys_of_strategy(strategy)
    found = find_strategy(strategy).id
    head = "\n".join(wrap(f"{found}: {str(settings_type(found).__doc__).splitlines()[0]}", width))
    section = _section("Its keys, with their defaults", keys, width)
    return f"{head}\n\n{section}\n\nflorets --help lists the keys that every strategy shares."


def _comment(group: str, name: str) -> list[str]:
    """Return the comment at the head of a preset, line by line, without the line that names it."""
    lines = takewhile(lambda line: line.startswith("#"), texts(group)[name].splitlines())
    return [line.removeprefix("# ") for line in lines if not line.startswith("# florets ")]


def _keys(kind: type, prefix: str = "") -> list[Row]:
    return [Row(name, field.metadata["help"], _values(kind, field)) for name, field in walk(kind, prefix)]


def _values(kind: type, field: "Field[Any]") -> str:
    """Return a key's default, and behind it the other words that it takes."""
    if callable(field.default_factory):
        return show(field.default_factory())
    # A key of a nested dataclass is not among the hints of `kind`: it is listed with its own dataclass.
    hint = get_type_hints(kind).get(field.name)
    words = [word for option in (hint, *get_args(hint)) if get_origin(option) is Literal for word in get_args(option)]
    default = show(field.default)
    return " | ".join([default, *(word for word in words if word != default)])


def _strategy_keys(strategies: Mapping[str, type[Settings]]) -> list[Row]:
    """Return the keys of all strategies, each once per help text, with the strategies that have it."""
    owners: dict[Row, list[str]] = {}
    for strategy, settings in strategies.items():
        for row in _keys(settings, "strategy."):
            owners.setdefault(row, []).append(strategy)
    names = list(dict.fromkeys(row.name for row in owners))
    return [
        row if len(having) == len(strategies) else row._replace(owners=", ".join(having))
        for row, having in sorted(owners.items(), key=lambda item: names.index(item[0].name))
    ]


def _section(title: str, rows: Iterable[Row], width: int) -> str:
    rows = list(rows)
    column = max(len(row.name) for row in rows) + 4
    lines = [title]
    for row in rows:
        parts = [
            row.text,
            *([] if row.values is None else [f"[{row.values}]"]),
            *([f"({row.owners})"] if row.owners else []),
        ]
        first, *rest = wrap(" ".join(parts), width - column) or [""]
        lines.append(f"  {row.name}".ljust(column) + first)
        lines += [" " * column + line for line in rest]
    return "\n".join(lines)
