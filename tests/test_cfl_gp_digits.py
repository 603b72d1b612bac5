"""CFL-GP on real digits, without the results folder of a whole run."""

import pytest
from flwr.app import ArrayRecord

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.report import RoundReport
from florets.strategies.core.metrics import adjusted_rand_index


def play(*overrides: str) -> tuple[list[float | None], list[RoundReport], ArrayRecord]:
    """ARI of every round, the rounds' reports and the last models."""
    rounds = [] if any(given.startswith("num_rounds=") for given in overrides) else ["num_rounds=6"]
    config = compose(["strategy=cfl_gp", "num_clients=10", "eval_every=100", *rounds, *overrides])
    task, reports = build_task(config), []
    result = build_strategy(config, task).start(
        LocalGrid(app, config.num_clients),
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=lambda report, _: reports.append(report),
    )
    truth = [task.cluster_of(client) for client in range(config.num_clients)]
    found = [[report.assignment[str(client)] for client in range(config.num_clients)] for report in reports]
    return [adjusted_rand_index(truth, assignment) for assignment in found], reports, result.arrays


@pytest.mark.parametrize(
    "settings",
    [
        ("strategy.quantise=round",),
        ("averaging=gradients", "strategy.compression=10", "strategy.initial_groups=one"),
        ("experiment=digits_label_skew", "strategy.shared_layers=[1]", "strategy.profile_layers=[3]"),
        ("strategy.fraction_train=0.5", "num_rounds=12", "strategy.period=1"),
        ("k=auto", "k_max=6", "num_rounds=12", "strategy.k_warmup=6"),
    ],
    ids=lambda settings: " ".join(settings),
)
@pytest.mark.slow
def test_the_groups_are_found_in_all_variants(settings: tuple[str, ...]) -> None:
    assert play(*settings)[0][-1] == 1.0


@pytest.mark.slow  # Golden runs hold both to the bit.
@pytest.mark.parametrize("averaging", ["gradients", "models"])
def test_equal_seeds_give_equal_models_to_the_bit(averaging: str) -> None:
    def models(seed: int) -> dict[str, bytes]:
        given = (f"averaging={averaging}", "strategy.fraction_train=0.5", "num_rounds=4", f"seed={seed}")
        return {name: array.data for name, array in play(*given)[2].items()}

    assert models(3) == models(3) != models(4)


def test_the_own_model_is_not_sent_twice_and_compression_shortens_the_replies() -> None:
    _, whole, _ = play("averaging=gradients", "num_rounds=3")
    _, part, _ = play("averaging=gradients", "num_rounds=3", "strategy.compression=100")
    plain, probing = whole[0], whole[1]
    others = sum(model != 0 for model in plain.assignment.values())
    one = plain.bytes_up / 10
    assert probing.bytes_down - plain.bytes_down == pytest.approx(others * plain.bytes_down / 10, rel=0.2)
    assert probing.bytes_up - plain.bytes_up == pytest.approx(others * one, rel=0.05)
    assert part[1].bytes_up - part[0].bytes_up == pytest.approx(others * one / 100, abs=others * 150)
