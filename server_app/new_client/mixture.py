"""Runs whose clients mix all models."""

from florets.conf.problems import ConfigError
from florets.server_app.new_client.run_models import RunModels


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
