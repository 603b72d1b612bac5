"""Methods within strategies, queries and handlers as an author writes them, and what is refused of each."""

import re
from typing import Any

import numpy as np
import pytest

import florets
from florets.strategies.base.federation import FederationError, TrainingDiverged
from florets.studies.one_run import explain
from florets.task.randomness import Purpose, generator
from tests.method_runs import play
from tests.own_methods import Asking, WithoutItsReturns

HERE = "tests.own_methods"


def test_a_query_returns_the_valid_answers_alone() -> None:
    found = play(f"strategy={HERE}:Asking", "num_rounds=1")
    assert list(Asking.answers) == ["0", "4", "5"]
    answer = Asking.answers["0"]
    assert answer.arrays["mean"].shape == (64,)
    assert answer.numbers["scaled"] == 2 * answer.num_examples == 192
    refused = found.reports[0].replies["invalid"]
    assert refused == 3


def test_a_method_averages_the_trained_entries() -> None:
    found = play(f"strategy={HERE}:HalvedFedAvg", "num_rounds=1")
    start = play(f"strategy={HERE}:HalvedFedAvg", "num_rounds=2").strategy.context.models.bank
    np.testing.assert_allclose(start, found.strategy.context.models.bank / 2, rtol=1e-6)


@pytest.mark.parametrize("weighting", ["examples", "uniform", "all_participants"])
def test_the_average_of_a_method_is_by_default_the_strategys(weighting: str) -> None:
    key = f"strategy.weighting={weighting}"
    own = play(f"strategy={HERE}:MeanCLoVE", key)
    assert set(own.reports[-1].assignment.values()) == {0, 1}
    assert own.final == play("strategy=clove", key).final


def test_an_average_that_no_robust_rule_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="robust=median: Halved averages updates by itself, which no rule bounds"):
        play(f"strategy={HERE}:HalvedFedAvg", "robust=median")


def test_an_error_of_the_authors_code_says_where_it_was_raised() -> None:
    with pytest.raises(FederationError, match=r"6 failed, .*NotImplementedError: raised in unwritten \(own_methods"):
        play(f"strategy={HERE}:UnwrittenFedAvg")
    with pytest.raises(NotImplementedError) as found:
        play(f"strategy={HERE}:FailingFedAvg", "eval_every=1")
    assert re.fullmatch(r"NotImplementedError: raised in uses \(own_methods.py, line \d+\)", explain(found.value))


def test_errors_of_an_authors_code_name_its_line_number_or_array() -> None:
    with pytest.raises(FederationError) as found:
        play(f"strategy={HERE}:BrokenFedAvg")
    assert re.search(r"KeyError: .*forgotten.* \(raised in broken \(own_methods.py, line \d+\)\)", str(found.value))
    assert "1 sent an invalid reply, for example client 1: what the handler returns as size is not" in str(
        found.value
    )
    assert not isinstance(found.value, TrainingDiverged)
    short = type("Short", (florets.Method,), {"start": lambda self, client, model: model[:3]})
    with pytest.raises(
        ValueError, match=r"Short.start: gives an array of shape \(3,\); a model is a vector of shape"
    ):
        run(type("InUse", (florets.strategies.FedAvg,), {"method": short}))


def test_a_handler_follows_what_the_strategy_asks_of_local_training() -> None:
    own = play(f"strategy={HERE}:FedProxByHandler", "strategy.proximal_mu=5.0")
    assert own.final == play("strategy=fedprox", "strategy.proximal_mu=5.0").final


def test_a_client_that_returns_less_than_its_method_says_is_refused() -> None:
    with pytest.raises(FederationError, match=r"not \['arrays', 'change', 'metrics'\]"):
        play(f"strategy={HERE}:WithoutItsReturns")


def run(strategy: Any) -> None:
    from florets.engines.local_grid import LocalGrid

    models, settings = florets.prepare(num_clients=4, task={"model_options": {"hidden": [8]}})
    strategy().start(LocalGrid(florets.apps.client, 4), models, num_rounds=1, train_config=settings)


def test_a_handler_must_be_one_that_a_client_can_import() -> None:
    def nested(client: florets.Client) -> None:
        """Do nothing."""

    with pytest.raises(ValueError, match="write a function at the top level of a module"):
        type("Wrong", (florets.strategies.FedAvg,), {"client_handlers": (nested,)})
    assert Asking.client_handlers == (f"{HERE}:statistics",)
    assert WithoutItsReturns.client_handlers == (f"{HERE}:forgetful",)


def test_the_decorator_of_handlers_returns_the_function_and_refuses_other_parameters() -> None:
    def answer(client: object) -> None: ...

    assert florets.handler(answer) is answer
    with pytest.raises(ValueError, match="it has no parameter"):
        florets.handler(lambda path: None)
    with pytest.raises(ValueError, match="'path' as well"):
        florets.handler(lambda client, path: None)


def test_an_authors_draws_have_names_and_numbers_of_their_own() -> None:
    own = generator(0, 1, "mine").random()
    assert own == generator(0, 1, "mine").random()
    assert own not in {generator(0, 1, "other").random(), *(generator(0, 1, one).random() for one in Purpose)}
