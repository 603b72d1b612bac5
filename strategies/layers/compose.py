"""`compose`: the layers of a run, in their order around each exchange; only this module knows them all."""

import math
from dataclasses import replace
from typing import Any

from florets.strategies.base.exchange import log
from florets.strategies.base.layer import Layer
from florets.strategies.coverage import releases_of
from florets.task.wire import kinds


def compose(strategy: Any, num_rounds: int, earlier: Any = None) -> tuple[tuple[Layer, ...], Any]:
    """Return the layers of a strategy's run of this many rounds, and its privacy budget; None without noise.

    An `earlier` budget is continued. A training exchange passes the first layer first, both on its way out and back.
    """
    run, settings, layers = strategy.run, strategy.settings, list[Layer]()
    ledger = _ledger_of(strategy, num_rounds, earlier)
    if ledger is None:
        from florets.strategies.layers.outliers import LossOutliers, UpdateOutliers

        layers.append(UpdateOutliers())
        if hasattr(settings, "outlier_loss"):
            layers.append(LossOutliers(settings.outlier_loss))
    if getattr(settings, "memory", False):
        from florets.strategies.layers.losses import Memory

        layers.append(Memory())
    if getattr(settings, "probes", 0):
        from florets.strategies.layers.losses import Probes

        layers.append(Probes(settings.probes))
    if strategy.averaging.robust is not None:
        from florets.strategies.layers.quarantine import Hostile

        layers.append(Hostile(strategy.averaging.robust))
    if run.secure_aggregation:
        from florets.strategies.layers.masks import Masks

        layers.append(Masks(run.privacy.min_group))
    if ledger is not None:
        from florets.strategies.layers.noise import Noise

        first = 1 if strategy.first_round == "evaluate" else 2
        last_grouping = first + (settings.grouping_rounds or 0) - 1
        noise = Noise(ledger, settings.asks, last_grouping)
        for handler in strategy.client_handlers:
            if not kinds.is_built_in(handler):
                noise.allow(kinds.CUSTOM, handler)
        layers.append(noise)
        if bare := [layer.name for layer in layers if not layer.under_noise]:
            raise ValueError(
                f"privacy.kind={run.privacy.kind}: noise does not cover {', '.join(bare)}; leave one out"
            )
    if shown := [layer.name for layer in layers if layer.name != "update outliers"]:
        log.info("layers around each exchange: %s", ", ".join(shown))
    return tuple(layers), ledger


def _ledger_of(strategy: Any, num_rounds: int, earlier: Any) -> Any:
    """Return the budget of a run's noise; a client's is for the fraction of the rounds that samples it."""
    run, settings = strategy.run, strategy.settings
    privacy = run.privacy
    if not privacy.has_noise or (releases := releases_of(settings, privacy.kind)) is None:
        return None
    from florets.strategies.core.noised_groups import COST
    from florets.strategies.layers.budget import Budget
    from florets.strategies.layers.example_noise import ExampleLedger
    from florets.strategies.layers.noise import Ledger

    # The small constant keeps products such as 0.07 * 100 from adding a round by rounding.
    rounds = strategy.settings.rounds_before + num_rounds
    visits = max(1, math.ceil(settings.fraction_train * rounds - 1e-9))
    first = releases.first if strategy.first_round == "update" else 0
    compared = COST * min(releases.compared, visits, rounds if strategy.first_round == "evaluate" else rounds - 1)
    releases = replace(releases, before=releases.before + first + compared)
    if privacy.hides_records:
        return ExampleLedger(privacy, releases, visits, earlier)
    budget = earlier or Budget.planned(privacy, releases, visits, run.num_clients or 1)
    # Of masked updates the server sees no lengths.
    known = replace(privacy, clip=privacy.known_clip) if run.secure_aggregation else privacy
    return Ledger(known, releases, budget)
