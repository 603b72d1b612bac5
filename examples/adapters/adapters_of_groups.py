"""Adapters of groups that are found from adapters alone: AG News with labels that each group calls otherwise.

A small transformer is trained on a part of the texts (`pretrain`), and then stays at home. 12 clients in four groups
have some of the rest; each group swaps other labels.
"""

import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

import florets

BACKBONE = Path("backbone.pt")
WORDS, LENGTH, PRETRAINED = 8_000, 32, 4_000
TASK = {
    "data": f"{Path(__file__).stem}:news",
    "model": f"{Path(__file__).stem}:net",
    "partition": "concept_shift",
    "partition_options": {
        "swaps": [[], [[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 3], [1, 2]]],
        "samples_per_client": 200,
        "test_samples_per_client": 200,
    },
    "num_clusters": 4,
}
LORA = {"adapter": "lora", "adapter_options": {"rank": 4}}
B_ALONE = {"adapter": "lora", "adapter_options": {"rank": 4, "train": "b"}}
# Without adapters all first models would be equal.
FULL = {"model_options": {"spread": 0.005}}
RUN = {"num_clients": 12, "k": 4, "num_rounds": 8, "loss_matrix": False, "pictures": False, "quiet": True}
TRAIN = {"optimizer": "adam", "local_epochs": 2, "batch_size": 64}
METHODS = {
    "CLoVE, adapters": ("clove", LORA, 0.003),
    "Discovery, adapters": ("discovery", LORA, 0.003),
    "IFCA, adapters": ("ifca", LORA, 0.003),
    "CLoVE, B alone": ("clove", B_ALONE, 0.02),
    "CLoVE, all parameters": ("clove", FULL, 0.003),
    "one adapter for all": ("fedavg", LORA, 0.003),
    "each client alone": ("local", LORA, 0.003),
}
"""Strategy, what is trained, and the learning rate."""


class Transformer(nn.Module):
    """An encoder layer over words and their places, and a linear layer on the mean of a text's words."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS + 2, width), nn.Parameter(torch.randn(LENGTH, width) / 10)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of tokens (n, length), of which 0 pads."""
        there = (x != 0).unsqueeze(-1).float()
        hidden = self.layers(self.words(x.long()) * there + self.places)
        return self.head((hidden * there).sum(dim=1) / there.sum(dim=1).clamp(min=1))


def net(input_shape, num_outputs, spread: float = 0.0):
    """Return the transformer as it was trained before, with noise of standard deviation `spread`."""
    module = Transformer(num_outputs)
    module.load_state_dict(torch.load(BACKBONE))
    with torch.no_grad():
        for parameter in module.parameters() if spread else ():
            parameter.add_(torch.randn_like(parameter), alpha=spread)
    return module


def all_news(data_dir: Path) -> florets.Dataset:
    """Return all texts of AG News's training file and test file, as tokens: 0 pads, 1 is a rare word."""
    files = [data_dir / "ag_news_csv" / name for name in ("train_subset.csv", "test.csv")]
    tables = [
        pd.read_csv(file, header=None, names=["label", "title", "text"], keep_default_na=False) for file in files
    ]
    texts = [(table.title + " " + table.text).str.lower().str.findall(r"\w+") for table in tables]
    tokens = {word: 2 + rank for rank, (word, _) in enumerate(Counter(chain(*texts[0])).most_common(WORDS))}
    x = [np.zeros((len(part), LENGTH), dtype=np.float32) for part in texts]
    for rows, part in zip(x, texts, strict=True):
        for row, words in zip(rows, part, strict=True):
            row[: len(words)] = [tokens.get(word, 1) for word in words[:LENGTH]]
    y = [table.label.to_numpy() - 1 for table in tables]
    return florets.Dataset(x[0], y[0], x[1], y[1], 4)


def news(data_dir, seed, num_clusters):
    """Return the texts that the transformer has not seen."""
    whole = all_news(data_dir)
    return florets.Dataset(whole.x_train[PRETRAINED:], whole.y_train[PRETRAINED:], whole.x_test, whole.y_test, 4)


def pretrain(data_dir: Path, epochs: int = 4) -> None:
    """Train the transformer on the first texts and write it into a file."""
    torch.manual_seed(0)
    whole, model = all_news(data_dir), Transformer(4)
    x, y = torch.from_numpy(whole.x_train[:PRETRAINED]), torch.from_numpy(whole.y_train[:PRETRAINED])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
    with torch.no_grad():
        right = model.eval()(torch.from_numpy(whole.x_test)).argmax(dim=1) == torch.from_numpy(whole.y_test)
    print(f"pre-trained on {PRETRAINED} texts: test accuracy {right.float().mean():.1%}")
    torch.save(model.state_dict(), BACKBONE)


def compare(data_dir: Path, seeds: int) -> pd.DataFrame:
    """Return each method's mean and spread over some seeds."""
    rows = []
    for name, (strategy, task, rate) in METHODS.items():
        for seed in range(seeds):
            keys = {"task": {**TASK, **task}, "train": {**TRAIN, "learning_rate": rate}, "data_dir": str(data_dir)}
            run = florets.run(strategy=strategy, seed=seed, **keys, **RUN)
            sent = run.rounds[["bytes_up", "bytes_down"]].sum() / 1e6
            rows.append((name, run.ari, 100 * run.accuracy, sent["bytes_up"], sent["bytes_down"]))
            print(*rows[-1], flush=True)
    found = pd.DataFrame(rows, columns=["method", "ARI", "accuracy", "MB up", "MB down"])
    return found.groupby("method", sort=False).agg(["mean", "std"]).round(2)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if not BACKBONE.exists():
        pretrain(folder)
    print(compare(folder, seeds=int(sys.argv[2])).to_string())
