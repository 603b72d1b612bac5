"""`florets plan`: clients that repeat others, the rounds of a whole run, and its bytes beside those of real runs."""

import json
from dataclasses import replace

import pytest
import torch

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.server_app.plan.command import rows
from florets.server_app.plan.dry_run import DryRun, PlannedRound, dry_run
from florets.server_app.plan.plan import period, plan_of
from florets.server_app.plan.replicas import Exchange, Seen, representative_nodes, representatives
from florets.strategies.base.report import RoundReport

SMALL = [
    "num_clients=40", "task.model_options.hidden=[16]", "eval_every=100", "loss_matrix=false", "train.local_epochs=1",
]  # fmt: skip


def real_rounds(overrides: list[str]) -> list[RoundReport]:
    """Return the reports of a real run's rounds."""
    config = compose(overrides)
    task = build_task(config)
    reports: list[RoundReport] = []
    build_strategy(config, task).start(
        LocalGrid(client_side().app, config.num_clients),
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=lambda report, _: reports.append(report),
    )
    return reports


def planned_and_real(overrides: list[str], seconds: float = 100.0) -> tuple[list[float], list[float]]:
    """Return bytes down, bytes up and messages of the rounds of a plan, and of the real run."""
    config = compose(overrides)
    plan = plan_of(dry_run(config, client_side(), seconds), config.eval_every)
    of_rounds = [part for part in plan.parts if part.first]
    planned = [sum(part.times * getattr(part, name) for part in of_rounds) for name in ("down", "up", "messages")]
    reports = real_rounds(overrides)
    messages = sum(report.replies["ok"] - len(report.evaluations) for report in reports)
    return planned, [sum(r.bytes_down for r in reports), sum(r.bytes_up for r in reports), messages]


def test_bytes_and_messages_of_a_plan_are_those_of_the_run():
    planned, real = planned_and_real([*SMALL, "strategy=ifca", "num_rounds=2"], seconds=0.0)
    assert planned == pytest.approx(real, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["strategy=clove", "strategy.stop_when_stable=false", "num_rounds=5"],
        ["strategy=clove", "strategy.stop_when_stable=false", "strategy.fraction_train=0.5", "num_rounds=5"],
        ["strategy=fedavg", "num_rounds=5"],
        ["strategy=cfl_gp", "averaging=gradients", "strategy.period=3", "num_rounds=7"],
        ["strategy=discovery", "k=auto", "num_rounds=4"],
        ["strategy=ditto", "num_rounds=3"],
        ["strategy=fedsoft", "num_rounds=3"],
        ["strategy=pacfl", "k=auto", "num_rounds=3"],
    ],
    ids=lambda overrides: " ".join(overrides),
)
def test_every_way_to_talk_to_clients_is_planned_within_one_percent(overrides):
    planned, real = planned_and_real([*SMALL, *overrides])
    assert planned == pytest.approx(real, rel=0.01)


def test_each_client_stands_for_clients_of_its_group_and_about_its_size():
    spec = ["num_clients=60", "task.partition=composed", "task.partition_options={reuse: clients, angles: [0, 90],"]
    sizes = "samples_per_client: [5, 50]}"
    task = build_task(compose([*spec[:2], f"{spec[2]} {sizes}", "task.num_clusters=2", "k=2"]))
    found = representatives(task)
    assert len(set(found)) == 16
    assert all(found[number] == number for number in set(found))
    for client, number in enumerate(found):
        assert task.cluster_of(client) == task.cluster_of(number)
        assert 0.4 < task.num_examples_of(client) / task.num_examples_of(number) < 2.5
    assert representative_nodes(3) == [0, 1, 2]
    # Neighbours by name are of one site: each run of them has its middle one.
    assert representative_nodes(40)[:8] == [1, 1, 1, 4, 4, 4, 7, 7]
    assert len(set(representative_nodes(40))) == 16


def test_a_sequence_goes_on_with_what_it_repeats():
    assert period("abbb") == 1
    assert period("xabaab") == 1
    assert period("xabab") == 2
    assert period("abcabc") == 3
    assert period("abc") == 1
    assert period("a") == 1


