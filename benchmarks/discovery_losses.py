"""Discovery's score on loss vectors of later rounds: how often the number of groups is right.

Each client's data are divided in four folds, and a row is the mean losses on one of them under all models that CLoVE
has after some rounds. The rule is discovery's own. `train`: folds of the data that the models are trained on, as a
deployed run would have them. `test`: data that no model has seen, which is the best that held-out losses could be.
`fifth`: of those as many as `loss_data=held_out` would keep back, a fifth of the training data.
"""

import time
from collections import Counter

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.server_app.reproduce.item_file import find_item
from florets.strategies.base.report import RoundReport
from florets.strategies.core.folds import Groups, discover
from florets.strategies.core.metrics import adjusted_rand_index
from florets.task.task import Task
from florets.task.wire import bank

FOLDS = 4
ROWS = (
    "digits_iid",
    "digits_rotations_2",
    "digits_rotations_4",
    "digits_label_pairs",
    "digits_concept_shift",
    "digits_unequal_groups",
)


def loss_folds(first: int, seeds: int, only: str, models: int, rounds: list[int]) -> None:
    """Print for each row, data and round the share of seeds with the right number of groups, and the ARI."""
    item = find_item("discovery/recovery")
    print(
        f"score of loss vectors under {models} models of CLoVE, {FOLDS} folds, seeds {first} to {first + seeds - 1}"
    )
    for row in item.rows:
        if row.name not in ROWS or only not in row.name:
            continue
        keys = {**item.overrides, **row.overrides, "strategy": "clove", "k": str(models)}
        keys |= {"num_rounds": str(max(rounds)), "strategy.stop_when_stable": "false"}
        begin = time.process_time()
        right: Counter[tuple[str, int]] = Counter()
        agreement: dict[tuple[str, int], list[float]] = {}
        answers: dict[tuple[str, int], Counter[str]] = {}
        for seed in range(first, first + seeds):
            config = compose([f"{key}={value}" for key, value in {**keys, "seed": str(seed)}.items()])
            task = build_task(config)
            truth = [task.cluster_of(client) for client in range(config.num_clients)]
            number = len(set(truth))
            for case, losses in _losses(config, task, rounds, np.random.default_rng([seed, 7])).items():
                found = discover(losses, None, rng=np.random.default_rng([seed, 4]))
                right[case] += _is_right(found, number)
                said = {"none": "none", "all_differ": "all"}.get(found.verdict, str(found.k))
                answers.setdefault(case, Counter())[said] += 1
                if number > 1:
                    given = discover(losses, number, rng=np.random.default_rng([seed, 4]))
                    ari = adjusted_rand_index(truth, given.labels.tolist())
                    agreement.setdefault(case, []).append(ari)
        for case in sorted(answers):
            ari = f"K given: ARI {np.mean(agreement[case]):5.2f}" if case in agreement else " " * 19
            said = " ".join(f"{answer}:{count}" for answer, count in answers[case].most_common(6))
            print(f"{row.name:24} {case[0]:5} round {case[1]:2}  right {right[case]:2} of {seeds}  {ari}  {said}")
        print(f"{'':24} {(time.process_time() - begin) / seeds:.1f} CPU s a seed", flush=True)


def _is_right(found: Groups, number: int) -> bool:
    return found.verdict == "none" if number == 1 else found.verdict == "groups" and found.k == number


def _losses(
    config: Config, task: Task, rounds: list[int], rng: np.random.Generator
) -> dict[tuple[str, int], np.ndarray]:
    """Return the rows (M, folds, K) by (data, round)."""
    strategy = build_strategy(config, task)
    found = {}
    clients = [task.client(client) for client in range(task.num_clients)]
    # Equal sizes, as the test wants them.
    sizes = {"train": min(len(c.y_train) for c in clients), "test": min(len(c.y_test) for c in clients)}
    sizes["fifth"] = sizes["train"] // 5
    parts: dict[str, list[list[tuple[Tensor, Tensor]]]] = {name: [] for name in sizes}
    for client in clients:
        unseen = client.x_test, client.y_test
        for name, (x, y) in {"train": (client.x_train, client.y_train), "test": unseen, "fifth": unseen}.items():
            order = rng.permutation(len(y))[: sizes[name] // FOLDS * FOLDS].reshape(FOLDS, -1)
            parts[name].append([(x[torch.from_numpy(fold)], y[torch.from_numpy(fold)]) for fold in order])
    module = task.build_model().eval()

    def on_round(report: RoundReport, record: ArrayRecord) -> None:
        if report.server_round not in rounds:
            return
        states = [
            {name: torch.from_numpy(array.numpy().copy()) for name, array in model.items()}
            for model in bank.models(record)
        ]
        for name, of_clients in parts.items():
            rows = np.zeros((len(of_clients), FOLDS, len(states)))
            with torch.no_grad():
                for column, state in enumerate(states):
                    module.load_state_dict(state)
                    for client, folds in enumerate(of_clients):
                        for fold, (x, y) in enumerate(folds):
                            loss = torch.nn.functional.cross_entropy(module(x), y)
                            rows[client, fold, column] = float(loss)
            found[name, report.server_round] = rows

    strategy.start(
        LocalGrid(app, config.num_clients),
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=on_round,
    )
    return found
