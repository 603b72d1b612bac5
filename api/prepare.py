"""`florets.prepare`: what a ServerApp of one's own starts a strategy with."""

from typing import TYPE_CHECKING, Any

from florets.api.keys import overrides_of
from florets.conf.compose import compose

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, ConfigRecord


def prepare(experiment: str | None = None, /, **keys: Any) -> "tuple[ArrayRecord, ConfigRecord]":
    """Return the first models of an experiment, and the settings that travel with every message.

    With ``florets.apps.client`` as the ClientApp, any ServerApp can hand both to a strategy::

        strategy = florets.strategies.CLoVE(k=5)
        models, settings = florets.prepare("digits_label_skew", strategy=strategy)
        strategy.start(grid, models, num_rounds=3, train_config=settings)

    Parameters
    ----------
    experiment : str, optional
        Name of the preset; by default the quickstart.
    **keys
        The keys of the command, as `run` takes them. With ``strategy=`` the strategy that is to be started: it is
        checked against the others, by its `Settings.problems` as well, and gets as many models as it needs.

    Returns
    -------
    ArrayRecord, ConfigRecord
        K models, with K as the strategy or the experiment has it; one model takes the first. The settings name the
        task, so that clients build their data and model from them.

    Raises
    ------
    ConfigError
        With every problem of the keys.
    """
    from florets.server_app.build import build_models, build_task, message_settings

    config = compose(overrides_of(experiment, keys))
    task = build_task(config)
    return build_models(config, task), message_settings(config, task)