def exchange(kind: str, messages: int, down: int, up: int, seconds: float) -> Exchange:
    return Exchange((kind,), messages, down, up, seconds)


def test_totals_times_and_memory_of_a_plan_by_hand():
    train, losses = exchange("train", 10, 100, 50, 2.0), exchange("losses", 10, 300, 5, 1.0)
    searching = PlannedRound("clustering", (losses, train), None, 0.5)
    stable = PlannedRound("stable", (train,), exchange("evaluate", 10, 100, 1, 0.5), 0.25)
    found = DryRun(
        num_rounds=6,
        num_clients=10,
        num_models=2,
        num_parameters=3,
        model_bytes=12,
        introductions=(exchange("query.hello", 5, 4, 5, 0.05), exchange("query.hello", 5, 3, 3, 0.05)),
        rounds=(searching, searching, stable),
        loss_matrix=None,
        seen=Seen(up_at_once=1000, down_at_once=30, reply=5, asked=set(range(4)), growth=100),
        data_bytes=40.0,
        computed=3,
        peak=5000,
        start=2000,
    )
    plan = plan_of(found, eval_every=3)
    assert [(part.name, part.times, part.first) for part in plan.parts] == [
        ("introductions", 2, 0), ("clustering", 2, 1), ("stable", 4, 3), ("test", 2, 0),
    ]  # fmt: skip
    assert plan.total("down") == 7 + 2 * 400 + 4 * 100 + 2 * 100
    assert plan.total("up") == 8 + 2 * 55 + 4 * 50 + 2 * 1
    assert plan.total("messages") == 10 + 2 * 20 + 4 * 10 + 2 * 10
    assert plan.exchanges == 2 + 4 + 4 + 2
    assert (plan.most_down, plan.most_up) == (6 * 400 + 7 + 200, 6 * 55 + 8 + 2)
    clients, server = 0.1 + 2 * 3.0 + 4 * 2.0 + 2 * 0.5, 2 * 0.5 + 4 * 0.25
    assert plan.local_seconds(2) == pytest.approx(clients / 2 + server)
    # The two parts of the introductions come one after the other: five clients each.
    assert plan.deployed_seconds == pytest.approx((clients + 0.1) / 10 + server)
    assert plan.server_memory == 6000
    # Those that computed have their data already; all ten take part sooner or later.
    assert plan.local_memory == 6000 + 7 * 40
    assert plan.client_memory == 2000 + 40 + 30 + 5 + 100
    assert rows(plan)[-1][:5] == ["total", "", "", "12 exchanges", "110"]
    # Four rounds are timed as the one stable one.
    assert plan.timed_once
    assert not plan_of(replace(found, rounds=(searching, searching, stable, stable)), eval_every=3).timed_once


def test_the_command_tells_the_same_to_people_and_programs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides = [*SMALL, "strategy=fedavg", "num_rounds=30", "--seconds", "0"]
    assert main(["plan", *overrides]) == 0
    shown = capsys.readouterr().out
    assert "| total " in shown
    assert "Rounds 1 to 2 were run dry" in shown
    assert main(["plan", *overrides, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (rounds,) = [part for part in told["parts"] if part["first"]]
    assert (rounds["name"], rounds["times"], rounds["messages"]) == ("training", 30, 40)
    assert told["total"]["down"] == sum(part["times"] * part["down"] for part in told["parts"])
    assert not list(tmp_path.iterdir())


def test_a_wrong_key_or_option_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["plan", "device=cuda"]) == 2
    assert "device=cuda, but this machine's PyTorch sees no CUDA device" in capsys.readouterr().err
    assert main(["plan", "num_clients=4", "k=2", "workers=5"]) == 2
    assert "workers=5: must be at most num_clients=4" in capsys.readouterr().err
    assert main(["plan", "num_clients=0"]) == 2
    assert main(["plan", "--second", "3"]) == 2
    assert "no such option (--json, --seconds <n>)" in capsys.readouterr().err
    assert main(["plan", "--seconds=-1"]) == 2
    assert "--seconds -1: must be a finite number of at least 0" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="num_clients"):
        dry_run(compose(["num_clients=3", "k=2"]), client_side(), 1.0)
