"""Models that keep something outside their state dict: it never goes from one client to the next."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import florets


class Model(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.out = nn.Linear(input_shape[0], num_outputs)
        self.begin()

    def begin(self) -> None:
        """Set what it keeps."""


class Counting(Model):
    """It shifts its outputs by the number of passes, which only it knows."""

    def begin(self) -> None:
        self.passes: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.append(1)
        outputs: torch.Tensor = self.out(x - 0.05 * len(self.passes))
        return outputs


class Centred(Model):
    """It takes off a running mean, which is in no state dict."""

    def begin(self) -> None:
        self.register_buffer("centre", torch.rand(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.centre = 0.9 * self.centre + 0.1 * x.mean(0)
        outputs: torch.Tensor = self.out(x - self.centre)
        return outputs


def clients() -> dict[str, Any]:
    found = {}
    for name, offset in (("a", 0), ("b", 8), ("c", -8)):
        rng = np.random.default_rng(len(found))
        y = np.arange(30) % 2
        x = (rng.normal(size=(30, 3)) + 2 * y[:, None] - 1 + offset).astype("f4")
        found[name] = {"train": (x[:20], y[:20]), "test": (x[20:], y[20:])}
    return found


@pytest.mark.parametrize("model", [Counting, Centred])
def test_a_client_begins_anew_in_any_order_and_prediction_agrees(tmp_path: Path, model: type[Model]) -> None:
    own = clients()
    losses = []
    for order in ("abc", "cba"):
        run = florets.run(
            clients={name: own[name] for name in order},
            model=model, strategy="local", num_rounds=2, quiet=True, pictures=False, results_dir=tmp_path / order,
        )  # fmt: skip
        table = run.clients.set_index("client")
        losses.append(table.loc[["a", "b", "c"], "test_loss"].tolist())
        for name, parts in own.items():
            labels = run.predict(parts["test"][0], client=name).labels
            assert (labels == parts["test"][1]).mean() == pytest.approx(table.loc[name, "test_accuracy"])
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_workers_give_the_same_bits(tmp_path: Path) -> None:
    given = {"model": Centred, "strategy": "local", "num_rounds": 2, "quiet": True, "pictures": False}
    runs = [florets.run(clients=clients(), results_dir=tmp_path / str(n), workers=n, **given) for n in (1, 3)]
    assert runs[0].clients["test_loss"].tolist() == runs[1].clients["test_loss"].tolist()
