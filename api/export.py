"""`florets.export`: a finished run's models in a new folder, usable without Florets."""

import json
import platform
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from florets.conf.extras import version
from florets.conf.problems import ConfigError
from florets.conf.saved import reading
from florets.conf.schema import show
from florets.reports.clients import CLIENTS, ClientRow, read_clients
from florets.reports.console import counted
from florets.reports.folder import refuse_taken, whole_folder, write_arrays
from florets.reports.protections import protections
from florets.reports.summary import read_lines
from florets.server_app.data_agreement import declaration_of
from florets.server_app.own_data import is_own
from florets.server_app.recorder import read_summary
from florets.server_app.run_models import Arrays, RunModels, load_run
from florets.strategies.layers.budget import BUDGET_FILE, read_budget
from florets.strategies.registry import find_strategy
from florets.task.data.tables.declaration import MISSING
from florets.task.training.linear import linear_names

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

_MOST_CATEGORIES = 12
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$])")


@dataclass(frozen=True)
class Exported:
    """The models of a run by the names of their files, and which of them each site uses."""

    run: RunModels
    models: Mapping[str, Arrays]
    sites: Mapping[str, Mapping[str, float]]
    """Share of each model in a site's predictions; one model with share 1 unless clients mix models."""
    rows: Sequence[ClientRow]

    @property
    def task(self) -> str:
        """What a prediction is: a class, a value, or the error of a reconstruction."""
        loss = self.run.task.spec.loss
        return {"cross_entropy": "classification", "reconstruction": "reconstruction"}.get(loss, "regression")

    @property
    def classes(self) -> list[str]:
        """Names of the classes in the order of the models' outputs; none where there are no classes."""
        return self.run.class_names if self.task == "classification" else []


def read_exported(folder: Path, trust: bool) -> Exported:
    """Read a finished run's folder, see `florets.server_app.run_models.load_run`."""
    run = load_run(folder, trust)
    with reading(folder / CLIENTS, "run the experiment again"):
        rows = read_clients(folder)
    models = {f"model_{index}": run.whole(state) for index, state in enumerate(run.models)}
    names = {key: f"client_{number}" for number, key in enumerate(run.own)}
    models |= {names[key]: run.whole(state) for key, state in run.own.items()}
    sites = {row.client: shares for row in rows if (shares := _shares(row, len(run.models), names))}
    return Exported(run, models, sites, rows)


def _shares(row: ClientRow, models: int, names: Mapping[str, str]) -> dict[str, float]:
    """Return the share of each model in a client's predictions; none where it has no model."""
    if row.client in names:
        return {names[row.client]: 1.0}
    if mixed := {f"model_{k}": share for k, share in enumerate(row.shares[:models]) if share}:
        return mixed
    return {f"model_{row.found_cluster}": 1.0} if row.found_cluster in range(models) else {}


def model_card(folder: Path, found: Exported) -> str:
    """Return the model card, in the form that Hugging Face reads."""
    run = found.run
    config, prepared = run.config, run.preprocessing
    used = [name for shares in found.sites.values() for name in shares]
    which = next(iter(found.sites), next(iter(found.models)))
    given = {
        key: value
        for key, value in config.task.data_options.items()
        if key not in ("classes", "scale") and value is not None
    }
    options = ", ".join(f"`{key}={show(value)}`" for key, value in given.items())
    # Markdown, in which `plain` escapes what comes from the sites.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = _plain
    return environment.get_template("model_card.md").render(
        found=found,
        run=run,
        config=config,
        task=config.task,
        train=config.train,
        strategy=config.strategy.settings,
        prepared=prepared,
        summary=(summary := read_summary(folder)),
        protections=protections(folder, read_lines(folder), summary.left_out),
        spent=read_budget(folder / BUDGET_FILE) if config.privacy.has_noise else None,
        label=find_strategy(config.strategy.name).label,
        is_own=is_own(config),
        is_linear=linear_names(run.task.module_to_load(), config.task.loss) is not None,
        is_mixed=any(len(shares) > 1 for shares in found.sites.values()),
        is_local=len(set(used)) == len(used),
        is_images=len(run.task.input_shape) == 3 and run.task.input_shape[0] in (1, 3),
        scale=run.scale,
        options=f" with {options}" if options else "",
        # A name comes from its site, and the line is made to be pasted into a shell.
        which=shlex.quote(which),
        model=next(iter(found.sites.get(which, found.models))),
        parameters=sum(values.size for values in next(iter(found.models.values())).values()),
        unused=[] if run.own else [name for name in found.models if name not in used],
        lost=[row.client for row in found.rows if row.client not in found.sites],
        florets=version(),
        python=platform.python_version(),
        most=_MOST_CATEGORIES,
        counted=counted,
        show=show,
        installed=installed,
    )


