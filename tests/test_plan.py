"""`florets plan`: bytes of a plan against those of a real run, and figures by hand."""

import pytest

from florets.commands.plan import plan_of
from florets.conf.compose import compose
from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.report import RoundReport

SMALL = ["num_clients=40", "task.model_options.hidden=[16]", "train.local_epochs=1"]


MASKED = ["num_clients=8", "secure_aggregation=true", "privacy.kind=central", "privacy.epsilon=4"]


@pytest.mark.parametrize("given", [[*SMALL, "strategy.fraction_train=0.5"], MASKED], ids=["plain", "masked"])
def test_bytes_of_a_plan_are_those_of_the_run_but_for_settings_and_numbers(given):
    config = compose(["strategy=fedavg", "num_rounds=2", *given])
    task = build_task(config)
    reports: list[RoundReport] = []
    build_strategy(config, task).start(
        LocalGrid(client_side().app, config.num_clients),
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=lambda report, _: reports.append(report),
    )
    plan = plan_of(config)
    rounds, *_ = plan.parts
    assert 2 * rounds.down == pytest.approx(sum(report.bytes_down for report in reports), rel=0.08)
    assert 2 * rounds.up == pytest.approx(sum(report.bytes_up for report in reports), rel=0.01)
    if plan.privacy:
        tests = 8
        assert rounds.messages + tests == sum(reports[0].replies.values())
        spent = [report.details["privacy"]["epsilon"] for report in reports]
        assert spent == pytest.approx([plan.privacy["round"], plan.privacy["epsilon"]])


def test_figures_of_a_plan_by_hand():
    plan = plan_of(compose([*SMALL, "strategy=ifca", "k=4", "num_rounds=5", "eval_every=2", "loss_matrix=true"]))
    # 8 x 8 inputs, 16 hidden units, 10 classes, in float32; each of four arrays has a head of 128 bytes.
    parameters = 64 * 16 + 16 + 16 * 10 + 10
    one = 4 * parameters + 4 * 128
    assert (plan.parameters, plan.one, plan.models, plan.clients) == (parameters, one, 4, 40)
    assert [(part.name, part.times, part.down, part.up) for part in plan.parts] == [
        ("round", 5, 40 * one, 40 * one), ("test", 3, 40 * one, 0), ("loss matrix", 1, 160 * one, 0),
    ]  # fmt: skip
    assert plan.total("messages") == 5 * 40 + 3 * 40 + 40
    assert plan.most_down == (5 * 160 + 3 * 40 + 160) * one
    assert plan.lines[-1] == "Memory of models, about: 278 kB on the server, 42.8 kB on a client."
