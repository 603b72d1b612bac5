"""Differential privacy: what is spent, that noise is as large as that says, and that nothing else is released."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.optimize import brentq
from scipy.stats import norm

from florets.client_app import training
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines import engine
from florets.server_app.checkpoint import CheckpointError, Checkpointing
from florets.server_app.resume import read_resume
from florets.strategies.base.federation import BudgetSpent
from florets.strategies.base.report import Client
from florets.strategies.core.accountant import delta_of, epsilon_of, level_of
from florets.strategies.core.noised_groups import nearest_centre, noised_centres
from florets.strategies.coverage import Releases
from florets.strategies.layers.budget import BUDGET_FILE, Budget, multiplier, read_budget
from florets.strategies.layers.noise import LENGTHS, Ledger
from florets.strategies.settings import Privacy
from florets.task.wire import noise

SMALL = [
    *("experiment=quickstart", "num_clients=12", "k=2", "task.num_clusters=2", "loss_matrix=false"),
    *("task.model_options={hidden: [8]}", "quiet=true", "pictures=false", "num_rounds=3"),
]


PLAIN = Releases()


def ledger(releases: Releases = PLAIN, visits: int = 10, **keys: Any) -> Ledger:
    privacy = Privacy(**{"kind": "central", "epsilon": 4.0, **keys})
    return Ledger(privacy, releases, Budget.planned(privacy, releases, visits, 100))


def clients(count: int) -> list[Client]:
    return [Client(str(number), number, number, 10) for number in range(count)]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (1.0, 1e-3), (8.0, 1e-4)])
def test_the_level_of_one_release_is_that_of_the_analytic_gaussian_mechanism(epsilon: float, delta: float) -> None:
    # Balle and Wang 2018, Th. 8, with sensitivity 1, solved for the standard deviation.
    def excess(deviation: float) -> float:
        a, b = 1 / (2 * deviation), epsilon * deviation
        return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) - delta)

    assert 1 / level_of(epsilon, delta) == pytest.approx(brentq(excess, 0.05, 100, xtol=1e-12), rel=1e-6)
    assert epsilon_of(level_of(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-6)


def test_epsilon_of_many_releases_is_below_renyis_bound_and_near_the_loss_distributions() -> None:
    z, rounds, delta = 8.0, 40, 1e-4
    mu = math.sqrt(rounds) / z
    orders = np.linspace(1.01, 200, 20_000)
    bounds = orders * mu**2 / 2 + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    found = epsilon_of(mu, delta)
    assert 0.8 * bounds.min() < found < bounds.min()
    # Privacy loss of a Gaussian is Gaussian: delta by numerical integration over it.
    grid = np.linspace(-40, 40, 400_001)
    loss = mu**2 / 2 + mu * grid
    excess = np.maximum(0.0, -np.expm1(found - loss)) * norm.pdf(grid)
    assert np.trapezoid(excess, grid) == pytest.approx(delta, rel=0.01)
    assert delta_of(0.0, 1.0) == 0.0
    with pytest.raises(ValueError, match="not planned"):
        ledger().noised_sum(["a"], np.ones(3), 1.0)


def test_a_plan_spends_the_whole_budget_and_no_more() -> None:
    releases = Releases(before=6, each=1)
    planned = Budget.planned(Privacy(kind="local", epsilon=2.0), releases, 10, 100)
    cost = 10 * planned.update + 16 * planned.grouping
    assert planned.delta == 1e-4
    assert cost == pytest.approx(planned.total)
    assert 16 * planned.grouping == pytest.approx(0.2 * planned.total)
    planned.spent = {"a": cost, "b": cost / 2}
    assert planned.reached == pytest.approx(2.0)
    assert planned.reached <= 2.0


def one_group(own: Ledger, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    own.begin(clients(len(rows)), clients(len(rows)))
    own.charge_training([str(row) for row in range(len(rows))], {})
    start = np.zeros((1, rows.shape[1]))
    shared = np.zeros(rows.shape[1], np.bool_)
    return own.changes(rows, np.zeros(len(rows), np.int64), start, shared, False)[0][0]


def test_a_client_moves_the_sum_by_at_most_the_clip_and_one_that_is_not_finite_by_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noise, "gaussian", lambda shape, deviation: np.zeros(shape))
    rows = np.random.default_rng(0).normal(size=(5, 7))
    without = rows.copy()
    for huge in (1e30, math.inf, math.nan):
        rows[2], without[2] = huge, 0.0
        moved = 5 * (one_group(ledger(clip=0.5), rows) - one_group(ledger(clip=0.5), without))
        assert np.linalg.norm(moved) <= 0.5 + 1e-9


def test_noise_has_the_deviation_that_was_paid_for_and_never_repeats() -> None:
    own = ledger(clip=2.0)
    found = one_group(own, np.zeros((50, 40_000)))
    assert found.std() * 50 == pytest.approx(2.0 * multiplier(own.budget.update), rel=0.02)
    assert (found != one_group(own, np.zeros((50, 40_000)))).all()
    # Sums and sizes of hidden groups share one release: their levels add up to what it costs.
    hidden = ledger(Releases(hidden=True), clip=2.0)
    hidden.begin(clients(60), clients(60))
    hidden.charge_training([str(row) for row in range(59)], {})
    start, groups = np.zeros((2, 40_000)), np.repeat([0, 1], 30)
    sums, *_ = hidden.changes(np.zeros((60, 40_000)), groups, start, np.zeros(40_000, np.bool_), True)
    level = 2.0 / (sums.std() * 60)
    assert level**2 == pytest.approx(0.9 * hidden.budget.update, rel=0.02)


def test_noised_losses_are_within_their_norm_and_can_be_sent() -> None:
    assert np.linalg.norm(noise.centred(np.array([math.inf, math.nan, 0.0, 2.0]))) <= noise.loss_norm(4)
    many = np.stack([noise.noised_losses(np.array([1.0, 3.0]), 0.4) for _ in range(4000)])
    back = many - noise.raised_by(2, 0.4)
    np.testing.assert_allclose(back.mean(axis=0), [1.0, 3.0], atol=0.1)
    assert back.std() == pytest.approx(math.sqrt(1 + (0.4 * noise.loss_norm(2)) ** 2), rel=0.05)
    assert many.min() > 0


def test_clusters_by_one_sum_compare_models_with_the_mean_client_and_add_one_client_within_the_norm() -> None:
    rng = np.random.default_rng(3)
    group = np.repeat(range(3), 40)
    # The third model is the best one for all; clients differ in how hard their data are.
    losses = (
        2.0 - 0.2 * np.eye(3)[group] - [0.0, 0.0, 0.5] + rng.normal(0, 0.02, (120, 3)) + rng.uniform(0, 1, (120, 1))
    )
    vectors, bound = noise.centred(losses), noise.loss_norm(3)
    centres = noised_centres(vectors, 3, bound, lambda total, _: total)
    assert (vectors.argmin(axis=1) == 2).all()
    assert (nearest_centre(vectors, centres) == group).all()
    seen: list[tuple[np.ndarray[Any, Any], float]] = []
    vectors[-1] = noise.centred(np.array([0.0, 1e9, 1e9]))
    for rows in (vectors, vectors[:-1]):
        noised_centres(rows, 3, bound, lambda total, most: seen.append((total, most)) or total)
    (first, most), (other, _) = seen
    assert np.linalg.norm(first - other) <= most + 1e-12


def test_the_usual_length_of_updates_is_found_unless_noise_hides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([4.0] * 60 + [2.0] * 20 + [9.0] * 20 + [math.inf, 0.0])
    for epsilon, looks, found in ((8.0, 1, 4.0), (0.1, 2, 1.0)):
        own = ledger(epsilon=epsilon)
        for _ in range(looks):
            bound = own._usual(lengths, multiplier(own.budget.update) / math.sqrt(LENGTHS))
        assert bound == pytest.approx(found, rel=0.25)
    counts = list[np.ndarray[Any, Any]]()
    monkeypatch.setattr(noise, "gaussian", lambda shape, _: np.zeros(shape))
    for rows in (lengths, lengths[1:]):
        own = ledger()
        own._usual(rows, 1.0)
        counts.append(own._lengths)
    assert np.linalg.norm(counts[0] - counts[1]) == 1.0


def test_clients_that_cannot_pay_are_not_asked_and_the_run_ends_when_few_are_left() -> None:
    own, everybody = ledger(visits=1), clients(5)
    own.begin(everybody, everybody)
    own.charge_training(["0", "1"], {})
    assert [own.can_pay(client) for client in everybody] == [False, False, True, True, True]
    own.charge_training(["2"], {})
    with pytest.raises(BudgetSpent, match=r"privacy.epsilon=4: 4 is spent"):
        own.begin(everybody[3:], everybody)
    with pytest.raises(BudgetSpent):
        own.charge(["0", "4"], own.budget.update)
    assert "4" not in own.budget.spent


def test_a_budget_is_saved_before_its_release_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    own, saved = ledger(), list[float]()
    own.save = lambda budget: saved.append(budget.spent["a"])
    own.charge_training(["a"], {})
    assert saved == [own.budget.update]
    (tmp_path / BUDGET_FILE).write_text('{"epsilon": 4.0}')
    with pytest.raises(ValueError, match="not known what the run has spent"):
        read_budget(tmp_path / BUDGET_FILE)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["privacy.kind=central"], "needs privacy.epsilon"),
        (["privacy.epsilon=4"], "has an effect only with privacy.kind"),
        (["robust=median"], "robust=median: not covered by privacy.kind=central"),
        (["personal=slopes"], "personal=slopes: not covered"),
        (["num_clients=20", "privacy.min_group=101"], "privacy.min_group=101: needs 101 clients, and there are 20"),
        (["secure_aggregation=true"], "secure_aggregation=true: not covered by privacy.kind=central: masks"),
        (["k=auto"], "k=auto: not covered"),
        (["patience=2", "task.validation_fraction=0.2"], "patience=2: not covered"),
        (["privacy.kind=local", "statistics=true"], "statistics=true: not covered by privacy.kind=local"),
        (["experiment=own_data", "privacy.kind=local"], "what own data have in common must be declared"),
    ],
)
def test_what_noise_does_not_cover_is_refused_by_name(given: list[str], said: str) -> None:
    keys = {"privacy.kind": "central", "privacy.epsilon": "4"} if len(given) > 1 or "privacy" not in given[0] else {}
    keys = {key: value for key, value in keys.items() if not any(text.startswith(f"{key}=") for text in given)}
    with pytest.raises(ConfigError) as error:
        compose([*given, *(f"{key}={value}" for key, value in keys.items())])
    assert said in str(error.value)


def test_a_run_reports_what_it_spends_and_ends_before_it_would_pass_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [*SMALL, "strategy=ifca", "privacy.kind=central", "privacy.epsilon=3", f"results_dir={tmp_path}"]
    after = Checkpointing.after

    def killed(self: Checkpointing, done: int, models: Any) -> None:
        if done == 2:
            raise KeyboardInterrupt
        after(self, done, models)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointing, "after", killed)
        with pytest.raises(KeyboardInterrupt):
            engine.run(compose(given), given)
    (folder,) = {path.parent for path in tmp_path.rglob(BUDGET_FILE)}
    # Round 2 was released, and its checkpoint lost: it is released once more, and round 3 cannot be paid for.
    again = read_resume([f"resume={folder}"], tmp_path)
    assert again is not None
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    engine.resume(*again)
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2]
    spent = [line["details"]["privacy"]["epsilon"] for line in lines]
    assert spent[0] < spent[1] == pytest.approx(3.0)
    assert "privacy.epsilon=3: 3 is spent" in (folder / "run.log").read_text()
    assert "of 3 (delta 0.0069, central); covers" in (folder / "report.html").read_text()
    values = json.loads((damaged / BUDGET_FILE).read_text())
    (damaged / BUDGET_FILE).write_text(json.dumps({**values, "spent": {}}))
    with pytest.raises(CheckpointError, match="which the rounds that are done contradict"):
        engine.resume(again[0], damaged)
    (damaged / BUDGET_FILE).unlink()
    with pytest.raises(CheckpointError, match="not known what the run has spent"):
        engine.resume(again[0], damaged)


def test_an_infinite_epsilon_is_the_plain_run_to_the_bit(tmp_path: Path) -> None:
    models = []
    for kind in ("none", "central", "example"):
        own = [] if kind == "none" else [f"privacy.kind={kind}", "privacy.epsilon=inf"]
        given = [*SMALL, "strategy=clove", *own, f"results_dir={tmp_path / kind}"]
        models.append(load_file(Path(engine.run(compose(given), given).folder) / "models.safetensors"))
    for name, values in models[0].items():
        np.testing.assert_array_equal(models[1][name], values)
        np.testing.assert_array_equal(models[2][name], values)


@pytest.mark.parametrize("strategy", ["clove", "ifca", "fedavg"])
def test_with_local_noise_no_message_holds_a_count_a_loss_or_an_update_without_it(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without noise everything that is sent would be the same for clients without data: nothing but noise is added.
    sent: list[Any] = []
    pack = training.pack

    def packed(kind: Any, **values: Any) -> Any:
        sent.append(values)
        return pack(kind, **values)

    monkeypatch.setattr(training, "pack", packed)
    given = [*SMALL, f"strategy={strategy}", "privacy.kind=local", "privacy.epsilon=4", f"results_dir={tmp_path}"]
    folder = Path(engine.run(compose(given), given).folder)
    assert sent
    assert all(values["num_examples"] == 1 for values in sent)
    assert all(values.get("train_loss", 0.0) == 0.0 for values in sent)
    # The noise is many times the bound of an update.
    assert 3.5 < read_budget(folder / BUDGET_FILE).reached <= 4.0
    assert {row.split(",")[3] for row in (folder / "clients.csv").read_text().splitlines()[1:]} == {"1"}
