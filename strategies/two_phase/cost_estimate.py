"""Estimate of the cost of phase 1 of mixed regression, which can be most of a run."""

from collections.abc import Sequence

from florets.strategies.base.report import Client, CostEstimate
from florets.strategies.two_phase.anchors import num_anchors
from florets.strategies.two_phase.settings import FEWEST_EXAMPLES, TwoPhaseSettings

_FLOAT32 = 4
"""Bytes of a value as it is sent."""


def estimate_cost(settings: TwoPhaseSettings, clients: Sequence[Client], num_models: int, size: int) -> CostEstimate:
    """Estimate a round of phase 1 for these clients and K models of R = `size` values."""
    able = [client for client in clients if client.num_examples >= FEWEST_EXAMPLES]
    eligible = sum(client.num_examples >= settings.min_anchor_examples for client in able)
    anchors = min(num_anchors(num_models) if settings.anchors == "auto" else settings.anchors, eligible)
    asked = len(able)
    if settings.fresh:
        asked -= anchors
    if settings.subspace_clients != "all":
        asked = min(asked, settings.subspace_clients)
    rank = min(num_models, size)
    estimates, bases = anchors * size * (1 if settings.noise == 0 else 2), anchors * size * rank
    if settings.subspace == "iteration":
        exchanges, values = settings.inner_steps, asked * (estimates + 2 * bases)
    else:
        # The factors: of all pairs every example's moment at each anchor.
        examples = sum(client.num_examples for client in able) * asked // max(len(able), 1)
        rows = examples if settings.pairing == "all" else asked
        sides = 1 if settings.pairing == "all" and settings.noise == 0 else 2
        exchanges, values = 1, asked * estimates + sides * rows * anchors * size
    step = anchors * size * (rank + 2)
    return CostEstimate(settings.moment_rounds, exchanges * asked + anchors, _FLOAT32 * (exchanges * values + step))
