"""Which of a finished run's models a client uses: its group's, its own, or a mixture of all."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from florets.conf.problems import ConfigError, did_you_mean
from florets.server_app.run_models import Arrays, RunModels
from florets.task.data.tables.declaration import is_table
from florets.task.partitions.own import OWN


def is_mixture(run: RunModels) -> bool:
    """Return whether a client of this run predicts with several models at once."""
    return run.config.strategy.settings.mixes and len(run.models) > 1


def refuse_one_model(run: RunModels, key: str) -> None:
    """Refuse a key that asks for a client's one model where it has a mixture.

    Raises
    ------
    ConfigError
        If the run's clients mix models.
    """
    if is_mixture(run):
        raise ConfigError(
            [
                f"{key}: a client of this run predicts with a mixture of all {len(run.models)} models, and no single "
                "one is its own; `florets assign` tells the shares, and models.safetensors has the models."
            ]
        )


_CLIENTS = "clients.csv"


_MOST_NAMED = 5


def chosen_model(run: RunModels, folder: Path, given: Mapping[str, str]) -> tuple[Arrays, str]:
    """Return the model that the keys ``model`` or ``client`` ask for, and what it is called.

    Raises
    ------
    ConfigError
        If there is no such model or client, or neither or both keys are given where there are several models.
    """
    if given.get("client") in run.own and "model" not in given:
        return run.own[given["client"]], f"client {given['client']}'s own model"
    index = _chosen_index(run, folder, given)
    return run.models[index], f"model {index}"


def _chosen_index(run: RunModels, folder: Path, given: Mapping[str, str]) -> int:
    count = len(run.models)
    if ("model" in given) == ("client" in given):
        if count == 1 and "model" not in given:
            return 0
        raise ConfigError(["predict: give either model=<number>, which `florets assign` prints, or client=<key>."])
    if "model" in given:
        text = given["model"]
        if not text.isdecimal() or int(text) >= count:
            raise ConfigError([f"model={text}: must be an integer from 0 to {count - 1}."])
        return int(text)
    refuse_one_model(run, f"client={given['client']}")
    return _model_of(folder / _CLIENTS, given["client"], count)


def check_client(folder: Path, client: str) -> None:
    """Raise ConfigError if the run has no such client."""
    found = _found_models(folder / _CLIENTS)
    if client not in found:
        raise ConfigError([f"client={client}: the run has no such client.{_known_clients(client, sorted(found))}"])


def client_keys(folder: Path) -> list[str]:
    """Return the keys of a run's clients, sorted."""
    return sorted(_found_models(folder / _CLIENTS))


def trained_on(data: Path, run: RunModels, folder: Path) -> str | None:
    """Return the client of the run that trained on these data, as far as their path tells; else None.

    It does where nodes have data of their own: their folders are named after them, and the tables that lie in the
    run's `data_dir` itself.
    """
    data, clients = data.resolve(), folder / _CLIENTS
    # A folder that was copied may hold the models alone.
    if run.config.task.partition != OWN or not clients.is_file():
        return None
    stem, known = data.name.partition(".")[0], _found_models(clients)
    if data.parent.name in known and (stem in ("train", "data") or (is_table(data) and stem != "test")):
        return data.parent.name
    beside = data.parent == Path(run.config.data_dir).expanduser().resolve()
    return stem if beside and is_table(data) and stem in known else None


def _found_models(path: Path) -> dict[str, str | None]:
    """Return the model of each client, by key, as a run's ``clients.csv`` has it; a row that was cut off has none."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {row["client"]: row["found_cluster"] for row in csv.DictReader(file)}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError) as error:
        raise ConfigError(
            [f"{path} cannot be read ({error}); `florets predict` needs model=<number> then."]
        ) from error


def _model_of(path: Path, client: str, count: int) -> int:
    check_client(path.parent, client)
    text = _found_models(path)[client] or ""
    if not text.isdecimal() or int(text) >= count:
        raise ConfigError([f"client={client}: the run gave it no model; use `florets assign` and model=<number>."])
    return int(text)


def _known_clients(client: str, keys: Sequence[str]) -> str:
    """Return which clients there are, and the one that was meant where that is plain."""
    if not keys:
        return " clients.csv names none; use model=<number>."
    if all(key.isdecimal() for key in keys):
        # Of numbers the one that looks most alike is another client; the padded one is the same.
        padded = client.zfill(len(keys[0]))
        hint, listed = f" Did you mean {padded}?" if padded in keys else "", f"{keys[0]} to {keys[-1]}"
    else:
        hint, listed = did_you_mean(client, keys), ", ".join(keys[:_MOST_NAMED])
        listed += f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return f"{hint} Its clients are {listed} (clients.csv)."
