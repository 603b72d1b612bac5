"""A new client of a run whose clients mix all models: its share of each, and how well the mixture does."""

from florets.conf.problems import ConfigError
from florets.server_app.console import counted
from florets.server_app.new_client.run_models import RunModels
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.new_client import evaluate_models, fitted_shares


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


def assign_shares(run: RunModels, x: FloatArray, y: TargetArray) -> None:
    """Say in which shares the run's models explain data with their targets, and how well their mixture does.

    Of a run of FedRC a sample counts for a model the more, the rarer its class is in the model's part.

    Source: Marfoq et al. 2021 (FedEM), unseen clients. Deviation: there one step finds the shares; steps are repeated
    here until the shares rest, because the models do not change.
    """
    shares = fitted_shares(run.task, run.models, x, y, run.class_shares)
    loss, accuracy = evaluate_models(run.task, run.models, shares, x, y)
    print(f"These data are a mixture of {counted(len(shares), 'model')}:")
    print("  model  share")
    for model, share in enumerate(shares):
        print(f"  {model:5d}  {share:.3f}")
    told = "" if accuracy is None else f"accuracy {accuracy:.1%}, "
    print(f"Mixed in these shares, on {counted(len(x), 'sample')}: {told}loss {loss:.4g}")
