"""CLoVE's rules as hooks of a subclass: how loss vectors are clustered, and clusters matched to models."""

from typing import Any

import numpy as np
import pytest

import florets
from tests.fakes import FakeClients, models


class Halves(florets.strategies.CLoVE):
    """The clients whose loss on model 0 is above the median are a cluster; models are matched in reverse order."""

    def cluster_losses(self, losses: Any, k: int, rng: np.random.Generator) -> Any:
        return (losses[:, 0] > np.median(losses[:, 0])).astype(np.int64)

    def match(self, losses: Any, clusters: Any, previous: Any) -> Any:
        return np.array([1, 0])


def run(strategy: Any) -> dict[str, int]:
    strategy.start(FakeClients([0.0, 0.1, 5.0, 5.1]).grid(), models(0.0, 1.0), num_rounds=1)
    return dict(strategy.assignment)


def test_a_subclass_clusters_and_matches_in_its_own_way() -> None:
    assert run(Halves(k=2, first_round="evaluate")) == {"0": 1, "1": 1, "2": 0, "3": 0}


@pytest.mark.parametrize(
    ("hook", "returned", "rule"),
    [
        ("cluster_losses", [0, 2, 0, 2], "numbered from 0 without a gap"),
        ("cluster_losses", [0, 1], "give each of 4 clients a cluster"),
        ("match", [1, 1], "give each of 2 clusters a model of its own, from 0 to 1"),
        ("match", [0, 2], "from 0 to 1"),
    ],
)
def test_what_a_hook_returns_is_checked(hook: str, returned: list[int], rule: str) -> None:
    wrong = type("Wrong", (Halves,), {hook: lambda self, *given: np.array(returned)})
    with pytest.raises(ValueError, match=rf"Wrong.{hook} returned .*{rule}"):
        run(wrong(k=2, first_round="evaluate"))
