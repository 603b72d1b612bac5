"""Cost of discovery for a client, beside that of one local training: gradients and CPU time.

The real ClientApp replies to `train` and to `train.folds`, in turn; the difference of the medians is discovery's.
"""

import time

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.shared.fold_round import FoldPlan
from florets.strategies.shared.messages import TRAIN_FOLDS
from florets.task.wire import Layout, bank, kinds
from florets.task.wire.folds import RowForm
from florets.task.wire.replies import read_work

CASES = {
    "quickstart": ["experiment=quickstart"],
    "digits, 2 epochs": ["experiment=recovery/digits"],
    "digits, 5 epochs": ["experiment=recovery/digits", "train.local_epochs=5"],
    "digits, 10 epochs": ["experiment=recovery/digits", "train.local_epochs=10"],
    "linear": ["experiment=recovery/linear"],
    "mnist": ["experiment=recovery/mnist"],
}
_CLIENTS = 3


def work(data_dir: str, repetitions: int, only: str) -> None:
    """Print gradients and CPU milliseconds of a local training and of discovery's folds, for each case."""
    print(f"per client: gradients of samples and CPU ms of a reply (median of {repetitions} x {_CLIENTS})")
    for name, keys in CASES.items():
        if only not in name or (name == "mnist" and not data_dir):
            continue
        config = compose([*keys, *([f"data_dir={data_dir}"] if data_dir else [])])
        task = build_task(config)
        grid, model = LocalGrid(app, config.num_clients), bank.model(build_models(config, task), 0)
        # A regression looks for groups at a trained model.
        fine = config.task.loss != "cross_entropy"
        plan = FoldPlan.of([task.num_examples_of(client) for client in range(config.num_clients)], fine, tests=True)
        form = RowForm.of("projection", None, int(Layout.of(model).trained.sum()), plan.folds)
        asked = {
            kinds.NUM_FOLDS: plan.folds, kinds.FOLD_SIZE: plan.size, kinds.FOLD_STEPS: plan.steps,
            kinds.FOLD_UPLOAD: form.upload, kinds.FOLD_WIDTH: form.width, kinds.FOLD_SEED: 1,
            kinds.FOLD_RATE: plan.rate,
        }  # fmt: skip
        common = {**message_settings(config, task), kinds.SERVER_ROUND: 1, kinds.REPLY: kinds.REPLY_MODEL}
        times: dict[str, list[float]] = {kinds.TRAIN: [], TRAIN_FOLDS: []}
        passes: dict[str, int] = {}
        nodes = list(grid.get_node_ids())[:_CLIENTS]
        for repetition in range(repetitions + 1):
            for kind in times:
                record = ConfigRecord({**common, **asked})  # type: ignore[dict-item]  # dict is invariant
                for node in nodes:
                    message = Message(RecordDict({kinds.CONFIG: record, kinds.ARRAYS: model}), node, kind)
                    begin = time.process_time()
                    (reply,) = grid.send_and_receive([message])
                    spent = time.process_time() - begin
                    assert not reply.has_error(), reply.error.reason
                    passes[kind] = read_work(reply.content).gradients
                    # The first time loads data and makes models.
                    if repetition:
                        times[kind].append(1000 * spent)
        train, both = (float(np.median(spent)) for spent in times.values())
        own, everything = passes.values()
        added, spent_more = everything - own, both - train
        print(
            f"{name:20} local training {own:5} {train:6.1f} ms   discovery adds {plan.folds} x {plan.size} x "
            f"{plan.steps} = {added:4} ({added / own:.2f}) {spent_more:6.1f} ms ({spent_more / train:.2f})",
            flush=True,
        )
