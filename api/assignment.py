"""Assignment of new data, with their targets, to one of a finished run's models."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from florets.api.read_data import NewData, is_mixture
from florets.conf.problems import ConfigError
from florets.server_app.run_models import RunModels
from florets.server_app.saved_groups import nearest_descriptor, nearest_group
from florets.task.new_client import evaluate_model, evaluate_models, fitted_shares, model_losses


@dataclass(frozen=True)
class Assignment:
    """The model that fits new data.

    Attributes
    ----------
    model
        Its number; None where the run's clients mix all models.
    misfit
        That none of the run's groups fits, in words, and this is the nearest by its loss; empty where one does.
    losses
        Of each model on them, (K,); empty where there were no targets.
    loss, accuracy
        Of the model, or of the mixture; NaN without targets, and None in a task without classes.
    rmse, r2
        Of a regression, in the targets' unit; None where they are not defined.
    unit
        Of a regression's values, where it is declared.
    shares
        Share of each model, (K,), in a run whose clients mix all models; else None.
    """

    model: int | None
    why: str
    num_examples: int
    losses: NDArray[np.float64]
    loss: float = float("nan")
    accuracy: float | None = None
    rmse: float | None = None
    r2: float | None = None
    unit: str = ""
    shares: NDArray[np.float64] | None = None
    misfit: str = ""


def assign_data(run: RunModels, new: NewData) -> Assignment:
    """Return which model fits data, and how well.

    CLoVE's frozen clusters, the groups of a discovery or those of FLUX decide where the run has them, else the lowest
    loss; of a run whose clients mix models the data's share of each is fitted.

    Raises
    ------
    ValueError
        If the data do not fit the run's models.
    """
    x = new.x
    # An autoencoder's targets are its inputs.
    y = np.zeros(len(x), dtype=np.int64) if new.y is None else new.y
    if is_mixture(run):
        shares = fitted_shares(run.task, run.models, x, y, run.class_shares)
        loss, accuracy = evaluate_models(run.task, run.models, shares, x, y)
        none = np.empty(0)
        return Assignment(None, "the run's clients mix all models", len(x), none, loss, accuracy, shares=shares)
    losses = model_losses(run.task, run.models, x, y)
    chosen, why, misfit = int(np.argmin(losses)), "its loss on these data is the lowest", ""
    if run.frozen_by == "losses":
        chosen = run.nearest_frozen(model_losses(run.task, run.frozen_models(), x, y))
        why = "its cluster's losses, saved when the run froze the clustering, are the nearest"
    if run.frozen is not None and run.frozen.training is not None:
        group, cosine = nearest_group(run.frozen, run.task, run.config.train, x, y)
        if group < 0:
            misfit = f"None of the run's groups fits these data (cosine {cosine:.2f} with the nearest one's centre)."
        else:
            chosen, why = (
                group,
                f"the run's first model learns from them what that group learned (cosine {cosine:.2f})",
            )
            training = run.frozen.training
            if training.folds_of(len(x)) == 1:
                needed = training.folds * training.size
                why += f", but {len(x)} samples are too few to be sure, {needed} would be enough"
    if run.frozen is not None and run.frozen.by == "descriptors":
        chosen = nearest_descriptor(run.frozen, run.task, x, y)
        why = "of what the run's common model makes of them, that group's is the nearest"
    if len(losses) == 1:
        why = "the run has only this one"
    loss, accuracy = evaluate_model(run.task, run.models[chosen], x, y)
    rmse, r2, unit = _errors(run, new, loss)
    return Assignment(chosen, why, len(x), losses, loss, accuracy, rmse, r2, unit, misfit=misfit)


def assign_unlabelled(run: RunModels, new: NewData) -> Assignment:
    """Return which model fits inputs without targets.

    Raises
    ------
    ConfigError
        If the run places data by their targets.
    """
    if run.frozen is None or run.frozen.by != "descriptors":
        raise ConfigError(
            ["unlabelled=true, or no y: this run places data by their targets, too; one of strategy=flux needs none."]
        )
    chosen = nearest_descriptor(run.frozen, run.task, new.x, None)
    why = "of what the run's common model makes of the inputs, that group's is the nearest"
    return Assignment(chosen, why, len(new.x), np.empty(0))


def _errors(run: RunModels, new: NewData, loss: float) -> tuple[float | None, float | None, str]:
    """Return a regression's root mean squared error in the targets' unit, R2 where that is defined, and the unit."""
    if "squared_error" not in run.task.spec.loss or new.y is None:
        return None, None, ""
    mean_square = loss * (2 if run.task.spec.loss == "half_squared_error" else 1)
    spread = float(new.y.astype(np.float64).var())
    prepared = new.preprocessing
    scale = 1.0 if prepared is None else prepared.target_std
    unit = "" if prepared is None else prepared.units.get(prepared.target, "")
    return mean_square**0.5 * scale, 1 - mean_square / spread if spread else None, unit
