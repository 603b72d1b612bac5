"""Discovery in the rows of `florets reproduce discovery/recovery`: real runs in process, up to the decision."""

import time
from collections import Counter
from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.server_app.reproduce.item_file import find_item
from florets.strategies.base.report import EVIDENCE, RoundReport
from florets.strategies.core.metrics import adjusted_rand_index

_ROUNDS_OF_SAMPLES = 6
"""Rounds in which enough clients have taken part, where a round is a sample of them."""


def presets(first: int, seeds: int, only: str, data_dir: str, extra: dict[str, str]) -> None:
    """Print for each row the share of seeds with the right number of groups, and the ARI of all clients."""
    item = find_item("discovery/recovery")
    print(f"discovery/recovery, k=auto {extra or ''}, seeds {first} to {first + seeds - 1}")
    for row in item.rows:
        if only not in row.name or (row.name.startswith("mnist") and not data_dir):
            continue
        keys = {**item.overrides, **row.overrides, "strategy": "discovery", "k": "auto", **extra}
        if data_dir:
            keys["data_dir"] = data_dir
        config = compose([f"{key}={value}" for key, value in keys.items()])
        if config.task.loss != "cross_entropy":
            rounds = config.num_rounds
        else:
            rounds = 1 if config.strategy.settings.fraction_train == 1.0 else _ROUNDS_OF_SAMPLES
        begin = time.process_time()
        right, agreement, answers = [], [], Counter()
        for seed in range(first, first + seeds):
            found, ari = _run(replace(config, seed=seed, num_rounds=rounds))
            truth = config.task.num_clusters
            right.append(found["verdict"] == ("none" if truth == 1 else "groups") and found["k"] == truth)
            agreement.append(ari)
            answers[{"none": "none", "all_differ": "all"}.get(found["verdict"], str(found["k"]))] += 1
        said = " ".join(f"{answer}:{count}" for answer, count in answers.most_common(6))
        print(
            f"{row.name:30} right {np.mean(right):6.3f}  ARI {np.mean(agreement):5.2f}  "
            f"ARI 1 {np.mean(np.array(agreement) == 1.0):5.2f}  {said}  "
            f"{(time.process_time() - begin) / seeds:.2f} s",
            flush=True,
        )


def _run(config: Config) -> tuple[dict, float]:
    """Return the evidence of the first decision, and the ARI of all clients that then have a model."""
    task = build_task(config)
    reports: list[RoundReport] = []

    def on_round(report: RoundReport, _: ArrayRecord) -> None:
        reports.append(report)

    build_strategy(config, task).start(
        LocalGrid(app, config.num_clients),
        build_models(config, task),
        num_rounds=config.num_rounds,
        train_config=message_settings(config, task),
        on_round=on_round,
    )
    told = [report for report in reports if report.details.get(EVIDENCE, {}).get("verdict", "open") != "open"]
    report = told[0] if told else reports[-1]
    keys = sorted(report.assignment)
    truth = [task.cluster_of(int(key)) for key in keys]
    return report.details[EVIDENCE], adjusted_rand_index(truth, [report.assignment[key] for key in keys])
