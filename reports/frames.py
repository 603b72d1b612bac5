"""A run's folder as pandas data frames: its rounds, clients, assignments, and every client in every round."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.conf.problems import ConfigError
from florets.reports.clients import CLIENTS, CLIENTS_OVER_ROUNDS, INTEGERS, TEXTS

if TYPE_CHECKING:
    from pandas import DataFrame

ROUNDS = "rounds.jsonl"

_COSTS: Mapping[str, float] = {"seconds": 0.0, "bytes_down": 0, "bytes_up": 0}
"""Columns of what a client that was not asked costs: nothing."""


def rounds(folder: Path) -> "DataFrame":
    """Return a row for each round, from ``rounds.jsonl``.

    Nested figures are columns: ``seconds_train``, ``replies_ok``, ``cluster_size_0``, ``accuracy_worst_tenth``.
    ``rejected`` counts clients. Details of single algorithms keep their names, nested ones joined by ``_``
    (``discovery_p_value``); lists are in the file alone. A score's mean over the clients has the score's name.
    """
    import pandas as pd

    text = _text(folder / ROUNDS)
    try:
        table = pd.json_normalize([_flat(json.loads(line)) for line in text.splitlines()], sep="_")
    except (ValueError, AttributeError, TypeError, KeyError):
        raise _damaged(folder / ROUNDS) from None
    table = table.loc[:, ~table.map(lambda value: isinstance(value, list)).any()]
    # Columns of what no round has are numbers, too.
    return table.astype(dict.fromkeys(table.columns[table.isna().all()], "float64"))


def clients(folder: Path) -> "DataFrame":
    """Return a row for each client as it was at the end of the run, from ``clients.csv``."""
    return _table(folder / CLIENTS)


def clients_over_rounds(folder: Path) -> "DataFrame":
    """Return a row for each round and client, from ``clients_over_rounds.csv``, by round and client.

    Rows that the file leaves out, because nothing happened to a client, are here: with the model and the true cluster
    that it had, not sampled, at no cost. A client that joined later has none before.
    """
    import pandas as pd

    found = _table(folder / CLIENTS_OVER_ROUNDS)
    # Of a run that goes on, or was killed, the last round may be there in part: its line is written last.
    found = found[found["round"] <= _text(folder / ROUNDS).count("\n")]
    # The row of each round and client, and then the last one that the client has up to there.
    numbers = range(1, int(found["round"].max() if len(found) else 0) + 1)
    every = pd.MultiIndex.from_product([numbers, sorted(set(found["client"]))], names=["round", "client"])
    own = pd.Series(range(len(found)), pd.MultiIndex.from_frame(found[["round", "client"]]), "float64").reindex(every)
    last = own.groupby("client").ffill().dropna()
    full = found.take(last.astype("int64").to_list()).reset_index(drop=True)
    full["round"] = last.index.get_level_values("round")
    missing = pd.Series(own[last.index].isna().to_numpy())
    kept = ["round", "client", "cluster", "true_cluster"]
    for name in full.columns.difference(kept):
        full[name] = full[name].mask(missing, False if name == "sampled" else None)
    for name, cost in _COSTS.items():
        full[name] = full[name].fillna(cost)
    full["sampled"] = full["sampled"].astype(bool)
    return full


def assignments(folder: Path) -> "DataFrame":
    """Return the model of each client (columns) after each round (rows); missing where it has none."""
    return clients_over_rounds(folder).pivot(index="round", columns="client", values="cluster")


def _text(path: Path) -> str:
    """Return a file's complete lines."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _damaged(path) from None
    except FileNotFoundError:
        raise ConfigError(
            [
                f"{path}: does not exist; the run has not got that far, or an earlier version wrote it: run the "
                "experiment again."
            ]
        ) from None
    return text[: text.rfind("\n") + 1]


def _damaged(path: Path) -> ConfigError:
    return ConfigError([f"{path}: is damaged; run the experiment again."])


def _table(path: Path) -> "DataFrame":
    import pandas as pd

    text = _text(path)
    try:
        head = pd.read_csv(io.StringIO(text), nrows=0, dtype=str).columns
        texts = [name for name in TEXTS if name in head]
        integers = [name for name in head if name in INTEGERS or name.endswith("_examples")]
        # A client may be called "NA": of texts nothing but an empty one is missing.
        missing = {name: [""] if name in texts else ["", "nan"] for name in head}
        types: Mapping[str, Any] = {**dict.fromkeys(texts, str), **dict.fromkeys(integers, "Int64")}
        table = pd.read_csv(io.StringIO(text), dtype=types, keep_default_na=False, na_values=missing)
        return table.astype({"round": "int64"}) if "round" in table else table
    except (ValueError, TypeError):
        # What pandas raises is a ValueError.
        raise _damaged(path) from None


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    """Return a round's line as columns, but for nested mappings, which pandas joins."""
    details, metrics, sizes = line.pop("details"), line.pop("metrics"), line.pop("cluster_sizes")
    more = {f"cluster_size_{model}": size for model, size in enumerate(sizes)}
    for score, of in metrics.items():
        # The mean has the score's own name. Of accuracy and loss mean and spread stand there already.
        more |= {score if figure == "mean" else f"{score}_{figure}": number for figure, number in of.items()}
    # First for the order of the columns, again for a detail of the same name.
    return {**line, **details, **more, **line, "rejected": len(line["rejected"])}
