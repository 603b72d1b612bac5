"""`florets.export`: a finished run's models in a new folder, usable without Florets."""

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.api.exported import Exported, read_exported
from florets.api.model_card import model_card
from florets.conf.extras import require
from florets.conf.problems import ConfigError
from florets.reports.folder import refuse_taken, whole_folder
from florets.task.data.tables.declaration import MISSING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


PROGRAM, STATE, ONNX = ".pt2", ".safetensors", ".onnx"
ABOUT, CARD = "export.json", "README.md"

_OPSET = 20
"""Version of ONNX's operators: all that the built-in models need, read by runtimes since 2023."""


def export(run: str | Path, to: str | Path, *, onnx: bool = False, license: str = "", trust: bool = False) -> Path:
    """Write a finished run's models into a new folder from which they can be used without Florets.

    Per model there is a `torch.export` program with a dynamic batch dimension (``.pt2``) and a state dict
    (``.safetensors``); in addition a model card (``README.md``), ``predict.py`` with ``preprocess.py``, which need
    only torch, ``export.json`` and, for tables, ``preprocessing.json``. Models of single clients are included.

    Parameters
    ----------
    run : str or Path
        The run's folder.
    to : str or Path
        The new folder; it may exist if it is empty.
    onnx : bool
        Whether each model is also written as ONNX, with the extra ``onnx``.
    license : str
        Identifier of the licence for the model card, as Hugging Face has them (``apache-2.0``); "" names none.
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
    if onnx:
        require("onnx", "onnx=true")
    if license != license.strip() or not license.isprintable():
        raise ConfigError(f"license={license!r}: must be an identifier such as apache-2.0, or cc-by-4.0.")
    refuse_taken(target)
    found = read_exported(folder, trust)
    with whole_folder(target) as aside:
        _write_models(aside, found, onnx)
        _write_predict(aside, found)
        (aside / CARD).write_text(model_card(folder, found, license, onnx), encoding="utf-8")
    return target


def _write_models(folder: Path, found: Exported, onnx: bool) -> None:
    """Write every model; they are traced once, and share the program."""
    import torch

    from florets.reports.folder import write_arrays
    from florets.task.new_client import loaded_module

    task = found.run.task
    try:
        module = loaded_module(task, next(iter(found.models.values()))).eval()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    # The archive holds weights in row order.
    module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # torch's stub lacks it
    module.requires_grad_(False)
    program = _traced(module, torch.zeros(2, *task.input_shape))
    for name, state in found.models.items():
        # In place: the program's values are the module's.
        module.load_state_dict({entry: torch.tensor(values) for entry, values in state.items()})
        torch.export.save(program, folder / f"{name}{PROGRAM}")
        with (folder / f"{name}{STATE}").open("xb") as file:
            write_arrays(file, state, {"format": "pt"})
        if onnx:
            _write_onnx(folder / f"{name}{ONNX}", program)


def _traced(module: "Module", example: "Tensor") -> Any:
    import torch

    try:
        return torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # torch.export raises whatever the model's own code does with traced tensors
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"the model {type(module).__name__} cannot be traced by torch.export ({reason}): its forward must "
            "not branch on values or on the batch's size. `florets assign save=<file>` writes the state alone."
        ) from error


def _write_onnx(path: Path, program: Any) -> None:
    import torch

    with warnings.catch_warnings():
        # Its own calls of what torch has deprecated.
        warnings.simplefilter("ignore")
        found = torch.onnx.export(
            program, input_names=["x"], output_names=["outputs"], opset_version=_OPSET, verbose=False
        )
        assert found is not None
        found.save(str(path), external_data=False)


def _write_predict(folder: Path, found: Exported) -> None:
    """Write ``predict.py`` and what it reads."""
    import florets.task.exported as files

    home, prepared = Path(str(files.__file__)).parent, found.run.preprocessing
    shutil.copyfile(home / "predict.py", folder / "predict.py")
    form = "arrays" if prepared is None else "tables"
    shutil.copyfile(home / f"preprocess_{form}.py", folder / "preprocess.py")
    about: dict[str, Any] = {
        "task": found.task,
        "input_shape": list(found.run.task.input_shape),
        "classes": found.classes,
        "models": list(found.models),
        "sites": found.sites,
    }
    if found.task == "regression":
        about |= {
            "target_mean": 0.0 if prepared is None else prepared.target_mean,
            "target_std": 1.0 if prepared is None else prepared.target_std,
        }
    if prepared is not None:
        from florets.server_app.data_agreement import declaration_of

        declared = declaration_of(found.run.config)
        about["table"] = {
            "missing": sorted({*MISSING, *declared.missing}),
            "cells_of_classes": sorted(raw for raws in declared.classes.values() for raw in raws),
            "header": declared.header,
            "columns": list(declared.columns),
            "min_count": declared.min_count,
        }
        _write_json(folder / "preprocessing.json", prepared.to_plain())
    _write_json(folder / ABOUT, about)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