def _plain(text: str) -> str:
    """Return a text as Markdown shows it letter by letter: names come from the sites."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def export(run: str | Path, to: str | Path, *, trust: bool = False) -> Path:
    """Write a finished run's models into a new folder from which they can be used without Florets.

    Per model there is a `torch.export` program with a dynamic batch dimension (``.pt2``) and a state dict
    (``.safetensors``); in addition a model card (``README.md``), ``predict.py`` with ``preprocess.py``, which need
    only torch, ``export.json`` and, for tables, ``table_text.py`` and ``preprocessing.json``. Models of single
    clients are included.

    Parameters
    ----------
    run : str or Path
        The run's folder.
    to : str or Path
        The new folder; it may exist if it is empty.
    trust : bool
        Whether code that the run names by an import path may be imported and called.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ConfigError
        If the folder is no finished run's, `to` is not empty, or a model cannot be exported.
    """
    folder, target = Path(run).expanduser().absolute(), Path(to).expanduser().absolute()
    refuse_taken(target)
    found = read_exported(folder, trust)
    with whole_folder(target) as aside:
        _write_models(aside, found)
        _write_predict(aside, found)
        (aside / "README.md").write_text(model_card(folder, found), encoding="utf-8")
    return target


def _write_models(folder: Path, found: Exported) -> None:
    """Write every model; they are traced once, and share the program."""
    import torch

    from florets.task.new_client import whole_modules

    task = found.run.task
    try:
        (module,) = whole_modules(task, found.run.models[:1])
    except ValueError as error:
        raise ConfigError(str(error)) from None
    # The archive holds weights in row order.
    module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # torch's stub lacks it
    module.requires_grad_(False)
    program = _traced(module, torch.zeros(2, *task.input_shape))
    for name, state in found.models.items():
        # In place: the program's values are the module's.
        module.load_state_dict({entry: torch.tensor(values) for entry, values in state.items()})
        torch.export.save(program, folder / f"{name}.pt2")
        with (folder / f"{name}.safetensors").open("xb") as file:
            write_arrays(file, state, {"format": "pt"})


def _traced(module: "Module", example: "Tensor") -> Any:
    import torch

    try:
        return torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # torch.export raises whatever the model's own code does with traced tensors
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"the model {type(module).__name__} cannot be traced by torch.export ({reason}): its forward must "
            "not branch on values or on the batch's size. The run's models.safetensors has the states."
        ) from error


def _write_predict(folder: Path, found: Exported) -> None:
    """Write ``predict.py`` and what it reads."""
    import florets.task.exported as files
    from florets.task.data.tables import table_text

    home, prepared = Path(str(files.__file__)).parent, found.run.preprocessing
    shutil.copyfile(home / "predict.py", folder / "predict.py")
    form = "arrays" if prepared is None else "tables"
    shutil.copyfile(home / f"preprocess_{form}.py", folder / "preprocess.py")
    if prepared is not None:
        shutil.copyfile(str(table_text.__file__), folder / "table_text.py")
    about: dict[str, Any] = {
        "task": found.task,
        "input_shape": list(found.run.task.input_shape),
        "classes": found.classes,
        "models": list(found.models),
        "sites": found.sites,
    }
    if found.task == "regression":
        scale = found.run.scale if prepared is None else prepared
        about |= {"target_mean": scale.target_mean, "target_std": scale.target_std}
    if prepared is None:
        about |= {"mean": list(found.run.scale.mean), "std": list(found.run.scale.std)}
    else:
        declared = declaration_of(found.run.config)
        about["table"] = {
            "missing": sorted({*MISSING, *declared.missing}),
            "cells_of_classes": sorted(raw for raws in declared.classes.values() for raw in raws),
        }
        _write_json(folder / "preprocessing.json", prepared.to_plain())
    _write_json(folder / "export.json", about)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
